//! The crates can be published: cargo packs each of them, and what was packed builds, away from this tree.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use deploy::artifacts::{VERSION, source, succeed, target};
use serde_json::Value;
use tempfile::TempDir;

/// The keywords and categories that a registry takes at most.
const MOST: usize = 5;

fn cargo(words: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(words).current_dir(source("."));
    cargo
}

/// Those that are not for this workspace only.
fn published() -> Vec<Value> {
    let metadata: Value = serde_json::from_str(&succeed(&mut cargo(&["metadata", "--no-deps", "--format-version=1"]))).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| package["publish"].is_null()).cloned().collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn they_say_what_a_registry_asks_for() {
    let packages = published();
    let names: BTreeSet<_> = packages.iter().map(name).collect();
    for library in ["bridge", "gpu-types", "map-publisher", "map-reader", "telemetry", "telemetry-nvml"] {
        assert!(names.contains(library), "{names:?}");
    }
    for package in &packages {
        for field in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{} has no {field}", name(package));
        }
        for field in ["keywords", "categories"] {
            assert!((1..=MOST).contains(&package[field].as_array().unwrap().len()), "{}: {field}", name(package));
        }
    }
}

#[test]
fn what_is_packed_is_whole_and_builds() {
    let packages = published();
    let folder = TempDir::new().unwrap();
    let mut package = cargo(&["package", "--no-verify", "--locked", "--allow-dirty", "--quiet", "--target-dir"]);
    package.arg(folder.path());
    for each in &packages {
        package.args(["--package", name(each)]);
    }
    succeed(&mut package);

    // cargo's own verification builds all dependencies anew for each crate. Here they are unpacked side by side, with the versions that are locked, and
    // stand for the registry's.
    let mut workspace = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*-*\"]\n[patch.crates-io]\n");
    let unpacked = folder.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    for each in packages.iter().map(name) {
        let packed = folder.path().join(format!("package/{each}-{VERSION}.crate"));
        succeed(Command::new("tar").arg("--extract").arg("--directory").arg(&unpacked).arg("--file").arg(packed));
        let of_crate = unpacked.join(format!("{each}-{VERSION}"));
        for file in ["Cargo.toml", "LICENSE", "README.md"] {
            assert!(of_crate.join(file).is_file(), "{each} has no {file}");
        }
        // Links of the tree, into the tree.
        if each == "map-publisher" {
            for file in ["bpf/gpu_maps.bpf.c", "include/gadget/gpu_types.h", "include/gadget/gpu_bridge_maps.h"] {
                assert!(of_crate.join(file).symlink_metadata().is_ok_and(|found| found.is_file()), "{each} has no {file}");
            }
        }
        workspace.push_str(&format!("{each} = {{ path = \"{each}-{VERSION}\" }}\n"));
    }
    fs::write(unpacked.join("Cargo.toml"), workspace).unwrap();
    fs::copy(source("Cargo.lock"), unpacked.join("Cargo.lock")).unwrap();
    succeed(cargo(&["check", "--workspace", "--quiet", "--target-dir"]).arg(target().join("packed")).current_dir(&unpacked));
}
