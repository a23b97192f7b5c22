//! Programs that include `gadget/gpu_bridge_maps.h` as its users do: what compiles, and which maps they then declare.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libbpf_rs::ObjectBuilder;
use tempfile::TempDir;

use crate::support::{compile_text, temporary_directory};

/// Each WANT macro, the map that it declares, and a use of what comes with it.
const WANTS: [(&str, &str, &str); 5] = [
    ("GPU_BRIDGE_WANT_META", "gpu_meta", "if (gpu_meta_fresh(bpf_ktime_get_boot_ns(), 300)) found++;"),
    (
        "GPU_BRIDGE_WANT_DEVICE",
        "gpu_device",
        "{ __u32 index = 3; struct gpu_device_metrics *m = bpf_map_lookup_elem(&gpu_device, &index); if (m) found += m->temp_c; }",
    ),
    (
        "GPU_BRIDGE_WANT_PER_PID",
        "gpu_per_pid",
        "{ struct gpu_pid_metrics_aggregated *p = gpu_pid_holder(bpf_get_current_pid_tgid() >> 32, 1 << 20); if (p) found += p->device_count; }",
    ),
    (
        "GPU_BRIDGE_WANT_PER_PID_PER_DEVICE",
        "gpu_per_pid_per_device",
        "{ __u64 key = GPU_PID_DEVICE_KEY(42, 3); struct gpu_pid_metrics *p = bpf_map_lookup_elem(&gpu_per_pid_per_device, &key); if (p) found += p->mig_instance; }",
    ),
    (
        "GPU_BRIDGE_WANT_STATE",
        "gpu_bridge_state",
        "{ __u32 zero = 0; struct gpu_bridge_state *s = bpf_map_lookup_elem(&gpu_bridge_state, &zero); if (s) found += s->phase == GPU_BRIDGE_PUBLISHING; }",
    ),
];

const LINUX_TYPES: &str = "#include <linux/types.h>\n#include <bpf/bpf_helpers.h>\n";
const LINUX_BPF: &str = "#include <linux/types.h>\n#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";
const VMLINUX: &str = "#include <vmlinux.h>\n#include <bpf/bpf_helpers.h>\n";

