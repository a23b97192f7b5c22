//! What was built for delivery, and running what tests it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The processors that there are binaries for.
pub const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// The programs that are delivered.
pub const PROGRAMS: [&str; 2] = ["gpu-ebpf-bridge", "bridge-dump"];

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

/// A program that is delivered, for this machine's processor.
///
/// # Panics
/// When it was not built.
#[must_use]
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    dist(Path::new(env::consts::ARCH).join(name))
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

#[track_caller]
fn built(path: &Path) -> PathBuf {
    let test = env::current_exe().unwrap_or_else(|error| panic!("the path of this test: {error}"));
    let target = test.ancestors().nth(3).unwrap_or_else(|| panic!("{} is not in a target folder", test.display()));
    let path = target.join(path);
    assert!(path.exists(), "{} is not there; `make test-deploy` builds it and runs these tests", path.display());
    path
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
