//! Compiling BPF sources.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;
use tempfile::TempDir;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory for sources and objects that goes away with the value.
pub(crate) fn temporary_directory() -> TempDir {
    tempfile::Builder::new().prefix("gpu-types-test-").tempdir().expect("a temporary directory")
}

/// Compiles `source` (`*.bpf.c`) with -Wall -Werror, the repository's headers, libbpf's, and system headers from `includes`. The error is clang's own words.
pub(crate) fn compile(source: &Path, includes: &[&Path]) -> Result<PathBuf, String> {
    let object = source.with_extension("o");
    let include = repository().join("include");
    let mut arguments: Vec<OsString> = ["-Wall", "-Wextra", "-Werror"].map(OsString::from).to_vec();
    arguments.extend(["-I".into(), include.into_os_string()]);
    for directory in includes {
        arguments.extend(["-isystem".into(), directory.as_os_str().to_owned()]);
    }
    match SkeletonBuilder::new().source(source).obj(&object).clang_args(arguments).build() {
        Ok(()) => Ok(object),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Writes `text` to `<name>.bpf.c` in `directory` and compiles it.
pub(crate) fn compile_text(directory: &Path, name: &str, text: &str, includes: &[&Path]) -> Result<PathBuf, String> {
    let source = directory.join(name).with_extension("bpf.c");
    fs::write(&source, text).expect("a source in the temporary directory");
    compile(&source, includes)
}

/// The map object that the bridge loads.
pub(crate) fn compile_bridge_maps(directory: &Path) -> PathBuf {
    let sources = repository().join("bpf");
    for name in ["gpu_maps.bpf.c", "vmlinux.h"] {
        fs::copy(sources.join(name), directory.join(name)).unwrap_or_else(|error| panic!("bpf/{name}: {error}"));
    }
    compile(&directory.join("gpu_maps.bpf.c"), &[]).unwrap_or_else(|error| panic!("{error}"))
}
