//! `demo`: about ten seconds of the whole, from NVML to a BPF program's joined events.

mod daemon;
pub(crate) mod scenario;
pub(crate) mod workload;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::say::{complain, say};
use crate::{bpffs, setup, shell};
use daemon::Child;
use scenario::Simulation;

const EVENTS_SECONDS: &str = "6";
const READY_WITHIN: Duration = Duration::from_secs(15);
const PACE: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use the simulated NVML also where there is a real one
    #[arg(long)]
    simulated: bool,
    /// What is shown is built already: the second half of a demo that was started without root
    #[arg(long, hide = true)]
    prebuilt: bool,
}

/// Installs, builds, shows, cleans up.
///
/// # Errors
/// When a step fails or the user interrupts; what was set up is cleaned up then too.
pub(crate) fn run(args: Args) -> Result<()> {
    if !args.prebuilt {
        setup::ensure()?;
        let packages = ["bridge-cli", "bridge-dump", "consumers"].into_iter().flat_map(|name| ["--package", name]);
        shell::run(shell::cargo().arg("build").args(packages))?;
    }
    if !shell::is_root() {
        say!("loading BPF programs needs root:");
        let mut again = shell::privileged(env::current_exe()?)?;
        again.args(["demo", "--prebuilt"]).args(args.simulated.then_some("--simulated"));
        return shell::run(&mut again);
    }
    show(args.simulated || !has_nvml())
}

fn show(simulated: bool) -> Result<()> {
    let interrupted = Interrupted::register()?;
    let _bpffs = bpffs::ensure()?;
    let pins = PinDir::new();
    let scratch = TempDir::with_prefix("gpu-bridge-demo-").context("cannot make a temporary folder")?;

    let mut bridge = shell::command(shell::built("gpu-ebpf-bridge")?);
    bridge.args(["--mode=real", "--poll-interval=100ms"]).arg(flag("--pin-dir=", &pins.path));
    let _simulation = if simulated {
        step("no GPU is used: a simulated libnvidia-ml.so.1 stands in, loaded through the same C interface");
        let simulation = Simulation::start(scratch.path())?;
        step(&format!("a small workload that is real: {}; the simulation says that they use its GPUs", simulation.processes()));
        bridge.arg(simulation.flag());
        Some(simulation)
    } else {
        step("NVIDIA's driver is here: its own libnvidia-ml.so.1 is asked");
        None
    };

    step("the bridge polls ten times a second and keeps the maps fresh");
    let mut bridge = Child::start(&mut bridge)?;
    wait_until_published(&mut bridge, &pins, &interrupted)?;

    step("a BPF program on the scheduler's context switches looks each process up in the maps, in the kernel, as it happens");
    let mut events = shell::command(shell::built("gpu-events")?);
    events.arg("--pin-dir").arg(&pins.path).args(["--seconds", EVENTS_SECONDS]);
    Child::start(&mut events)?.finish(&interrupted)?;
    if !simulated {
        say!("(only processes that hold GPU memory have events: no line means that none ran; try --simulated)");
    }

    step("the same maps as text, as `gpu-ebpf-bridge --dump` prints them too");
    Child::start(&mut dump(&pins)?)?.finish(&interrupted)?;

    step("SIGTERM: the bridge empties the maps, removes the pins and ends");
    bridge.stop()?;
    if pins.path.join("gpu_meta").exists() {
        bail!("the bridge left its pins in {}", pins.path.display());
    }
    say!("\nthat was it; docs/quick-start.md goes on from here");
    Ok(())
}

/// Whether there is an NVIDIA driver with its library, by the looks of it.
fn has_nvml() -> bool {
    let known = shell::command("ldconfig").arg("-p").output();
    let listed = known.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libnvidia-ml.so.1"));
    listed && Path::new("/dev/nvidiactl").exists()
}

fn wait_until_published(bridge: &mut Child, pins: &PinDir, interrupted: &Interrupted) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let dumped = dump(pins)?.output().context("cannot start bridge-dump")?;
        if String::from_utf8_lossy(&dumped.stdout).contains("[device ") {
            return Ok(());
        }
        bridge.must_run()?;
        interrupted.check()?;
        if Instant::now() > deadline {
            bail!("the bridge published no device within {} s", READY_WITHIN.as_secs());
        }
        thread::sleep(PACE);
    }
}

fn dump(pins: &PinDir) -> Result<Command> {
    let mut dump = shell::command(shell::built("bridge-dump")?);
    dump.arg("--pin-dir").arg(&pins.path);
    Ok(dump)
}

fn step(text: &str) {
    say!("\n── {text}");
}

fn flag(name: &str, value: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(name);
    flag.push(value);
    flag
}

/// Whether the user wants us to stop.
#[derive(Debug)]
struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    fn register() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot catch signals")?;
        }
        Ok(Self(flag))
    }

    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// A pin directory of our own, beside the one that a bridge in earnest uses.
#[derive(Debug)]
struct PinDir {
    path: PathBuf,
}

impl PinDir {
    fn new() -> Self {
        Self { path: Path::new(bpffs::PLACE).join(format!("gpu-bridge-demo-{}", std::process::id())) }
    }
}

impl Drop for PinDir {
    fn drop(&mut self) {
        let removed = match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        if let Err(error) = removed {
            complain!("xtask: {} stays: {error}", self.path.display());
        }
    }
}
