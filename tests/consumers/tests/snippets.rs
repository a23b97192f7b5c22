//! The BPF programs that README.md and docs/quick-start.md show can be compiled and loaded as they stand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;
use std::path::Path;
use std::process::Command;

use e2e::Bpffs;
use libbpf_rs::ObjectBuilder;
use tempfile::TempDir;

#[track_caller]
fn check(page: &str) {
    let program = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program on the page");
    let folder = TempDir::with_prefix("snippet-").unwrap();
    let (source, object) = (folder.path().join("snippet.bpf.c"), folder.path().join("snippet.bpf.o"));
    fs::write(&source, program).unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-g", "-O2", "-Wall", "-Werror", "-I"]).arg(own.join("../../include")).arg("-I").arg(own.join("bpf"));
    let compiled = clang.args(["-I", env!("LIBBPF_INCLUDE"), "-c"]).arg(&source).arg("-o").arg(&object).output().expect("clang");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let pins = Bpffs::mount();
    let loaded = ObjectBuilder::default().pin_root_path(pins.path()).unwrap().open_file(&object).unwrap().load().unwrap();
    assert_eq!(loaded.progs().count(), 1);
    assert!(pins.pin("gpu_meta").exists() && pins.pin("gpu_per_pid").exists(), "it makes the maps that are not there yet");
}

#[test]
fn the_program_of_the_front_page_loads() {
    check(include_str!("../../../README.md"));
}

#[test]
fn the_program_of_the_quick_start_loads() {
    check(include_str!("../../../docs/quick-start.md"));
}
