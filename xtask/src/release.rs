//! `build`: the release binary at the top of the tree.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::say::say;
use crate::{setup, shell};

const BINARY: &str = "gpu-ebpf-bridge";

pub(crate) fn run() -> Result<()> {
    setup::ensure()?;
    shell::run(shell::cargo().args(["build", "--release", "--package", "bridge-cli", "--bin", BINARY]))?;
    let built = shell::target_dir()?.join("release").join(BINARY);
    // Copied beside and renamed over: the old file may be running.
    let fresh = Path::new(".").join(format!("{BINARY}.new"));
    fs::copy(&built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&fresh, BINARY).with_context(|| format!("cannot replace ./{BINARY}"))?;
    say!("built ./{BINARY}");
    Ok(())
}
