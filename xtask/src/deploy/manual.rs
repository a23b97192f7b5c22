//! Man pages and completions, generated from the definitions of the flags.

use anyhow::Result;

use crate::shell;

/// Where they are checked in.
pub(super) const FOLDER: &str = "deploy/manual";

/// xtask itself must build where libelf is missing, so the programs' crates are another program's dependencies.
pub(super) fn run(check: bool) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(["run", "--quiet", "--package", "deploy", "--bin", "manual", "--", FOLDER]);
    if check {
        cargo.arg("--check");
    }
    shell::run(&mut cargo)
}
