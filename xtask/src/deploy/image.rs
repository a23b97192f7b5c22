//! The container image: a root folder with the programs and what they need, and `deploy/Containerfile` around it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{VERSION, binaries, dist, fresh, put, revision, sbom, write};
use crate::say::say;
use crate::shell::{self, find, succeeds};

/// How the image is to be made.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image's name
    #[arg(long, default_value_t = format!("gpu-ebpf-bridge:{VERSION}"))]
    tag: String,
    /// What the bridge is put on, instead of the loader and the C library alone; an image with glibc 2.28 or newer
    #[arg(long)]
    base: Option<String>,
    /// docker, podman or buildah [default: the first of them that works]
    #[arg(long)]
    engine: Option<String>,
}

impl Args {
    /// What the tests run.
    pub(super) fn for_tests(engine: &str) -> Self {
        Self { tag: "localhost/gpu-ebpf-bridge:test".to_owned(), base: None, engine: Some(engine.to_owned()) }
    }
}

/// For the processor of this machine, whose C library the image gets.
pub(super) fn run(args: &Args) -> Result<()> {
    let engine = match &args.engine {
        Some(engine) => engine.as_str(),
        None => engine()?,
    };
    let context = dist()?.join("image");
    prepare(&context, &binaries::build(std::env::consts::ARCH)?, args.base.is_none())?;

    let mut build = shell::privileged(engine)?;
    build.arg("build");
    if engine == "buildah" {
        // Nothing is run while building, so no more than this is needed, also in a container.
        build.args(["--isolation", "chroot"]);
    }
    build.args(["--file", "deploy/Containerfile", "--tag", &args.tag]);
    for (name, value) in
        [("VERSION", VERSION), ("REVISION", &revision())].into_iter().chain(args.base.as_deref().map(|base| ("BASE", base)))
    {
        build.arg("--build-arg").arg(format!("{name}={value}"));
    }
    shell::run(build.arg(&context))?;
    say!("built the image {}", args.tag);
    Ok(())
}

fn engine() -> Result<&'static str> {
    const ENGINES: [(&str, &str); 3] = [("docker", "info"), ("podman", "info"), ("buildah", "version")];
    let works = |(engine, question): &(&str, &str)| {
        find(engine).is_some() && shell::privileged(engine).is_ok_and(|mut engine| succeeds(engine.arg(question)))
    };
    match ENGINES.iter().find(|engine| works(engine)) {
        Some((engine, _)) => Ok(engine),
        None => bail!(
            "neither docker, podman nor buildah works here: install one of them (Debian, Ubuntu: apt-get install buildah; Fedora, RHEL: dnf install buildah)"
        ),
    }
}

/// The build context: a root folder with the bridge, and with what a program needs of a system.
fn prepare(context: &Path, programs: &Path, with_system: bool) -> Result<()> {
    fresh(context)?;
    let root = context.join("root");
    let besides = if with_system { prepare_system(&root, programs)? } else { Vec::new() };
    for program in binaries::PROGRAMS {
        put(&programs.join(program), &root.join("usr/bin").join(program), 0o755)?;
    }
    sbom::write_for(programs, std::env::consts::ARCH, besides, &root.join(sbom::INSTALLED))?;
    put(Path::new("LICENSE"), &root.join("usr/share/doc/gpu-ebpf-bridge/LICENSE"), 0o644)
}

/// Gives the packages that it takes files from.
fn prepare_system(system: &Path, programs: &Path) -> Result<Vec<sbom::Component>> {
    let files = libraries(&programs.join("gpu-ebpf-bridge"))?;
    for (file, to) in &files {
        put(file, &system.join(to.strip_prefix("/")?), 0o755)?;
    }
    // By this file NVIDIA's container toolkit tells where to mount the driver's libraries: where Debian's loader looks.
    write(&system.join("etc/debian_version"), b"12.0\n", 0o644)?;
    write(&system.join("etc/passwd"), b"root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n", 0o644)?;
    write(&system.join("etc/group"), b"root:x:0:\nnogroup:x:65534:\n", 0o644)?;
    sbom::packages_of(&files.into_iter().map(|(file, _)| file).collect::<Vec<_>>())
}

/// The loader and the libraries: those of the program, and those that NVIDIA's libraries are known to need. Each with the path that it gets.
fn libraries(program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    const OF_THE_DRIVER: [&str; 6] = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"];
    let loader = loader()?;
    let listed = super::output(Command::new(&loader).arg("--list").arg(program))?;
    let listed = String::from_utf8(listed).context("a library's path is not UTF-8")?;
    let mut found: Vec<PathBuf> =
        listed.lines().filter_map(|line| line.split_whitespace().nth(2)).map(PathBuf::from).filter(|path| path.is_absolute()).collect();
    let folder = found.first().and_then(|path| path.parent()).context("the program needs no library")?.to_owned();
    for library in OF_THE_DRIVER {
        if !found.iter().any(|path| path.ends_with(library)) {
            found.push(folder.join(library));
        }
    }
    found.retain(|path| !path.ends_with(loader.file_name().unwrap_or_default()));
    let mut files: Vec<_> = found.into_iter().map(|path| (path.clone(), path)).collect();
    files.push((fs::canonicalize(&loader)?, loader));
    Ok(files)
}

/// Where every program of this processor looks for it.
fn loader() -> Result<PathBuf> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("/lib64/ld-linux-x86-64.so.2".into()),
        "aarch64" => Ok("/lib/ld-linux-aarch64.so.1".into()),
        other => bail!("no image for {other}"),
    }
}
