//! `soak`: the bridge under everything at once, for minutes or hours, as release builds.

use std::ffi::OsString;

use anyhow::Result;

use crate::{setup, shell};

const PROGRAM: &str = "soak";

/// Passed on: `cargo xtask soak --help` tells of them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the bridge and what torments it, and runs that as root.
///
/// # Errors
/// When something cannot be built, or is found.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    // One after the other: built together, they would share the features that either wants of a crate, and the bridge would be another.
    for package in ["bridge-cli", "consumers", PROGRAM] {
        shell::run(shell::cargo().args(["build", "--release", "--package", package]))?;
    }
    let program = shell::target_dir()?.join("release").join(PROGRAM);
    shell::run(shell::privileged(program)?.args(&args.arguments))
}
