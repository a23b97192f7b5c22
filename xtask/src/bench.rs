//! `bench`: what the bridge costs, measured on release builds.

use std::ffi::OsString;

use anyhow::Result;

use crate::{setup, shell};

const PROGRAM: &str = "bench";

/// Passed on: `cargo xtask bench --help` tells of them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds what is measured and what measures it, and runs that as root.
///
/// # Errors
/// When something cannot be built or measured.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    // One after the other: built together, they would share the features that either wants of a crate, and the binary would be another.
    for package in ["bridge-cli", "bench"] {
        shell::run(shell::cargo().args(["build", "--release", "--package", package]))?;
    }
    let program = shell::target_dir()?.join("release").join(PROGRAM);
    shell::run(shell::privileged(program)?.args(&args.arguments))
}
