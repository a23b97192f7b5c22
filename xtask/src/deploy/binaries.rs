//! Release binaries that run on old systems: linked against the symbols of an old glibc, libelf and zlib built in.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{ARCHITECTURES, dist, needs, put, tools};
use crate::say::say;
use crate::{setup, shell};

/// RHEL 8's.
const GLIBC: &str = "2.28";

pub(super) const PROGRAMS: [&str; 2] = ["gpu-ebpf-bridge", "bridge-dump"];

pub(super) fn run() -> Result<()> {
    for architecture in ARCHITECTURES {
        let folder = build(architecture)?;
        say!("built {}", folder.display());
    }
    Ok(())
}

/// Builds the programs for a processor; gives the folder where they are.
///
/// # Errors
/// When something that is needed cannot be had, or they do not build.
pub(super) fn build(architecture: &str) -> Result<PathBuf> {
    setup::ensure()?;
    setup::ensure_all(needs::BUILDING)?;
    ensure_standard_library(architecture)?;

    let folder = dist()?.join(architecture);
    shell::run(&mut cargo(architecture)?)?;
    for program in PROGRAMS {
        let built = shell::target_dir()?.join(target(architecture)).join("release").join(program);
        put(&built, &folder.join(program), 0o755)?;
    }
    Ok(folder)
}

fn target(architecture: &str) -> String {
    format!("{architecture}-unknown-linux-gnu")
}

fn cargo(architecture: &str) -> Result<Command> {
    let target = target(architecture);
    let tools = tools::zigbuild()?;
    let path = env::join_paths([tools.clone()].into_iter().chain(env::split_paths(shell::search_path())))?;
    let mut cargo = shell::command(tools.join("cargo-zigbuild"));
    cargo.env("PATH", path).args(["zigbuild", "--release", "--locked", "--target"]).arg(format!("{target}.{GLIBC}"));
    // map-publisher is named for its dependency's feature, which builds libelf and zlib in.
    cargo.args(["--package", "bridge-cli", "--package", "bridge-dump", "--package", "map-publisher", "--features", "libbpf-rs/vendored"]);
    for program in PROGRAMS {
        cargo.args(["--bin", program]);
    }

    // The same binary wherever it is built: no path of this machine in it.
    let root = env::current_dir().context("cannot tell the current folder")?;
    let registry = cargo_home()?.join("registry/src");
    let mut flags = vec!["-Clink-arg=-Wl,--build-id=sha1".to_owned()];
    let mut c_flags = String::new();
    for (from, to) in [(&root, "/gpu-ebpf-bridge"), (&registry, "/registry")] {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        c_flags.push_str(&format!("-ffile-prefix-map={}={to} ", from.display()));
    }
    let flags = flags.iter().map(|flag| format!("{flag:?}")).collect::<Vec<_>>().join(",");
    cargo.arg("--config").arg(format!("target.{target}.rustflags=[{flags}]"));
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), c_flags.trim_end());
    cargo.env("SOURCE_DATE_EPOCH", "0");
    Ok(cargo)
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    Ok(Path::new(&env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?).join(".cargo"))
}

fn ensure_standard_library(architecture: &str) -> Result<()> {
    let target = target(architecture);
    let installed = || -> Result<bool> {
        let folder = super::output(shell::command("rustc").args(["--print", "target-libdir", "--target", &target]))?;
        Ok(Path::new(String::from_utf8_lossy(&folder).trim()).is_dir())
    };
    if installed()? {
        return Ok(());
    }
    if shell::find("rustup").is_none() {
        bail!("Rust's standard library for {target} is missing, and there is no rustup to install it");
    }
    shell::run(shell::command("rustup").args(["target", "add", &target]))
}
