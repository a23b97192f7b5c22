//! A BPF file system for one test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

/// Mounted in a directory of its own until it is dropped.
pub(crate) struct Bpffs {
    dir: TempDir,
    root: PathBuf,
}

impl Bpffs {
    #[track_caller]
    pub(crate) fn mount() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Other users come in, too, for the tests of privileges.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let root = dir.path().join("bpf");
        fs::create_dir(&root).unwrap();
        mount(Some("bpf"), &root, Some("bpf"), MsFlags::empty(), Some("mode=0755"))
            .unwrap_or_else(|error| panic!("cannot mount a BPF file system ({error}): these tests need root"));
        Self { dir, root }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A directory beside it, on an ordinary file system.
    pub(crate) fn outside(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.root)
    }
}

/// What is in a directory, sorted; `maps.debug` and `progs.debug`, which the kernel puts into the root of a mount, aside.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".debug"));
    names.sort();
    names
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        umount2(&self.root, MntFlags::MNT_DETACH).unwrap();
    }
}
