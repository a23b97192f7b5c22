//! The bridge under measure.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use drm_sim::Tree;
use map_reader::{Map, Reader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nvml_sim::library::{self, Installed};
use nvml_sim::scenario::Scenario;
use tempfile::TempDir;
use test_support::Bpffs;

use crate::case::{Case, Source};
use crate::{machine, process};

const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(5);

/// A running bridge with pins, and a library where it needs one, of its own. Ended when dropped.
#[derive(Debug)]
pub(crate) struct Subject {
    daemon: Child,
    sampler: Option<u32>,
    pins: Bpffs,
    library: Option<Library>,
    amd: Option<Tree>,
    log: PathBuf,
    pub(crate) reader: Reader,
    /// From before it was executed to when its first round could be read.
    pub(crate) started_in: Duration,
}

/// A simulated library and what it plays.
#[derive(Debug)]
struct Library {
    installed: Installed,
    scenario: Scenario,
    _folder: TempDir,
}

impl Subject {
    /// Starts a bridge and waits until its first round can be read.
    pub(crate) fn start(program: &Path, case: &Case) -> Result<Self> {
        let pins = Bpffs::mount();
        let library = match case.source {
            Source::Mock | Source::LargeMock(..) | Source::Amd { .. } => None,
            Source::Simulated(machine) => {
                let folder = TempDir::with_prefix("bench-library-").context("cannot make a temporary folder")?;
                let installed = library::install(folder.path(), &[]).context("cannot install the simulated library")?;
                let scenario = machine.scenario();
                installed.play(&scenario).context("cannot write the scenario")?;
                // The simulated library reads a file again that is younger than 50 ms: its memory, and its time, would count for ours.
                thread::sleep(Duration::from_millis(100));
                Some(Library { installed, scenario, _folder: folder })
            }
        };
        let amd = match case.source {
            Source::Amd { cards, processes, files } => Some(machine::amd(cards, processes, files)),
            _ => None,
        };
        let log = pins.path().with_extension("log");
        let stderr = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut command = Command::new(program);
        if let Source::LargeMock(gpus, processes) = case.source {
            let own = std::env::current_exe().context("cannot tell where this program lies")?;
            command = Command::new(own);
            command.arg("publish-mock").arg(pins.path()).args([gpus, processes].map(|number| number.to_string()));
            command.arg(case.interval.as_micros().to_string());
        } else {
            command.arg("--pin-dir").arg(pins.path()).arg(format!("--poll-interval={}us", case.interval.as_micros()));
        }
        match (&library, &amd) {
            (Some(library), _) => {
                command.args(["--mode=real", "--source=nvml", "--nvml-library-path"]).arg(library.installed.path());
            }
            (None, Some(tree)) => {
                command.args(["--mode=real", "--source=drm", "--drm-root"]).arg(tree.root());
            }
            (None, None) if case.source == Source::Mock => {
                command.arg("--mode=mock");
            }
            (None, None) => {}
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let begun = Instant::now();
        let mut daemon = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let published = wait_until_published(&mut daemon, pins.path());
        let started_in = begun.elapsed();
        let reader = Reader::open(pins.path());
        let mut subject = Self { daemon, sampler: None, pins, library, amd, log, reader, started_in };
        published.with_context(|| subject.last_words())?;
        if subject.library.is_some() || subject.amd.is_some() {
            subject.sampler = process::children(subject.pid())?.first().copied();
        }
        Ok(subject)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.id()
    }

    pub(crate) fn sampler(&self) -> Option<u32> {
        self.sampler
    }

    pub(crate) fn library(&self) -> Option<&Installed> {
        self.library.as_ref().map(|library| &library.installed)
    }

    pub(crate) fn pin_dir(&self) -> &Path {
        self.pins.path()
    }

    /// From now on every call on the last GPU hangs.
    pub(crate) fn hang_one(&mut self) -> Result<()> {
        if let Some(Library { installed, scenario, .. }) = &mut self.library {
            scenario.change(scenario.devices.len() - 1, |device| device.hangs("nvmlDevice*"));
            installed.play(scenario).context("cannot change the scenario")?;
        }
        Ok(())
    }

    /// Rounds that it has published.
    pub(crate) fn rounds(&self) -> Result<u64> {
        Ok(self.reader.state().context("cannot read gpu_bridge_state")?.record().rounds)
    }

    /// Ends it with SIGTERM; returns how long that took.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let begun = Instant::now();
        let pid = Pid::from_raw(self.pid().cast_signed());
        kill(pid, Signal::SIGTERM).context("cannot send SIGTERM to the bridge")?;
        while self.daemon.try_wait().context("cannot ask how the bridge is")?.is_none() {
            if begun.elapsed() > END_LIMIT {
                bail!("the bridge did not end within {END_LIMIT:?} of SIGTERM; {}", self.last_words());
            }
            thread::sleep(Duration::from_micros(100));
        }
        Ok(begun.elapsed())
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!("the bridge logged:\n{log}")
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Both fail only for a process that is already gone; the file may be.
        self.daemon.kill().ok();
        self.daemon.wait().ok();
        std::fs::remove_file(&self.log).ok();
    }
}

fn wait_until_published(daemon: &mut Child, pin_dir: &Path) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    let pin = pin_dir.join(Map::Meta.name());
    loop {
        if pin.exists() {
            let reader = Reader::open_only(pin_dir, &[Map::Meta]);
            while Instant::now() < deadline {
                if reader.meta().is_ok_and(|meta| meta.last_update_boottime_ns != 0) {
                    return Ok(());
                }
                if daemon.try_wait().is_ok_and(|ended| ended.is_some()) {
                    bail!("the bridge ended before it published");
                }
                thread::sleep(Duration::from_micros(100));
            }
        }
        if daemon.try_wait().is_ok_and(|ended| ended.is_some()) {
            bail!("the bridge ended before it published");
        }
        if Instant::now() > deadline {
            bail!("the bridge published nothing within {START_LIMIT:?}");
        }
        thread::sleep(Duration::from_micros(100));
    }
}
