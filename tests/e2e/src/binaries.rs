//! The workspace's binaries, built in the same profile as the running test.

use std::env;
use std::path::PathBuf;

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

/// The folder of the profile that the test runs in (`target/debug`): tests lie in its `deps`.
pub(crate) fn profile_dir() -> PathBuf {
    let test = env::current_exe().expect("the path of the test binary");
    test.ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "deps"))
        .and_then(|deps| deps.parent())
        .map_or_else(|| panic!("{} is not in a target folder's deps", test.display()), PathBuf::from)
}
