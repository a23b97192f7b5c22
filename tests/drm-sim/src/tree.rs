//! The directory that everything lies in.

use std::path::Path;

use tempfile::TempDir;

/// A directory with `sys/` and `proc/` in it, removed when dropped.
#[derive(Debug)]
pub struct Tree {
    root: TempDir,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A tree without any card or process.
    pub fn new() -> Self {
        let root = TempDir::new().expect("a directory for tests");
        for directory in ["sys/class/drm", "proc"] {
            std::fs::create_dir_all(root.path().join(directory)).expect("a directory in one's own");
        }
        Self { root }
    }

    /// What stands for `/`.
    pub fn root(&self) -> &Path {
        self.root.path()
    }
}
