//! Asks a source's devices as a lane does, on a clock of the test's own.

use std::{path::Path, sync::mpsc, thread, time::Duration};

use drm_sim::Tree;
use telemetry::{Answer, Device, DeviceError, Metrics, Now, Reading, SourceInfo, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND_MS: u64 = 1_000;

/// An open source, and what its devices have said.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) info: SourceInfo,
    pub(crate) lanes: Vec<Lane>,
    now_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) device: Box<dyn Device>,
    pub(crate) reading: Reading,
    asked_ns: Vec<Option<u64>>,
    not_supported: Vec<bool>,
}

pub(crate) fn at(root: &Path) -> DrmSource {
    DrmSource::new(DrmOptions { root: root.to_owned(), ..DrmOptions::default() })
}

impl Machine {
    pub(crate) fn open(tree: &Tree) -> Self {
        Self::of(at(tree.root()))
    }

    pub(crate) fn of(mut source: DrmSource) -> Self {
        let open = source.open().unwrap();
        let lanes = open.devices.into_iter().map(Lane::new).collect();
        Self { info: open.info, lanes, now_ns: 3_600_000 * MS }
    }

    pub(crate) fn now(&self) -> Now {
        Now { boottime_ns: self.now_ns, clock_offset_ns: 1_700_000_000_000_000_000 }
    }

    /// Lets time pass, then asks every device what is due.
    pub(crate) fn try_tick(&mut self, ms: u64) -> Result<(), DeviceError> {
        self.now_ns += ms * MS;
        let now = self.now();
        self.lanes.iter_mut().try_for_each(|lane| lane.ask(now))
    }

    #[track_caller]
    pub(crate) fn tick(&mut self, ms: u64) {
        self.try_tick(ms).unwrap();
    }

    /// Ticks of 100 ms.
    #[track_caller]
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.tick(100);
        }
    }

    pub(crate) fn metrics(&self, index: usize) -> &Metrics {
        &self.lanes[index].reading.metrics
    }
}

impl Lane {
    fn new(device: Box<dyn Device>) -> Self {
        let probes = device.probes().len();
        Self { device, reading: Reading::default(), asked_ns: vec![None; probes], not_supported: vec![false; probes] }
    }

    fn ask(&mut self, now: Now) -> Result<(), DeviceError> {
        for probe in 0..self.asked_ns.len() {
            let period_ns = self.device.period(probe).as_nanos() as u64;
            let is_due = self.asked_ns[probe].is_none_or(|asked_ns| now.boottime_ns - asked_ns >= period_ns);
            if self.not_supported[probe] || !is_due {
                continue;
            }
            self.asked_ns[probe] = Some(now.boottime_ns);
            self.not_supported[probe] = self.device.ask(probe, now, &mut self.reading)? == Answer::NotSupported;
        }
        Ok(())
    }
}

/// Runs `body`, which hangs if it opens a FIFO: that is told instead of waited for.
#[track_caller]
pub(crate) fn without_hanging<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    within(Duration::from_secs(60), what, body)
}

/// The same with a limit of its own.
#[track_caller]
pub(crate) fn within<T: Send + 'static>(limit: Duration, what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        // Nobody listens any more when it took too long.
        drop(done.send(body()));
    });
    match result.recv_timeout(limit) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: a forbidden file was opened"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}
