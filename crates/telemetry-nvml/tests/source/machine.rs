//! A machine with the simulated library, and one of its GPUs with the reading that is made of it.

use std::{thread, time::Duration};

use nvml_sim::{
    library::{self, Installed},
    scenario::{Device as Board, Scenario},
    stats::Stats,
};
use telemetry::{Answer, Device, DeviceError, Now, OpenError, OpenSource, Process, Reading, TelemetrySource};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};
use tempfile::TempDir;

pub(crate) struct Machine {
    pub(crate) nvml: Installed,
    /// Removes the library when the machine is dropped.
    _directory: TempDir,
}

impl Machine {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self::without(&[], scenario)
    }

    /// A machine whose library lacks these symbols.
    pub(crate) fn without(symbols: &[&str], scenario: &Scenario) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let nvml = library::install(directory.path(), symbols).expect("the simulated library");
        nvml.play(scenario).expect("the scenario");
        Self { nvml, _directory: directory }
    }

    pub(crate) fn try_open(&self) -> Result<OpenSource, OpenError> {
        NvmlSource::new(NvmlOptions { library: LibraryChoice::Path(self.nvml.path()) }).open()
    }

    pub(crate) fn open(&self) -> OpenSource {
        self.try_open().expect("the source opens")
    }

    pub(crate) fn gpu(&self, index: usize) -> Gpu {
        Gpu::new(self.open().devices.swap_remove(index))
    }

    /// Changes the scenario; the next call is answered by it.
    pub(crate) fn play(&self, scenario: &Scenario) {
        self.nvml.play(scenario).expect("the scenario");
        // The library looks at the file when a call comes and it has not looked for 2 ms.
        thread::sleep(Duration::from_millis(3));
    }

    pub(crate) fn stats(&self) -> Stats {
        self.nvml.stats().expect("the account")
    }
}

/// A machine with one GPU, which is open.
pub(crate) fn one(board: impl Into<Board>) -> (Machine, Gpu) {
    let machine = Machine::new(&Scenario::new().device(board));
    let gpu = machine.gpu(0);
    (machine, gpu)
}

pub(crate) struct Gpu {
    pub(crate) device: Box<dyn Device>,
    pub(crate) reading: Reading,
    /// What the device is told; moved by tests that need exact times.
    pub(crate) now: Now,
}

impl Gpu {
    pub(crate) fn new(device: Box<dyn Device>) -> Self {
        Self { device, reading: Reading::default(), now: Self::now() }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now.realtime_ns() / 1_000
    }

    fn probe(&self, name: &str) -> usize {
        self.device.probes().iter().position(|probe| probe.name == name).expect("a probe of this name")
    }

    pub(crate) fn try_ask(&mut self, name: &str) -> Result<Answer, DeviceError> {
        let probe = self.probe(name);
        self.device.ask(probe, self.now, &mut self.reading)
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, name: &str) -> Answer {
        self.try_ask(name).expect("an answer")
    }

    /// Asks for what the device must have.
    #[track_caller]
    pub(crate) fn read(&mut self, name: &str) -> &Reading {
        assert_eq!(self.ask(name), Answer::Answered, "{name}");
        &self.reading
    }

    /// Moves the clocks and asks again.
    #[track_caller]
    pub(crate) fn read_after(&mut self, elapsed: Duration, name: &str) -> &Reading {
        self.later(elapsed);
        self.read(name)
    }

    pub(crate) fn later(&mut self, elapsed: Duration) {
        self.now.boottime_ns += elapsed.as_nanos() as u64;
    }

    /// The clocks as they really are.
    pub(crate) fn now_is_now(&mut self) {
        self.now = Self::now();
    }

    fn now() -> Now {
        let boottime_ns = nvml_sim::boottime_ns();
        Now { boottime_ns, clock_offset_ns: (nvml_sim::realtime_us() * 1_000).cast_signed() - boottime_ns.cast_signed() }
    }

    pub(crate) fn period(&self, name: &str) -> Duration {
        self.device.period(self.probe(name))
    }

    /// Asks everything once, as a lane does at first.
    pub(crate) fn ask_all(&mut self) -> Vec<(&'static str, Answer)> {
        let probes: Vec<_> = self.device.probes().iter().map(|probe| probe.name).collect();
        probes.into_iter().map(|name| (name, self.ask(name))).collect()
    }

    /// PID, memory, MIG instance of each process.
    pub(crate) fn processes(&self) -> Vec<(u32, Option<u64>, Option<u8>)> {
        self.reading.processes.iter().map(|process| (process.pid, process.used_memory_bytes, process.mig_instance)).collect()
    }

    #[track_caller]
    pub(crate) fn process(&self, pid: u32) -> Process {
        *self.reading.processes.iter().find(|process| process.pid == pid).expect("the process")
    }
}
