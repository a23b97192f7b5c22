//! The release is the same wherever it is built. `make test-deploy` builds it twice: in this tree, and from a copy of the sources in another folder,
//! with another target folder and another home for cargo.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use deploy::artifacts::{PROGRAMS, VERSION, deb, dist, output, rpm, tarball};

/// The file that was built here, and its twin.
fn twins(file: PathBuf) -> [PathBuf; 2] {
    let within = file.strip_prefix(dist("")).unwrap();
    let again = dist(Path::new("again").join(within));
    assert_ne!(file, again);
    [file, again]
}

#[track_caller]
fn check_same(file: PathBuf) {
    let twins = twins(file);
    let [here, elsewhere] = twins.each_ref().map(|file| fs::read(file).unwrap());
    if here != elsewhere {
        let places = output(Command::new("cmp").arg("--verbose").args(&twins));
        let places = String::from_utf8_lossy(&places.stdout);
        let first: Vec<_> = places.lines().take(20).collect();
        panic!("{twins:?} differ in {} bytes of {}: {first:#?}", places.lines().count(), here.len());
    }
}

#[test]
fn programs_are_the_same_when_built_elsewhere() {
    for program in PROGRAMS {
        check_same(dist(Path::new(std::env::consts::ARCH).join(program)));
    }
}

#[test]
fn packages_are_the_same_when_built_elsewhere() {
    let architecture = std::env::consts::ARCH;
    for package in [deb(VERSION, architecture), rpm(VERSION, architecture), tarball(architecture)] {
        check_same(package);
    }
}
