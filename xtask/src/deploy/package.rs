//! Packages: one tree of files, as a .deb, a .rpm and a tarball.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{ARCHITECTURES, VERSION, binaries, dist, fresh, manual, output, put, sbom, source_date, write};
use crate::say::say;
use crate::{setup, shell};

const NAME: &str = "gpu-ebpf-bridge";
const SUMMARY: &str = "GPU telemetry in pinned BPF maps";
/// A version above the one that is built, for the test of an upgrade.
const NEXT_VERSION: &str = "99.0.0";

/// Another processor's name for dpkg and for rpm.
fn names(architecture: &str) -> (&'static str, &'static str) {
    match architecture {
        "aarch64" => ("arm64", "aarch64"),
        _ => ("amd64", "x86_64"),
    }
}

/// How the packages are to be made.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who answers for them, a name and an address in angle brackets [default: DEBFULLNAME and DEBEMAIL of the environment; else nobody]
    #[arg(long)]
    maintainer: Option<String>,
}

impl Args {
    /// What the tests look at.
    pub(super) fn for_tests() -> Self {
        Self { maintainer: None }
    }

    /// Who builds packages for others says so; what somebody builds for themselves names no address where nobody would answer.
    fn maintainer(&self) -> String {
        const NOBODY: &str = "Built locally <nobody@gpu-ebpf-bridge.invalid>";
        let named = || Some(format!("{} <{}>", std::env::var("DEBFULLNAME").ok()?, std::env::var("DEBEMAIL").ok()?));
        self.maintainer.clone().or_else(named).unwrap_or_else(|| NOBODY.to_owned())
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    for architecture in ARCHITECTURES {
        binaries::build(architecture)?;
    }
    make_all(args, &dist()?, &ARCHITECTURES)
}

/// Of binaries that are built already, in a folder as target/dist.
pub(super) fn make_all(args: &Args, dist: &Path, architectures: &[&str]) -> Result<()> {
    setup::ensure_all(super::needs::BUILDING)?;
    let maintainer = args.maintainer();
    let folder = dist.join("packages");
    fresh(&folder)?;
    for architecture in architectures {
        let tree = dist.join(architecture).join("tree");
        stage(&tree, &dist.join(architecture), architecture)?;
        deb(&tree, architecture, VERSION, &maintainer, &folder)?;
        rpm(&tree, architecture, VERSION, &maintainer, &folder)?;
        tarball(&tree, architecture, &folder)?;
    }
    say!("packages are in {}", folder.display());
    Ok(())
}

/// The next version's, of this machine's processor, for the tests of an upgrade.
pub(super) fn make_next() -> Result<()> {
    let (dist, architecture) = (dist()?, std::env::consts::ARCH);
    let (tree, folder) = (dist.join(architecture).join("tree"), dist.join("upgrade"));
    let maintainer = Args::for_tests().maintainer();
    fresh(&folder)?;
    deb(&tree, architecture, NEXT_VERSION, &maintainer, &folder)?;
    rpm(&tree, architecture, NEXT_VERSION, &maintainer, &folder)
}

/// The files where they are installed.
fn stage(tree: &Path, programs: &Path, architecture: &str) -> Result<()> {
    fresh(tree)?;
    let install = |from: &str, to: &str, mode| put(Path::new(from), &tree.join(to), mode);
    for program in binaries::PROGRAMS {
        put(&programs.join(program), &tree.join("usr/bin").join(program), 0o755)?;
        let page = format!("{program}.8");
        compressed(&Path::new(manual::FOLDER).join(&page), &tree.join(format!("usr/share/man/man8/{page}.gz")))?;
        install(&format!("{}/{program}.bash", manual::FOLDER), &format!("usr/share/bash-completion/completions/{program}"), 0o644)?;
        install(&format!("{}/_{program}", manual::FOLDER), &format!("usr/share/zsh/vendor-completions/_{program}"), 0o644)?;
        install(&format!("{}/{program}.fish", manual::FOLDER), &format!("usr/share/fish/vendor_completions.d/{program}.fish"), 0o644)?;
    }
    install("deploy/systemd/gpu-ebpf-bridge.service", "usr/lib/systemd/system/gpu-ebpf-bridge.service", 0o644)?;
    install("deploy/systemd/after-stop", "usr/lib/gpu-ebpf-bridge/after-stop", 0o755)?;
    let drop_in = "processes-of-other-vendors.conf";
    install(&format!("deploy/systemd/{drop_in}"), &format!("usr/lib/gpu-ebpf-bridge/{drop_in}"), 0o644)?;
    install("deploy/systemd/gpu-ebpf-bridge.default", "etc/default/gpu-ebpf-bridge", 0o644)?;
    for header in ["gpu_types.h", "gpu_bridge_maps.h"] {
        install(&format!("include/gadget/{header}"), &format!("usr/include/gadget/{header}"), 0o644)?;
    }
    install("README.md", "usr/share/doc/gpu-ebpf-bridge/README.md", 0o644)?;
    compressed(Path::new("CHANGELOG.md"), &tree.join("usr/share/doc/gpu-ebpf-bridge/changelog.gz"))?;
    install("LICENSE", "usr/share/doc/gpu-ebpf-bridge/LICENSE", 0o644)?;
    install("deploy/debian/copyright", "usr/share/doc/gpu-ebpf-bridge/copyright", 0o644)?;
    sbom::write_for(programs, architecture, Vec::new(), &tree.join(sbom::INSTALLED))?;
    for page in files_of(Path::new("docs"))? {
        put(&Path::new("docs").join(&page), &tree.join("usr/share/doc/gpu-ebpf-bridge/docs").join(&page), 0o644)?;
    }
    Ok(())
}

fn compressed(from: &Path, to: &Path) -> Result<()> {
    let text = output(shell::command("gzip").args(["-9", "--no-name", "--stdout"]).arg(from))?;
    write(to, &text, 0o644)
}

fn deb(tree: &Path, architecture: &str, version: &str, maintainer: &str, folder: &Path) -> Result<()> {
    let (debian, _) = names(architecture);
    let root = tree.with_file_name("deb");
    fresh(&root)?;
    shell::run(shell::command("cp").arg("--archive").arg(tree.join(".")).arg(&root))?;

    let mut size_kib = 0;
    let mut sums = String::new();
    let mut files = files_of(tree)?;
    files.sort();
    for file in &files {
        size_kib += fs::metadata(tree.join(file))?.len().div_ceil(1024);
        let sum = output(shell::command("md5sum").current_dir(tree).arg(file))?;
        sums.push_str(&String::from_utf8_lossy(&sum));
    }
    let control = format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {debian}\nMaintainer: {maintainer}\nInstalled-Size: {size_kib}\n\
         Depends: libc6 (>= 2.28)\nSuggests: nvidia-modprobe\nSection: admin\nPriority: optional\n\
         Homepage: https://github.com/gpu-ebpf-bridge/gpu-ebpf-bridge\n\
         Description: {SUMMARY}\n\
         \x20Reads the telemetry of NVIDIA, AMD and Intel GPUs and keeps it fresh in pinned\n\
         \x20BPF maps, so that any eBPF program can tell with one lookup what the GPU was\n\
         \x20doing for a process. Waits where there is no GPU.\n"
    );
    write(&root.join("DEBIAN/control"), control.as_bytes(), 0o644)?;
    write(&root.join("DEBIAN/conffiles"), b"/etc/default/gpu-ebpf-bridge\n", 0o644)?;
    write(&root.join("DEBIAN/md5sums"), sums.as_bytes(), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        put(&Path::new("deploy/debian").join(script), &root.join("DEBIAN").join(script), 0o755)?;
    }
    fs::create_dir_all(folder)?;
    let file = folder.join(format!("{NAME}_{version}_{debian}.deb"));
    shell::run(
        shell::command("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(&root)
            .arg(file)
            .env("SOURCE_DATE_EPOCH", source_date()),
    )
}

fn rpm(tree: &Path, architecture: &str, version: &str, maintainer: &str, folder: &Path) -> Result<()> {
    let (_, processor) = names(architecture);
    let top = tree.with_file_name("rpm");
    fresh(&top)?;
    let spec = fs::read_to_string("deploy/rpm/gpu-ebpf-bridge.spec").context("cannot read the spec file")?;
    write(&top.join("gpu-ebpf-bridge.spec"), spec.as_bytes(), 0o644)?;
    let define = |name: &str, value: &Path| format!("{name} {}", value.display());
    let mut rpmbuild = shell::command("rpmbuild");
    rpmbuild.env("SOURCE_DATE_EPOCH", source_date());
    rpmbuild.args(["-bb", "--quiet", "--target"]).arg(format!("{processor}-linux"));
    for setting in [
        define("_topdir", &fs::canonicalize(&top)?),
        define("_rpmdir", &fs::canonicalize(folder)?),
        define("staged", &fs::canonicalize(tree)?),
        format!("bridge_version {version}"),
        format!("packager {maintainer}"),
    ] {
        rpmbuild.args(["--define", &setting]);
    }
    shell::run(rpmbuild.arg(top.join("gpu-ebpf-bridge.spec")))
}

fn tarball(tree: &Path, architecture: &str, folder: &Path) -> Result<()> {
    let file = folder.join(format!("{NAME}-{VERSION}-{architecture}.tar.gz"));
    let prefix = format!("s,^\\.,{NAME}-{VERSION}-{architecture},");
    shell::run(
        shell::command("tar")
            .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--use-compress-program=gzip -9 --no-name"])
            .arg(format!("--transform={prefix}"))
            .arg(format!("--mtime=@{}", source_date()))
            .arg("--file")
            .arg(file)
            .arg("--directory")
            .arg(tree)
            .arg("."),
    )
}

/// Relative to the folder.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(folder)?.to_owned());
            }
        }
    }
    Ok(files)
}
