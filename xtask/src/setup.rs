//! `setup`: installs what building and testing need and this machine lacks.

use anyhow::{Context as _, Result, bail};

use crate::needs::{self, NEEDS, Need};
use crate::say::say;
use crate::shell::{self, find, privileged, succeeds};

/// Installs what is missing, or says that nothing is.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn run() -> Result<()> {
    ensure()?;
    say!("setup: all there");
    Ok(())
}

/// Lists what is missing.
///
/// # Errors
/// When something is.
pub(crate) fn list() -> Result<()> {
    let missing = needs::missing(NEEDS);
    describe(&missing);
    if !missing.is_empty() {
        bail!("{} missing; `cargo xtask setup` installs them", missing.len());
    }
    say!("setup: all there");
    Ok(())
}

/// Installs what is missing. Quick and silent when nothing is.
///
/// # Errors
/// When a package manager or root is lacking, or something is missing even afterwards.
pub(crate) fn ensure() -> Result<()> {
    ensure_all(NEEDS)
}

/// The same for needs that only some commands have.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn ensure_all(needs: &'static [Need]) -> Result<()> {
    let missing = needs::missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    describe(&missing);
    install(&missing).context("cannot install what is missing")?;

    let missing = needs::missing(needs);
    if !missing.is_empty() {
        describe(&missing);
        bail!("still missing after the installation; install it by hand and try again");
    }
    Ok(())
}

fn describe(missing: &[&Need]) {
    for need in missing {
        say!("setup: missing: {} ({})", need.what, need.why);
    }
}

fn install(missing: &[&Need]) -> Result<()> {
    if find("apt-get").is_some() {
        shell::run(privileged("apt-get")?.args(["update", "--quiet=2"]))?;
        let packages = missing.iter().flat_map(|need| need.apt).map(|alternatives| first_available(alternatives));
        let arguments = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet", "--no-install-recommends"];
        shell::run(privileged("env")?.args(arguments).args(packages))
    } else if find("dnf").is_some() {
        let packages = missing.iter().flat_map(|need| need.dnf);
        shell::run(privileged("dnf")?.args(["install", "--assumeyes"]).args(packages))
    } else {
        bail!("neither apt-get nor dnf is here: install what is listed above with this system's package manager")
    }
}

/// The first of some package names that this release has; the last when it seems to have none, for apt to say so.
fn first_available<'a>(alternatives: &[&'a str]) -> &'a str {
    let known = |package: &&&str| succeeds(shell::command("apt-cache").args(["show", "--quiet", package]));
    alternatives.iter().find(known).or(alternatives.last()).copied().unwrap_or_default()
}
