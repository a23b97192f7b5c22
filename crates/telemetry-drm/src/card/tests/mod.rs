//! Cards under a kernel whose errors and power management are simulated, which plain files cannot do.

mod errors;
mod idle;

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use drm_sim::Tree;
use rustix::io::Errno;
use telemetry::{Answer, Device, DeviceError, Metrics, Now, Reading, TelemetrySource};

use crate::{
    DrmOptions, DrmSource,
    sysfs::{Files, SystemFiles},
};

const MS: u64 = 1_000_000;

/// Puts errors and a card that falls asleep over the files of a tree, and keeps what is read when.
#[derive(Debug, Default)]
struct Kernel(Mutex<KernelState>);

#[derive(Debug, Default)]
struct KernelState {
    now_ms: u64,
    /// By the end of a path.
    errors: BTreeMap<String, Errno>,
    reads: Vec<(u64, String)>,
    power: Option<PowerManagement>,
}

/// As the kernel's: a card that nobody used for its delay, and a quarter of it for the timer, sleeps until it is used.
#[derive(Debug)]
struct PowerManagement {
    delay_ms: u64,
    used_ms: u64,
    /// Files that the driver answers without a power call.
    gentle: &'static [&'static str],
    /// Reads that woke it.
    woken_by: Vec<String>,
}

impl PowerManagement {
    fn sleeps(&self, now_ms: u64) -> bool {
        now_ms > self.used_ms + self.delay_ms * 5 / 4
    }
}

impl Kernel {
    fn state(&self) -> MutexGuard<'_, KernelState> {
        self.0.lock().unwrap()
    }

    fn fail(&self, file: &str, error: Errno) {
        self.state().errors.insert(file.to_owned(), error);
    }

    fn recover(&self) {
        self.state().errors.clear();
    }

    fn manage(&self, delay_ms: u64, gentle: &'static [&'static str]) {
        let mut state = self.state();
        let used_ms = state.now_ms;
        state.power = Some(PowerManagement { delay_ms, used_ms, gentle, woken_by: Vec::new() });
    }

    /// When files whose path ends so were read.
    fn reads_of(&self, file: &str) -> Vec<u64> {
        self.state().reads.iter().filter(|(_, path)| path.ends_with(file)).map(|(at_ms, _)| *at_ms).collect()
    }

    /// What was read since then, each file once.
    fn read_since(&self, since_ms: u64) -> Vec<String> {
        let mut files: Vec<_> = self.state().reads.iter().filter(|(at_ms, _)| *at_ms >= since_ms).map(|(_, file)| file.clone()).collect();
        files.sort();
        files.dedup();
        files
    }

    fn error_of(&self, path: &Path) -> Option<Errno> {
        let path = path.to_str().unwrap();
        self.state().errors.iter().find(|(end, _)| path.ends_with(end.as_str())).map(|(_, error)| *error)
    }
}

impl Files for Kernel {
    fn open(&self, path: &Path) -> Result<File, Errno> {
        SystemFiles.open(path)
    }

    fn read(&self, path: &Path, file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
        if let Some(error) = self.error_of(path) {
            return Err(error);
        }
        let name =
            path.to_str().unwrap().split_once("/device/").map_or_else(|| path.file_name().unwrap().to_str().unwrap(), |(_, name)| name);
        let mut state = self.state();
        let now_ms = state.now_ms;
        state.reads.push((now_ms, name.to_owned()));
        if let Some(power) = &mut state.power {
            if name == "power/runtime_status" {
                let status: &[u8] = if power.sleeps(now_ms) { b"suspended\n" } else { b"active\n" };
                buffer[..status.len()].copy_from_slice(status);
                return Ok(status.len());
            }
            if !name.starts_with("power/") && !power.gentle.contains(&name) {
                if power.sleeps(now_ms) {
                    power.woken_by.push(name.to_owned());
                }
                power.used_ms = now_ms;
            }
        }
        drop(state);
        SystemFiles.read(path, file, buffer)
    }
}

/// The devices of a tree, asked at each tick what is due.
#[derive(Debug)]
struct Asked {
    kernel: Arc<Kernel>,
    lanes: Vec<Lane>,
    now_ms: u64,
}

#[derive(Debug)]
struct Lane {
    device: Box<dyn Device>,
    reading: Reading,
    /// When each probe was last asked; one that is not supported, at the end of time.
    asked_ms: Vec<Option<u64>>,
}

impl Lane {
    fn ask(&mut self, now: Now) -> Result<(), DeviceError> {
        let now_ms = now.boottime_ns / MS;
        for (probe, asked_ms) in self.asked_ms.iter_mut().enumerate() {
            let period_ms = self.device.period(probe).as_millis() as u64;
            if asked_ms.is_none_or(|asked_ms| now_ms >= asked_ms.saturating_add(period_ms)) {
                let is_supported = self.device.ask(probe, now, &mut self.reading)? == Answer::Answered;
                *asked_ms = Some(if is_supported { now_ms } else { u64::MAX });
            }
        }
        Ok(())
    }
}

impl Asked {
    fn open(tree: &Tree) -> Self {
        Self::open_with(DrmOptions { root: PathBuf::from(tree.root()), ..DrmOptions::default() })
    }

    fn open_with(options: DrmOptions) -> Self {
        let kernel = Arc::<Kernel>::default();
        let files: Arc<dyn Files> = Arc::<Kernel>::clone(&kernel);
        let mut source = DrmSource::with_files(options, files);
        let lanes = source.open().unwrap().devices.into_iter().map(|device| {
            let asked_ms = vec![None; device.probes().len()];
            Lane { device, reading: Reading::default(), asked_ms }
        });
        Self { lanes: lanes.collect(), kernel, now_ms: 1_000_000 }
    }

    /// Lets time pass and asks all devices what is due; what became of each.
    fn try_tick(&mut self, ms: u64) -> Vec<Result<(), DeviceError>> {
        self.now_ms += ms;
        self.kernel.state().now_ms = self.now_ms;
        let now = Now { boottime_ns: self.now_ms * MS, clock_offset_ns: 0 };
        self.lanes.iter_mut().map(|lane| lane.ask(now)).collect()
    }

    #[track_caller]
    fn tick(&mut self, ms: u64) {
        self.try_tick(ms).into_iter().collect::<Result<(), _>>().unwrap();
    }

    #[track_caller]
    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.tick(100);
        }
    }

    fn metrics(&self, index: usize) -> &Metrics {
        &self.lanes[index].reading.metrics
    }
}
