//! What is delivered: release binaries for old systems, the container image, packages, manuals, Kubernetes manifests, and the tests of all that.

mod binaries;
mod chart;
mod image;
mod manual;
mod needs;
mod package;
mod reproduce;
mod sbom;
mod test;
mod tools;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use crate::shell;

pub(crate) use test::prepare_judges;

/// What can be made for delivery.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Release binaries that run on glibc 2.28 and newer, for 64-bit x86 and ARM: target/dist/*/
    Binaries,
    /// The container image, with docker, podman or buildah
    Image(image::Args),
    /// A .deb, a .rpm and a tarball for each architecture: target/dist/packages/
    Package(package::Args),
    /// Regenerate the man pages and shell completions in deploy/manual
    Manual {
        /// Only compare them with what is checked in
        #[arg(long)]
        check: bool,
    },
    /// Regenerate the manifests in deploy/kubernetes from the chart
    Manifests {
        /// Only compare them with what is checked in
        #[arg(long)]
        check: bool,
    },
    /// All of the above that is built, and its tests
    Test,
}

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Binaries => binaries::run(),
        Command::Image(args) => image::run(&args),
        Command::Package(args) => package::run(&args),
        Command::Manual { check } => manual::run(check),
        Command::Manifests { check } => chart::run(check),
        Command::Test => test::run(),
    }
}

/// The processors that there are binaries for, as Rust calls them.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where everything for delivery is put.
fn dist() -> Result<PathBuf> {
    Ok(shell::target_dir()?.join("dist"))
}

/// The commit that is built, with `-dirty` when the tree differs from it; `unknown` outside of a clone.
fn revision() -> String {
    let described = shell::command("git").args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]).output();
    let described = described.ok().filter(|output| output.status.success());
    described.map_or_else(|| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The time of that commit in seconds since 1970, which everything in packages and images bears: they are the same whenever they are built.
fn source_date() -> String {
    const FIRST_RELEASE: &str = "1767225600";
    let asked = shell::command("git").args(["log", "-1", "--format=%ct"]).output();
    let asked = asked.ok().filter(|output| output.status.success()).map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    asked.filter(|date| !date.is_empty()).unwrap_or_else(|| FIRST_RELEASE.to_owned())
}

/// An empty folder in the place of what was there.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Copies a file, following links, with its folders and these permissions.
fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let text = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write(to, &text, mode)
}

fn write(to: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    fs::write(to, content).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(|| format!("cannot set the permissions of {}", to.display()))
}

/// What a command prints.
fn output(command: &mut Process) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {}", shell::name(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}: {}", shell::name(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
