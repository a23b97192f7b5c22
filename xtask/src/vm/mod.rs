//! `vm` and `test-kernels`: the built binaries and their tests on other kernels than this machine's.
//!
//! Debian's kernels come from the mirror that apt is configured with, and run in qemu without hardware virtualization: a minute or two each.

mod image;
mod kernel;
mod machine;
mod plan;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::say::say;
use crate::shell::{self, find, privileged};
use image::Image;
use kernel::Version;
use machine::{Machine, Outcome};
use plan::Built;

/// Kernel and CPUs of each machine that `test-kernels` runs. The last is there for the demand that nothing be lost with many CPUs.
const MACHINES: &[(&str, u32)] = &[("5.10", 1), ("6.1", 1), ("6.12", 1), ("6.1", 48)];

/// Why kernel tests could not be run, where that is no fault of the tree.
#[derive(Debug, thiserror::Error)]
#[error("kernel tests not run: {0}")]
pub(crate) struct NotRun(String);

impl NotRun {
    /// The exit status that says so: neither 0 nor 1, and what other test runners use for it.
    pub(crate) const EXIT_STATUS: u8 = 77;
}

/// One virtual machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kernel's version, for example 5.10, 6.1 or 6.12: one that Debian has
    #[arg(long)]
    kernel: Version,
    /// How many CPUs. Only with one the time inside does not depend on how busy this machine is; with more than 8 only what is about many CPUs
    /// is run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=240))]
    smp: u32,
    /// Run only what has this in its name
    #[arg(long)]
    only: Option<String>,
}

/// Runs the tests on one kernel.
///
/// # Errors
/// When one of them fails, or ([`NotRun`]) when the machine cannot be had.
pub(crate) fn run(args: &Args) -> Result<()> {
    prepare()?;
    let kernel = kernel::get(args.kernel, &folder()?)?;
    let failed = boot(&kernel, args.smp, args.only.as_deref(), &Built::build()?)?;
    conclude(&failed)
}

/// Runs the tests on every kernel of [`MACHINES`].
///
/// # Errors
/// As [`run`]. Kernels that can be had are run, whatever becomes of the others.
pub(crate) fn test_kernels() -> Result<()> {
    prepare()?;
    let (folder, built) = (folder()?, Built::build()?);
    let (mut lines, mut failed, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (version, smp) in MACHINES {
        let name = format!("{version} with {smp} CPUs");
        let start = Instant::now();
        let result = match version.parse().map_err(anyhow::Error::msg).and_then(|version| kernel::get(version, &folder)) {
            Ok(kernel) => boot(&kernel, *smp, None, &built)?,
            Err(error) => {
                let reason = error.downcast::<NotRun>()?.0;
                lines.push(format!("{name:<20} not run: {reason}"));
                missing.push(reason);
                continue;
            }
        };
        let word = if result.is_empty() { "passed".to_owned() } else { format!("FAILED: {}", result.join(", ")) };
        lines.push(format!("{name:<20}{:>7.1} s  {word}", start.elapsed().as_secs_f64()));
        failed.extend(result);
    }
    say!("\n== summary");
    for line in lines {
        say!("{line}");
    }
    conclude(&failed)?;
    match missing.into_iter().next() {
        Some(reason) => Err(NotRun(reason).into()),
        None => Ok(()),
    }
}

/// Boots the kernel and runs the plan; returns what failed.
fn boot(kernel: &kernel::Kernel, smp: u32, only: Option<&str>, built: &Built) -> Result<Vec<String>> {
    let programs: Vec<_> =
        built.programs(kernel.version, smp).into_iter().filter(|program| only.is_none_or(|only| program.name.contains(only))).collect();
    if programs.is_empty() {
        bail!("nothing to run is called {:?}", only.unwrap_or_default());
    }

    let folder = folder()?;
    let mut image = Image::new();
    image.program(&find("busybox").context("busybox has vanished")?, "/bin/busybox")?;
    image.link("/init", "/bin/busybox");
    image.text("/etc/inittab", "::sysinit:/run\n".into());
    image.script("/run", fs::read_to_string("tests/vm/init.sh").context("cannot read tests/vm/init.sh")?);
    image.text("/plan", plan::text(&programs)?);
    for tool in ["bpftool", "setpriv"] {
        let path = find(tool).with_context(|| format!("{tool} is needed by the tests and not here: cargo xtask setup"))?;
        image.program(&path, format!("/tools/{tool}"))?;
    }
    for file in built.files() {
        image.program(file, file)?;
    }
    let initramfs = folder.join(format!("{}-{smp}.cpio", kernel.version));
    image.write(&initramfs)?;

    say!("\n== {} with {smp} CPUs", kernel.package);
    let machine = Machine { kernel: &kernel.image, initramfs: &initramfs, smp, console_log: &initramfs.with_extension("log") };
    let outcomes = machine.run(&programs);
    // Large, and quickly made again.
    fs::remove_file(&initramfs).with_context(|| format!("cannot remove {}", initramfs.display()))?;
    let mut failed = Vec::new();
    for (program, outcome) in programs.iter().zip(outcomes?) {
        say!("{:<36} {outcome}", program.name);
        if !matches!(outcome, Outcome::Passed(_)) {
            failed.push(format!("{} on {}", program.name, kernel.version));
        }
    }
    Ok(failed)
}

fn conclude(failed: &[String]) -> Result<()> {
    if !failed.is_empty() {
        bail!("kernel tests failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Where kernels and images are kept.
fn folder() -> Result<PathBuf> {
    let folder = shell::target_dir()?.join("vm");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Installs what a virtual machine needs and this machine lacks.
fn prepare() -> Result<()> {
    /// Program, package, reason.
    const NEEDS: &[(&str, &str, &str)] = &[
        ("qemu-system-x86_64", "qemu-system-x86", "runs other kernels"),
        ("busybox", "busybox-static", "the shell in the virtual machine"),
    ];
    if !cfg!(target_arch = "x86_64") {
        return Err(NotRun("virtual machines are set up for x86_64 only".into()).into());
    }
    if find("apt-get").is_none() || find("dpkg-deb").is_none() {
        return Err(NotRun("Debian's kernels are fetched with apt-get and unpacked with dpkg-deb, which are not here".into()).into());
    }
    let missing: Vec<_> = NEEDS.iter().filter(|(program, ..)| find(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for (program, _, reason) in &missing {
        say!("vm: missing: {program} ({reason})");
    }
    let install = || -> Result<()> {
        shell::run(privileged("apt-get")?.args(["update", "--quiet=2"]))?;
        let arguments = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet", "--no-install-recommends"];
        shell::run(privileged("env")?.args(arguments).args(missing.iter().map(|(_, package, _)| package)))
    };
    install().map_err(|error| NotRun(format!("cannot install what virtual machines need: {error:#}")).into())
}
