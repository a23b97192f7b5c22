//! The release binaries: what they need of a system, and that they start on old and on other ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use deploy::artifacts::{ARCHITECTURES, PROGRAMS, crates_in, dist, fail, source, succeed};
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, elf};

/// RHEL 8's.
const OLDEST_GLIBC: (u32, u32) = (2, 28);

/// All are glibc's or the compiler's own. In glibc before 2.34 threads and dlopen have libraries of their own.
const LIBRARIES: [&str; 7] =
    ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];

fn for_each_binary(check: impl Fn(&Path, &ElfFile64<'_, Endianness>)) {
    for architecture in ARCHITECTURES {
        for program in PROGRAMS {
            let path = dist(Path::new(architecture).join(program));
            let image = fs::read(&path).unwrap();
            check(&path, &ElfFile64::parse(&*image).unwrap());
        }
    }
}

/// What the dynamic section asks for: libraries, and versions of symbols.
fn needs(file: &ElfFile64<'_, Endianness>) -> (BTreeSet<String>, BTreeSet<String>) {
    let (endian, data) = (file.endian(), file.data());
    let sections = file.elf_header().sections(endian, data).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();

    let (dynamic, strings) = sections.dynamic(endian, data).unwrap().expect("a dynamic section");
    let strings = sections.strings(endian, data, strings).unwrap();
    let needed = dynamic.iter().filter(|entry| entry.d_tag.get(endian) == u64::from(elf::DT_NEEDED));
    let libraries = needed.map(|entry| text(strings.get(u32::try_from(entry.d_val.get(endian)).unwrap()).unwrap())).collect();

    let mut versions = BTreeSet::new();
    let (mut libraries_of_versions, strings) = sections.gnu_verneed(endian, data).unwrap().expect("versioned symbols");
    let strings = sections.strings(endian, data, strings).unwrap();
    while let Some((_, mut of_library)) = libraries_of_versions.next().unwrap() {
        while let Some(version) = of_library.next().unwrap() {
            versions.insert(text(version.name(endian, strings).unwrap()));
        }
    }
    (libraries, versions)
}

#[test]
fn no_symbol_is_newer_than_the_oldest_system() {
    for_each_binary(|path, file| {
        let (_, versions) = needs(file);
        let mut glibc = 0;
        for version in &versions {
            let Some(number) = version.strip_prefix("GLIBC_") else {
                assert!(version.starts_with("GCC_"), "{}: {version}", path.display());
                continue;
            };
            let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap());
            let number = (parts.next().unwrap(), parts.next().unwrap());
            assert!(number <= OLDEST_GLIBC, "{} needs {version}", path.display());
            glibc += 1;
        }
        assert!(glibc > 0, "{}: {versions:?}", path.display());
    });
}

#[test]
fn nothing_but_the_c_library_is_needed() {
    for_each_binary(|path, file| {
        let (libraries, _) = needs(file);
        assert!(libraries.contains("libc.so.6"), "{libraries:?}");
        for library in &libraries {
            assert!(LIBRARIES.contains(&library.as_str()), "{} needs {library}", path.display());
        }
    });
}

#[test]
fn they_are_stripped_and_have_a_build_id() {
    for_each_binary(|path, file| {
        assert!(file.symbol_table().is_none(), "{} has symbols", path.display());
        assert!(file.sections().all(|section| !section.name().unwrap().starts_with(".debug")), "{} has debug information", path.display());
        let build_id = file.build_id().unwrap().unwrap_or_else(|| panic!("{} has no build id", path.display()));
        assert_eq!(build_id.len(), 20, "{}", path.display());
    });
}

#[test]
fn they_list_the_crates_that_are_in_them() {
    let lock = fs::read_to_string(source("Cargo.lock")).unwrap();
    let library = |program: &str| if program == "bridge-dump" { "ratatui" } else { "telemetry-nvml" };
    for architecture in ARCHITECTURES {
        for program in PROGRAMS {
            let path = dist(Path::new(architecture).join(program));
            let list = crates_in(&path);
            for package in &list {
                let locked = format!("[[package]]\nname = {}\nversion = {}\n", package["name"], package["version"]);
                assert!(lock.contains(&locked), "{}: {locked}", path.display());
            }
            for name in ["map-reader", "gpu-types", "libbpf-sys", "clap", library(program)] {
                assert!(list.iter().any(|package| package["name"] == name), "{}: no {name}", path.display());
            }
            assert!(list.iter().all(|package| package["name"] != "nvml-sim"), "{}: what is for tests only", path.display());
        }
    }
}

#[test]
fn no_path_of_the_machine_that_built_them_is_in_them() {
    let here = source("Cargo.toml");
    let home = std::env::var("HOME").unwrap();
    for_each_binary(|path, file| {
        for trace in [here.parent().unwrap().to_str().unwrap(), &format!("{home}/.cargo")] {
            let found = file.data().windows(trace.len()).any(|window| window == trace.as_bytes());
            assert!(!found, "{} contains {trace}", path.display());
        }
    });
}

#[test]
fn aarch64_programs_start() {
    // Where Debian and Ubuntu put the C library of another processor.
    let qemu = |program: &str| {
        let mut qemu = Command::new("qemu-aarch64-static");
        qemu.args(["-L", "/usr/aarch64-linux-gnu"]).arg(dist(Path::new("aarch64").join(program)));
        qemu
    };
    for program in PROGRAMS {
        let version = succeed(qemu(program).arg("--version"));
        assert_eq!(version.trim(), format!("{program} {}", env!("CARGO_PKG_VERSION")));
        assert!(succeed(qemu(program).arg("--help")).contains("--pin-dir"));
    }
    let nowhere = tempfile::tempdir().unwrap();
    let said = fail(qemu("gpu-ebpf-bridge").arg("--dump").arg("--pin-dir").arg(nowhere.path()));
    for map in ["gpu_meta", "gpu_device", "gpu_per_pid", "gpu_per_pid_per_device"] {
        assert!(said.contains(map), "{said}");
    }
}
