//! A file system that can be frozen: whoever writes to it then sleeps where not even SIGKILL reaches.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, umount2};
use tempfile::TempDir;

/// An ext4 file system in a file, mounted through a loop device. Thawed and unmounted at the end.
#[derive(Debug)]
pub struct Freezer {
    folder: TempDir,
}

impl Freezer {
    /// Makes and mounts one.
    ///
    /// # Panics
    /// Without root, e2fsprogs or a loop device.
    #[must_use]
    pub fn mount() -> Self {
        let folder = TempDir::with_prefix("freezer-").expect("a temporary folder");
        let freezer = Self { folder };
        let image = freezer.folder.path().join("image");
        File::create(&image).and_then(|image| image.set_len(16 << 20)).expect("an image");
        std::fs::create_dir(freezer.path()).expect("a folder");
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(freezer.path()));
        freezer
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// From now on writers sleep.
    pub fn freeze(&self) {
        run(Command::new("fsfreeze").arg("-f").arg(self.path()));
    }

    /// They go on.
    pub fn thaw(&self) {
        run(Command::new("fsfreeze").arg("-u").arg(self.path()));
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // It may not be frozen; those who slept on it may end a moment later.
        drop(Command::new("fsfreeze").arg("-u").arg(self.path()).output());
        umount2(Path::new(&self.path()), MntFlags::MNT_DETACH).ok();
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
