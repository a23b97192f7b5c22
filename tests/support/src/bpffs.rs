//! A BPF file system for one test.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

/// Iterators of a kernel with `CONFIG_BPF_PRELOAD`.
const KERNELS_OWN: [&str; 2] = ["maps.debug", "progs.debug"];

/// A BPF file system, mounted in a temporary folder and unmounted at the end.
#[derive(Debug)]
pub struct Bpffs {
    folder: TempDir,
}

impl Bpffs {
    /// Mounts one that belongs to root and that every user can look into.
    ///
    /// # Panics
    /// Without the privilege to mount.
    #[must_use]
    #[track_caller]
    pub fn mount() -> Self {
        let folder = TempDir::with_prefix("bpffs-").expect("a temporary folder");
        mount(Some("bpf"), folder.path(), Some("bpf"), MsFlags::empty(), Some("mode=0755"))
            .unwrap_or_else(|error| panic!("cannot mount a BPF file system, this test needs root: {error}"));
        Self { folder }
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the map of this name is, or would be, pinned.
    #[must_use]
    pub fn pin(&self, map: &str) -> PathBuf {
        self.path().join(map)
    }

    /// The names of everything pinned here, see [`names`].
    ///
    /// # Panics
    /// When the folder cannot be read.
    #[must_use]
    #[track_caller]
    pub fn pins(&self) -> Vec<String> {
        names(self.path())
    }
}

/// The names of everything in a folder, sorted, without what some kernels put into every new BPF file system.
///
/// # Panics
/// When the folder cannot be read.
#[must_use]
#[track_caller]
pub fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !KERNELS_OWN.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        // Detached: a process that is just ending may still have it open.
        let unmounted = umount2(self.folder.path(), MntFlags::MNT_DETACH);
        assert!(unmounted.is_ok() || std::thread::panicking(), "cannot unmount {}: {unmounted:?}", self.path().display());
    }
}
