//! `vm` and `test-kernels`: the built binaries and their tests on other kernels than this machine's.
//!
//! Debian's kernels come from the mirror that apt is configured with, and run in qemu without hardware virtualization: a few minutes each.

mod fleet;
mod image;
mod kernel;
mod machine;
mod plan;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::needs::Need;
use crate::say::say;
use crate::setup;
use crate::shell::{self, find};
use image::Image;
use kernel::{Kernel, Version};
use machine::{Console, Machine, Outcome};
use plan::{Built, Program};

pub(crate) use fleet::test_kernels;

/// Longer than everything in a machine may take: for machines that hang.
const LIMIT: Duration = Duration::from_secs(1200);

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
    let ready = Ready::make(&kernel, args.smp, args.only.as_deref(), &Built::build()?)?;
    say!("\n== {}", ready.name);
    let outcomes = ready.run(Console::Terminal, LIMIT)?;
    for (program, outcome) in &outcomes {
        say!("{program:<36} {outcome}");
    }
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| !outcome.is_passed()).map(|(program, _)| program.as_str()).collect();
    if !failed.is_empty() {
        bail!("kernel tests failed on {}: {}", ready.name, failed.join(", "));
    }
    Ok(())
}

/// A machine that can be started.
#[derive(Debug)]
struct Ready {
    name: String,
    kernel: PathBuf,
    smp: u32,
    programs: Vec<Program>,
    initramfs: PathBuf,
}

impl Ready {
    /// Puts together what runs in it.
    fn make(kernel: &Kernel, smp: u32, only: Option<&str>, built: &Built) -> Result<Self> {
        let mut programs = built.programs(kernel.version, smp);
        programs.retain(|program| only.is_none_or(|only| program.name.contains(only)));
        if programs.is_empty() {
            bail!("nothing to run is called {:?}", only.unwrap_or_default());
        }
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
        let initramfs = folder()?.join(format!("{}-{smp}.cpio", kernel.version));
        image.write(&initramfs)?;
        let name = format!("{} with {smp} {}", kernel.package, if smp == 1 { "CPU" } else { "CPUs" });
        Ok(Self { name, kernel: kernel.image.clone(), smp, programs, initramfs })
    }

    /// Where its console is kept.
    fn console_log(&self) -> PathBuf {
        self.initramfs.with_extension("log")
    }

    /// Starts it and waits for its end; how each program in it ended.
    fn run(&self, console: Console, limit: Duration) -> Result<Vec<(String, Outcome)>> {
        let console_log = self.console_log();
        let machine = Machine { kernel: &self.kernel, initramfs: &self.initramfs, smp: self.smp, console, console_log: &console_log };
        let outcomes = machine.run(&self.programs, limit);
        // Large, and quickly made again.
        fs::remove_file(&self.initramfs).with_context(|| format!("cannot remove {}", self.initramfs.display()))?;
        Ok(self.programs.iter().map(|program| program.name.clone()).zip(outcomes?).collect())
    }
}

/// Where kernels and images are kept.
fn folder() -> Result<PathBuf> {
    let folder = shell::target_dir()?.join("vm");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Installs what a virtual machine needs and this machine lacks.
fn prepare() -> Result<()> {
    // Debian's packages alone: without apt-get there are no kernels either.
    const NEEDS: &[Need] = &[
        Need {
            what: "qemu-system-x86_64",
            why: "runs other kernels",
            apt: &[&["qemu-system-x86"]],
            dnf: &[],
            present: || find("qemu-system-x86_64").is_some(),
        },
        Need {
            what: "busybox",
            why: "the shell in the virtual machine",
            apt: &[&["busybox-static"]],
            dnf: &[],
            present: || find("busybox").is_some(),
        },
    ];
    if !cfg!(target_arch = "x86_64") {
        return Err(NotRun("virtual machines are set up for x86_64 only".into()).into());
    }
    if find("apt-get").is_none() || find("dpkg-deb").is_none() {
        return Err(NotRun("Debian's kernels are fetched with apt-get and unpacked with dpkg-deb, which are not here".into()).into());
    }
    setup::ensure_all(NEEDS).map_err(|error| NotRun(format!("{error:#}")).into())
}
