//! `bench` and `soak`: programs of the workspace that run as root against the release build of the bridge.

use std::ffi::OsString;

use anyhow::Result;

use crate::{setup, shell};

/// Passed on: `cargo xtask bench --help` and `cargo xtask soak --help` list them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds `packages`, then the package `program`, and runs its binary of the same name as root.
///
/// # Errors
/// When something cannot be built, or the program fails.
pub(crate) fn run(program: &str, packages: &[&str], args: &Args) -> Result<()> {
    setup::ensure()?;
    // One after the other: built together, they would share the features that any of them wants of a crate, and the bridge would be another.
    for package in packages.iter().chain([&program]) {
        shell::run(shell::cargo().args(["build", "--release", "--package", package]))?;
    }
    let binary = shell::target_dir()?.join("release").join(program);
    shell::run(shell::privileged(binary)?.args(&args.arguments))
}
