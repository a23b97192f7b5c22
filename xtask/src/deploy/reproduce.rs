//! The release once more, of a copy of the sources elsewhere: what is delivered must not tell where and when it was built.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::binaries::{self, Place};
use super::{dist, fresh, output, package};
use crate::say::say;
use crate::shell;

/// Builds for this machine's processor what the tests compare: `target/dist/again` has what `target/dist` has.
pub(super) fn run() -> Result<()> {
    let elsewhere = tempfile::Builder::new().prefix("built-elsewhere-").tempdir().context("cannot make a temporary folder")?;
    let place = Place {
        root: elsewhere.path().join("a/clone"),
        target: elsewhere.path().join("objects"),
        cargo_home: elsewhere.path().join("home/cargo"),
    };
    copy_sources(&place.root)?;
    link_registry(&place.cargo_home)?;

    let again = dist()?.join("again");
    fresh(&again)?;
    say!("deploy: building the release a second time, elsewhere");
    binaries::build_at(&place, env::consts::ARCH, &again.join(env::consts::ARCH))?;
    package::make_all(&package::Args::for_tests(), &again, &[env::consts::ARCH])
}

/// What git knows, as it is now, and what is new.
fn copy_sources(to: &Path) -> Result<()> {
    let files = output(shell::command("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    for file in String::from_utf8(files).context("a file's name is not UTF-8")?.split_terminator('\0') {
        let (from, to) = (Path::new(file), to.join(file));
        let copy = || -> std::io::Result<()> {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            match fs::symlink_metadata(from) {
                Ok(kind) if kind.is_symlink() => symlink(fs::read_link(from)?, &to),
                Ok(_) => fs::copy(from, &to).map(drop),
                // Removed and not yet committed.
                Err(_) => Ok(()),
            }
        };
        copy().with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

/// Another cargo home with the same crates and settings in it.
fn link_registry(to: &Path) -> Result<()> {
    let home = binaries::cargo_home()?;
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for name in ["registry", "git", "config.toml", "config"] {
        let from = home.join(name);
        if from.exists() {
            symlink(&from, to.join(name)).with_context(|| format!("cannot link {}", from.display()))?;
        }
    }
    Ok(())
}
