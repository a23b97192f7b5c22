//! Release binaries that run on old systems: linked against the symbols of an old glibc, libelf and zlib built in, and with the list of the crates
//! that are in them.

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

/// The packages that are built. map-publisher is named for its dependency's feature, which builds libelf and zlib in.
pub(super) const SELECTION: [&str; 8] =
    ["--package", "bridge-cli", "--package", "bridge-dump", "--package", "map-publisher", "--features", "libbpf-rs/vendored"];

/// Where the sources are, and where cargo puts and keeps what it makes and fetches. None of it shows in the binaries.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) root: PathBuf,
    pub(super) target: PathBuf,
    pub(super) cargo_home: PathBuf,
}

impl Place {
    /// This tree.
    pub(super) fn here() -> Result<Self> {
        let root = env::current_dir().context("cannot tell the current folder")?.canonicalize().context("this folder is gone")?;
        Ok(Self { root, target: shell::target_dir()?, cargo_home: cargo_home()? })
    }
}

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
    let folder = dist()?.join(architecture);
    build_at(&Place::here()?, architecture, &folder)?;
    Ok(folder)
}

/// The same of the sources in a place, into a folder.
pub(super) fn build_at(place: &Place, architecture: &str, folder: &Path) -> Result<()> {
    setup::ensure()?;
    setup::ensure_all(needs::BUILDING)?;
    ensure_standard_library(architecture)?;

    let mut cargo = cargo(place, architecture)?;
    cargo.args(SELECTION);
    for program in PROGRAMS {
        cargo.args(["--bin", program]);
    }
    shell::run(&mut cargo)?;
    for program in PROGRAMS {
        put(&place.target.join(target(architecture)).join("release").join(program), &folder.join(program), 0o755)?;
    }
    Ok(())
}

/// The simulated NVML for systems as old as those that the programs run on, for tests; gives its path.
pub(super) fn build_simulated_nvml() -> Result<PathBuf> {
    let architecture = env::consts::ARCH;
    let place = Place::here()?;
    shell::run(cargo(&place, architecture)?.args(["--package", "nvml-sim", "--lib"]))?;
    let library = dist()?.join("tests/libnvml_sim.so");
    put(&place.target.join(target(architecture)).join("release/libnvml_sim.so"), &library, 0o644)?;
    Ok(library)
}

/// As Rust calls it.
pub(super) fn target(architecture: &str) -> String {
    format!("{architecture}-unknown-linux-gnu")
}

fn cargo(place: &Place, architecture: &str) -> Result<Command> {
    let target = target(architecture);
    let zig = tools::zigbuild()?;
    let path = env::join_paths([zig].into_iter().chain(env::split_paths(shell::search_path())))?;
    let mut cargo = shell::command(tools::auditable()?);
    cargo.current_dir(&place.root).env("PATH", path).env("CARGO_TARGET_DIR", &place.target).env("CARGO_HOME", &place.cargo_home);
    cargo.args(["auditable", "zigbuild", "--release", "--locked", "--target"]).arg(format!("{target}.{GLIBC}"));

    // The same binary wherever it is built: no path of this machine in it.
    let mut flags = vec!["-Clink-arg=-Wl,--build-id=sha1".to_owned()];
    let mut c_flags = String::new();
    let registry = place.cargo_home.join("registry/src");
    for (from, to) in [(&place.root, "/gpu-ebpf-bridge"), (&registry, "/registry"), (&place.target, "/target")] {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        c_flags.push_str(&format!("-ffile-prefix-map={}={to} ", from.display()));
    }
    let flags = flags.iter().map(|flag| format!("{flag:?}")).collect::<Vec<_>>().join(",");
    cargo.arg("--config").arg(format!("target.{target}.rustflags=[{flags}]"));
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), c_flags.trim_end());
    cargo.env("SOURCE_DATE_EPOCH", "0");
    Ok(cargo)
}

pub(super) fn cargo_home() -> Result<PathBuf> {
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
