//! The BPF file system, mounted for as long as it is needed.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::say::{complain, say};
use crate::shell;

pub(crate) const PLACE: &str = "/sys/fs/bpf";

/// What a kernel with `CONFIG_BPF_PRELOAD` puts into every new one.
const KERNELS_OWN: [&str; 2] = ["maps.debug", "progs.debug"];

/// Keeps the BPF file system mounted; unmounts it when it was not there before.
#[derive(Debug)]
pub(crate) struct Mounted {
    is_ours: bool,
}

/// Mounts the BPF file system at its usual place, if it is not there. Needs root then.
///
/// # Errors
/// When this kernel has no such place, or mounting fails.
pub(crate) fn ensure() -> Result<Mounted> {
    if !Path::new(PLACE).is_dir() {
        bail!("there is no {PLACE}: this kernel has no BPF file system, or /sys is not mounted");
    }
    if statfs(PLACE).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC) {
        return Ok(Mounted { is_ours: false });
    }
    say!("{PLACE} is not mounted: mounting it for now");
    shell::run(shell::command("mount").args(["-t", "bpf", "bpf", PLACE]))?;
    Ok(Mounted { is_ours: true })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.is_ours {
            return;
        }
        if is_in_use() {
            say!("{PLACE} stays mounted: somebody else has pinned something there");
            return;
        }
        if let Err(error) = shell::run(shell::command("umount").arg(PLACE)) {
            complain!("xtask: {PLACE} stays mounted: {error:#}");
        }
    }
}

/// Whether something is pinned there: pins do not outlive their file system.
fn is_in_use() -> bool {
    let entries = fs::read_dir(PLACE).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| !KERNELS_OWN.iter().any(|name| entry.file_name() == *name))
}