/// The names of the maps that `wants` declare.
fn maps(wants: &[(&str, &'static str, &str)]) -> BTreeSet<String> {
    wants.iter().map(|want| want.1.to_owned()).collect()
}

/// A program: what it includes first, the macros that it defines, and the statements of its body.
fn program(first: &str, macros: &[&str], uses: &[&str]) -> String {
    let defines: String = macros.iter().map(|name| format!("#define {name}\n")).collect();
    format!(
        "{first}{defines}#include <gadget/gpu_bridge_maps.h>\n\
         SEC(\"tc\") int consumer(void *ctx)\n{{\n\tint found = 0;\n\t(void)ctx;\n\t{}\n\treturn found;\n}}\n\
         char LICENSE[] SEC(\"license\") = \"Dual BSD/GPL\";\n",
        uses.join("\n\t")
    )
}

/// Where a distribution keeps `asm/types.h`, when not in /usr/include itself.
fn kernel_headers() -> PathBuf {
    let multiarch = Path::new("/usr/include").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    if multiarch.join("asm/types.h").exists() { multiarch } else { "/usr/include".into() }
}

/// The running kernel's types as a header, made once for all tests.
fn vmlinux() -> &'static Path {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| {
        let output = Command::new("bpftool")
            .args(["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "c"])
            .output()
            .unwrap_or_else(|error| panic!("cannot run bpftool, which makes vmlinux.h: {error}"));
        assert!(output.status.success(), "bpftool made no vmlinux.h: {}", String::from_utf8_lossy(&output.stderr));
        let directory = temporary_directory();
        fs::write(directory.path().join("vmlinux.h"), output.stdout).unwrap();
        directory
    });
    directory.path()
}

/// The names of the maps in the object that `source` gives.
#[track_caller]
fn declared_maps(source: &str, includes: &[&Path]) -> BTreeSet<String> {
    let directory = temporary_directory();
    let object = compile_text(directory.path(), "consumer", source, includes).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let object = ObjectBuilder::default().open_file(object).unwrap();
    object.maps().map(|map| map.name().to_str().unwrap().to_owned()).collect()
}

/// Every choice of macros compiles after `first`, and declares the maps that were chosen and no other.
#[track_caller]
fn check_every_choice(first: &str, includes: &[&Path]) {
    for choice in 0..1 << WANTS.len() {
        let chosen: Vec<_> = WANTS.iter().enumerate().filter(|(bit, _)| choice & (1 << bit) != 0).map(|(_, want)| *want).collect();
        let macros: Vec<_> = chosen.iter().map(|want| want.0).collect();
        let uses: Vec<_> = chosen.iter().map(|want| want.2).collect();
        assert_eq!(declared_maps(&program(first, &macros, &uses), includes), maps(&chosen), "{macros:?} after {first}");
    }
}

#[test]
fn every_choice_of_maps_compiles_with_the_kernels_vmlinux_h() {
    check_every_choice(VMLINUX, &[vmlinux()]);
}

#[test]
fn every_choice_of_maps_compiles_with_linux_types_h_alone() {
    check_every_choice(LINUX_TYPES, &[&kernel_headers()]);
}

#[test]
fn every_choice_of_maps_compiles_with_linux_types_h_and_linux_bpf_h() {
    check_every_choice(LINUX_BPF, &[&kernel_headers()]);
}

#[test]
fn want_all_declares_the_four_maps_of_the_contract_and_not_the_state() {
    let uses = WANTS.map(|want| want.2);
    for (first, include) in [(VMLINUX, vmlinux()), (LINUX_TYPES, &kernel_headers()), (LINUX_BPF, &kernel_headers())] {
        let found = declared_maps(&program(first, &["GPU_BRIDGE_WANT_ALL"], &uses[..4]), &[include]);
        assert_eq!(found, maps(&WANTS[..4]));
        let found = declared_maps(&program(first, &["GPU_BRIDGE_WANT_ALL", "GPU_BRIDGE_WANT_STATE"], &uses), &[include]);
        assert_eq!(found, maps(&WANTS));
    }
}

#[test]
fn a_macro_may_have_a_value_and_stand_beside_want_all() {
    let source = program(LINUX_TYPES, &["GPU_BRIDGE_WANT_ALL 1", "GPU_BRIDGE_WANT_META 1", "GPU_BRIDGE_WANT_DEVICE 0"], &[]);
    assert_eq!(declared_maps(&source, &[&kernel_headers()]), maps(&WANTS[..4]));
}

#[test]
fn a_second_include_adds_the_maps_that_are_wanted_by_then() {
    let first =
        format!("{LINUX_TYPES}#include <gadget/gpu_types.h>\n#define GPU_BRIDGE_WANT_PER_PID\n#include <gadget/gpu_bridge_maps.h>\n");
    let source = program(&first, &["GPU_BRIDGE_WANT_META"], &[WANTS[0].2, WANTS[2].2]);
    assert_eq!(declared_maps(&source, &[&kernel_headers()]), maps(&[WANTS[0], WANTS[2]]));

    let first = format!("{LINUX_TYPES}#define GPU_BRIDGE_WANT_META\n#include <gadget/gpu_bridge_maps.h>\n");
    let source = program(&first, &["GPU_BRIDGE_WANT_ALL"], &WANTS.map(|want| want.2)[..4]);
    assert_eq!(declared_maps(&source, &[&kernel_headers()]), maps(&WANTS[..4]));
}

#[test]
fn what_was_not_asked_for_is_not_there() {
    let directory = temporary_directory();
    for (index, (_, map, uses)) in WANTS.iter().enumerate() {
        let others: Vec<_> = WANTS.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, want)| want.0).collect();
        let error = compile_text(directory.path(), map, &program(LINUX_TYPES, &others, &[uses]), &[&kernel_headers()])
            .expect_err("what the macro would have brought is used");
        assert!(error.contains("undeclared") || error.contains("implicit declaration"), "{map}: {error}");
    }
}
