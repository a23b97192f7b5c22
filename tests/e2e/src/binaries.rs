//! The workspace's binaries, built in the same profile as the running program.

use std::env;
use std::path::{Path, PathBuf};

/// Path of a binary of this workspace.
///
/// # Panics
/// When it is not built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let path = profile_dir().join(name);
    assert!(path.exists(), "{} is not there: build it first, with `cargo build --workspace`", path.display());
    path
}

/// The folder of the profile that this program was built in (`target/debug`): tests lie in its `deps`, binaries in itself.
fn profile_dir() -> PathBuf {
    let program = env::current_exe().expect("the path of the running program");
    let folder = program.parent().expect("a program lies in a folder");
    let is_deps = folder.file_name().is_some_and(|name| name == "deps");
    if is_deps { folder.parent().unwrap_or(Path::new("/")).to_owned() } else { folder.to_owned() }
}
