//! A clean system to install packages in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;
use test_support::Bpffs;

use crate::artifacts::tool;

/// An overlay on the system that was unpacked once: what a test does in it is gone afterwards.
#[derive(Debug)]
pub struct Root {
    folder: TempDir,
    mounted: Vec<PathBuf>,
}

impl Root {
    /// The system's files alone.
    ///
    /// # Panics
    /// Without the privilege to mount.
    #[must_use]
    #[track_caller]
    pub fn bare() -> Self {
        let system = tool("bullseye");
        let folder = TempDir::with_prefix("clean-system-").unwrap_or_else(|error| panic!("a temporary folder: {error}"));
        let mut root = Self { folder, mounted: Vec::new() };
        for name in ["upper", "work", "root"] {
            fs::create_dir(root.folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let [upper, work] = ["upper", "work"].map(|name| root.folder.path().join(name));
        let options = format!("lowerdir={},upperdir={},workdir={}", system.display(), upper.display(), work.display());
        root.mount("overlay", "", Some("overlay"), MsFlags::empty(), Some(&options));
        root
    }

    /// With `/proc`, and with these pins at `/sys/fs/bpf`.
    ///
    /// # Panics
    /// Without the privilege to mount.
    #[must_use]
    #[track_caller]
    pub fn with(pins: &Bpffs) -> Self {
        let mut root = Self::bare();
        root.mount("proc", "proc", Some("proc"), MsFlags::empty(), None);
        let bpf = root.path().join("sys/fs/bpf");
        fs::create_dir_all(&bpf).unwrap_or_else(|error| panic!("{}: {error}", bpf.display()));
        root.mount(&pins.path().display().to_string(), "sys/fs/bpf", None, MsFlags::MS_BIND, None);
        root
    }

    #[track_caller]
    fn mount(&mut self, source: &str, at: &str, kind: Option<&str>, flags: MsFlags, options: Option<&str>) {
        let target = self.path().join(at);
        mount(Some(source), &target, kind, flags, options).unwrap_or_else(|error| panic!("cannot mount {}: {error}", target.display()));
        self.mounted.push(target);
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Puts a file into it.
    ///
    /// # Panics
    /// When that is not possible.
    #[track_caller]
    pub fn put(&self, from: &Path, to: &str) {
        let to = to.trim_start_matches('/');
        fs::copy(from, self.path().join(to)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }

    /// A command that runs in it.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command
            .arg(self.path())
            .args(words)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for target in self.mounted.iter().rev() {
            let unmounted = umount2(target, MntFlags::MNT_DETACH);
            assert!(unmounted.is_ok() || std::thread::panicking(), "cannot unmount {}: {unmounted:?}", target.display());
        }
    }
}
