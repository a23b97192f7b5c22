//! `codegen`: the Rust form of the ABI, generated from `include/gadget/gpu_types.h`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{IntKind, ItemInfo, ItemKind, ParseCallbacks};
use bindgen::{EnumVariation, Formatter, RustEdition, RustTarget};
use thiserror::Error;

const HEADER: &str = "include/gadget/gpu_types.h";
const BINDINGS: &str = "crates/gpu-types/src/bindings.rs";

/// What the header expects of its includer. Own typedefs instead of the system's, so that the result is the same on every distribution; texts
/// are bytes, since `char` is signed on one architecture and not on the other.
const PRELUDE: &str = "\
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#define __u8 uint8_t
#define __u16 uint16_t
#define __u32 uint32_t
#define __u64 uint64_t
#define __s64 int64_t
#define char uint8_t
#define __VMLINUX_H__
#include \"gpu_types.h\"
";

const BANNER: &str = "// Generated from include/gadget/gpu_types.h by `cargo xtask codegen`; do not edit.\n\n";

/// Why the bindings could not be generated, written or confirmed.
#[derive(Debug, Error)]
pub(crate) enum CodegenError {
    /// bindgen or libclang refused the header.
    #[error("cannot generate Rust types from {HEADER}")]
    Generate(#[source] bindgen::BindgenError),
    /// A file of the repository could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The checked-in bindings differ from what the header says.
    #[error("{BINDINGS} does not match {HEADER}; run: cargo xtask codegen\n{difference}")]
    Outdated {
        /// The differing lines, `-` checked in and `+` generated.
        difference: String,
    },
}

/// Writes the bindings, or with `check` compares them with what the header gives now.
pub(crate) fn run(check: bool) -> Result<(), CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join(BINDINGS);
    let generated = generate(&root)?;
    if !check {
        return fs::write(&path, generated).map_err(|source| CodegenError::File { action: "write", path, source });
    }
    let present = fs::read_to_string(&path).map_err(|source| CodegenError::File { action: "read", path, source })?;
    match difference(&present, &generated) {
        None => Ok(()),
        Some(difference) => Err(CodegenError::Outdated { difference }),
    }
}

fn generate(root: &Path) -> Result<String, CodegenError> {
    let bindings = bindgen::builder()
        .header_contents("prelude.h", PRELUDE)
        .clang_arg(format!("-I{}", root.join("include/gadget").display()))
        // The layout that BPF programs see, on whatever machine this runs.
        .clang_arg("--target=bpf")
        .clang_arg("-fparse-all-comments")
        .allowlist_type("gpu_.*")
        .allowlist_var("GPU_.*")
        .parse_callbacks(Box::new(Names))
        .use_core()
        .rust_target(RustTarget::stable(88, 0).unwrap_or_default())
        .rust_edition(RustEdition::Edition2024)
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .explicit_padding(true)
        .derive_default(true)
        .derive_eq(true)
        .layout_tests(true)
        .disable_header_comment()
        .formatter(Formatter::Prettyplease)
        .generate()
        .map_err(CodegenError::Generate)?;
    Ok(format!("{BANNER}{bindings}"))
}

/// Rust's spelling for the header's names.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        matches!(item.kind, ItemKind::Type).then(|| camel_case(item.name))
    }

    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        match name {
            "GPU_DEVICE_PRIMARY_MULTI" => Some(IntKind::U8),
            _ if name.ends_with("_LEN") => Some(IntKind::Custom { name: "usize", is_signed: false }),
            _ => Some(IntKind::U32),
        }
    }
}

fn camel_case(name: &str) -> String {
    name.split('_')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}

/// The lines between the common head and tail of two texts, as a diff would show them; None when the texts are equal.
fn difference(present: &str, generated: &str) -> Option<String> {
    if present == generated {
        return None;
    }
    let (old, new): (Vec<_>, Vec<_>) = (present.lines().collect(), generated.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let mut text = format!("--- {BINDINGS} (checked in)\n+++ {BINDINGS} (generated)\n@@ line {} @@", head + 1);
    append_lines(&mut text, '-', &old[head..old.len() - tail]);
    append_lines(&mut text, '+', &new[head..new.len() - tail]);
    Some(text)
}

fn append_lines(text: &mut String, sign: char, lines: &[&str]) {
    const SHOWN: usize = 40;
    for line in lines.iter().take(SHOWN) {
        text.push_str(&format!("\n{sign}{line}"));
    }
    if lines.len() > SHOWN {
        text.push_str(&format!("\n{sign}… and {} more lines", lines.len() - SHOWN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    }

    #[track_caller]
    fn check(present: &str, generated: &str, expected: &str) {
        let shown = difference(present, generated).unwrap();
        let (_, lines) = shown.split_once("(generated)\n").unwrap();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_difference_shows_the_lines_between_what_is_common() {
        check("a\nb\nc\n", "a\nx\nc\n", "@@ line 2 @@\n-b\n+x");
        check("a\nc\n", "a\nb\nc\n", "@@ line 2 @@\n+b");
        check("a\nb\nb\nc\n", "a\nb\nc\n", "@@ line 3 @@\n-b");
        check("", "a\n", "@@ line 1 @@\n+a");
    }

    #[test]
    fn texts_that_differ_only_in_how_they_end_differ() {
        check("a", "a\n", "@@ line 2 @@");
    }

    #[test]
    fn a_long_difference_is_cut() {
        let long = "x\n".repeat(50);
        let shown = difference(&long, "").unwrap();
        assert!(shown.ends_with("\n-… and 10 more lines"), "{shown}");
    }

    #[test]
    fn names_take_rusts_spelling() {
        assert_eq!(camel_case("gpu_pid_metrics_aggregated"), "GpuPidMetricsAggregated");
    }

    #[test]
    fn the_checked_in_bindings_are_what_the_header_gives() {
        run(true).unwrap();
    }
}
