//! What was built for delivery, and running what tests it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The processors that there are binaries for.
pub const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// The programs that are delivered.
pub const PROGRAMS: [&str; 2] = ["gpu-ebpf-bridge", "bridge-dump"];

/// The version that was built.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A version above that one, of which there are packages to upgrade to.
pub const NEXT_VERSION: &str = "99.0.0";

/// The image that the tests run.
pub const IMAGE: &str = "localhost/gpu-ebpf-bridge:test";

/// A file or folder below `target/dist`.
///
/// # Panics
/// When it was not built.
#[must_use]
#[track_caller]
pub fn dist(path: impl AsRef<Path>) -> PathBuf {
    built(&Path::new("dist").join(path))
}

/// A program of the workspace, for tests that are about the files around it.
///
/// # Panics
/// When it was not built.
#[must_use]
#[track_caller]
pub fn debug_program(name: &str) -> PathBuf {
    let path = target().join("debug").join(name);
    assert!(path.exists(), "{} is not there: build it first, with `cargo build --workspace`", path.display());
    path
}

/// A .deb.
///
/// # Panics
/// When it was not built.
#[must_use]
#[track_caller]
pub fn deb(version: &str, architecture: &str) -> PathBuf {
    let architecture = if architecture == "aarch64" { "arm64" } else { "amd64" };
    dist(folder(version).join(format!("gpu-ebpf-bridge_{version}_{architecture}.deb")))
}

/// A .rpm.
///
/// # Panics
/// When it was not built.
#[must_use]
#[track_caller]
pub fn rpm(version: &str, architecture: &str) -> PathBuf {
    dist(folder(version).join(format!("{architecture}/gpu-ebpf-bridge-{version}-1.{architecture}.rpm")))
}

/// A tarball.
///
/// # Panics
/// When it was not built.
#[must_use]
#[track_caller]
pub fn tarball(architecture: &str) -> PathBuf {
    dist(folder(VERSION).join(format!("gpu-ebpf-bridge-{VERSION}-{architecture}.tar.gz")))
}

fn folder(version: &str) -> &'static Path {
    Path::new(if version == VERSION { "packages" } else { "upgrade" })
}

/// A tool that was installed for the tests.
///
/// # Panics
/// When it is missing.
#[must_use]
#[track_caller]
pub fn tool(path: &str) -> PathBuf {
    built(&Path::new("tools/deploy").join(path))
}

/// A file of the repository.
///
/// # Panics
/// When it is missing.
#[must_use]
#[track_caller]
pub fn source(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Cargo's target folder.
///
/// # Panics
/// When the test lies somewhere else.
#[must_use]
#[track_caller]
pub fn target() -> PathBuf {
    let test = env::current_exe().unwrap_or_else(|error| panic!("the path of this test: {error}"));
    test.ancestors().nth(3).unwrap_or_else(|| panic!("{} is not in a target folder", test.display())).to_owned()
}

#[track_caller]
fn built(path: &Path) -> PathBuf {
    let path = target().join(path);
    assert!(path.exists(), "{} is not there: `make test` fetches tools, `make test-deploy` builds what is delivered", path.display());
    path
}

/// The crates that a program lists (cargo-auditable), build dependencies among them.
///
/// # Panics
/// When it lists none.
#[must_use]
#[track_caller]
pub fn crates_in(program: &Path) -> Vec<Value> {
    let json = auditable_info::json_from_file(program, auditable_info::Limits::default());
    let json = json.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut list: Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    match list["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("{}: {other}", program.display()),
    }
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

/// Runs a command and gives what it prints.
///
/// # Panics
/// When it fails, with what it said.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let done = output(command);
    assert!(
        done.status.success(),
        "{command:?} failed, {}:\n{}{}",
        done.status,
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Runs a command that must fail, and gives all that it prints.
///
/// # Panics
/// When it succeeds.
#[track_caller]
pub fn fail(command: &mut Command) -> String {
    let done = output(command);
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(!done.status.success(), "{command:?} succeeded:\n{said}");
    said
}
