//! A bridge, its driver and its processes, and what is done to them.

mod looks;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use e2e::processes::{children, is_alive, send};
use e2e::{Bpffs, Bridge, Sim, Workload, map_id};
use map_reader::{Phase, Reader, boottime_now_ns};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Code, Device, Fault, Scenario};

use crate::crowd::{Attendance, Crowd};
use crate::findings::Findings;
use crate::script::{Act, DEVICES, Step};
use crate::{POLL_INTERVAL, Settings};

/// What the bridge pins.
const PINS: [&str; 5] = ["gpu_bridge_state", "gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"];
/// After something was undone. A source that failed twice in a row is tried again after two seconds.
const RECOVERY: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(5);
const FRESH: Duration = Duration::from_secs(1);
const GIB: u64 = 1 << 30;

/// What is going on.
#[derive(Debug)]
pub(crate) struct Stage {
    findings: Arc<Findings>,
    pace: Duration,
    pub(crate) pins: Bpffs,
    sim: Sim,
    bridge: Option<Bridge>,
    pid: u32,
    pub(crate) reader: Reader,
    map_ids: [Option<u32>; 5],
    crowd: Crowd,
    pub(crate) attendance: Arc<Mutex<Attendance>>,
    pub(crate) worker: Option<Workload>,
    devices: usize,
    is_crowded: bool,
    on_one: Option<(usize, Fault)>,
    on_all: Option<Fault>,
    driver: u32,
    changes: u64,
    recoveries: BTreeMap<&'static str, Recovery>,
}

/// How long it took until all was well again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovery {
    pub(crate) count: u32,
    pub(crate) longest: Duration,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// From SIGTERM on; `None` when it had ended before.
    pub(crate) took: Option<Duration>,
    pub(crate) log_lines: usize,
    pub(crate) changes: u64,
    pub(crate) recoveries: BTreeMap<&'static str, Recovery>,
}

impl Stage {
    /// Starts everything and waits until it is published.
    pub(crate) fn set(settings: &Settings, findings: Arc<Findings>) -> Self {
        let pins = Bpffs::mount();
        let worker = Workload::start("soak-worker");
        let mut crowd = Crowd::gather(settings.seed, worker.pid());
        crowd.advance(false);
        let mut sim = Sim::install(Scenario::new());
        sim.install_library(&version(0));
        let attendance = Arc::new(Mutex::new(Attendance::default()));
        let reader = Reader::open(pins.path());
        let mut stage = Self {
            findings,
            pace: settings.pace,
            pins,
            sim,
            bridge: None,
            pid: 0,
            reader,
            map_ids: [None; 5],
            crowd,
            attendance,
            worker: Some(worker),
            devices: DEVICES,
            is_crowded: false,
            on_one: None,
            on_all: None,
            driver: 0,
            changes: 0,
            recoveries: BTreeMap::new(),
        };
        stage.show(&[]);
        let mut bridge = stage.sim.bridge(&stage.pins, &format!("{}us", POLL_INTERVAL.as_micros())).start();
        stage.pid = bridge.pid();
        stage.reader = bridge.wait_until_published(&stage.pins);
        stage.bridge = Some(bridge);
        stage.map_ids = stage.pinned();
        stage
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the bridge runs. That it has ended is a finding.
    pub(crate) fn goes_on(&self) -> bool {
        let goes_on = is_alive(self.pid);
        if !goes_on {
            let log = self.bridge.as_ref().map(Bridge::log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            self.findings.violation("the bridge ended by itself", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        goes_on
    }

    /// Does something, undoes it after a while, and waits until all is well again.
    pub(crate) fn play(&mut self, step: &Step) {
        self.findings.now(step.act.to_string());
        let sampler = self.sampler();
        self.begin(step.act, sampler);
        let end = Instant::now() + step.lasts;
        while Instant::now() < end {
            self.change();
            thread::sleep(self.pace);
        }
        self.undo(step.act);
        let must_be_new = matches!(step.act, Act::SamplerKilled | Act::SamplerCrashes | Act::LetGo(_));
        self.recover(step.act, sampler.filter(|_| must_be_new));
        self.findings.now(format!("after: {}", step.act));
    }

    /// Does it, and waits until it shows.
    fn begin(&mut self, act: Act, sampler: Option<u32>) {
        match act {
            Act::Crowd => self.is_crowded = true,
            Act::DeviceLost(number) => self.on_one = Some((number, Fault::error("nvmlDevice*", Code::GPU_IS_LOST))),
            Act::DeviceHangs(number) => self.on_one = Some((number, Fault::hang("nvmlDevice*"))),
            Act::EveryCallHangs => self.on_all = Some(Fault::hang("*")),
            Act::EverythingUnknown => self.on_all = Some(Fault::error("*", Code::UNKNOWN)),
            Act::Uninitialized => self.on_all = Some(Fault::error("*", Code::UNINITIALIZED)),
            Act::PinsRemoved(count) => PINS.iter().take(count).for_each(|pin| drop(fs::remove_file(self.pins.pin(pin)))),
            Act::DaemonStopped => send(self.pid, Signal::SIGSTOP),
            Act::LibraryGone => {
                self.on_all = Some(Fault::error("*", Code::DRIVER_NOT_LOADED));
                fs::rename(self.sim.library(), self.hiding_place()).expect("the library can be taken away");
            }
            Act::LibraryReplaced => self.driver += 1,
            Act::SamplerKilled => sampler.into_iter().for_each(|pid| send(pid, Signal::SIGKILL)),
            Act::SamplerCrashes => self.on_all = Some(Fault::crash("nvmlDevice*")),
            Act::LetGo(_) => send(self.pid, Signal::SIGUSR1),
        }
        self.show(&[]);
        self.expect("it to show", |stage| stage.shows(act, sampler));
        if act == Act::SamplerCrashes {
            // Once is enough.
            self.on_all = None;
            self.show(&[]);
        }
    }

    /// Whether what is done can be seen from outside.
    fn shows(&self, act: Act, sampler: Option<u32>) -> bool {
        let is_waiting = || self.state().is_some_and(|state| state.phase() == Phase::Waiting) && self.published().is_empty();
        match act {
            Act::Crowd => self.state().is_some_and(|state| state.record().processes_left_out > 0),
            Act::DeviceLost(number) | Act::DeviceHangs(number) => {
                let published = self.published();
                published.len() == self.devices - 1 && !published.contains(&(number as u32))
            }
            Act::EveryCallHangs | Act::EverythingUnknown | Act::Uninitialized | Act::LibraryGone | Act::LibraryReplaced => is_waiting(),
            Act::SamplerKilled | Act::SamplerCrashes => sampler.is_none_or(|pid| !is_alive(pid)),
            Act::LetGo(_) => is_waiting() && children(self.pid).is_empty(),
            // Over before one can look, and nothing to be seen.
            Act::PinsRemoved(_) | Act::DaemonStopped => true,
        }
    }

    fn undo(&mut self, act: Act) {
        (self.on_one, self.on_all, self.is_crowded) = (None, None, false);
        match act {
            Act::DaemonStopped => send(self.pid, Signal::SIGCONT),
            Act::LibraryGone => {
                fs::rename(self.hiding_place(), self.sim.library()).expect("the library can be put back");
            }
            Act::LibraryReplaced => self.sim.install_library(&version(self.driver)),
            Act::LetGo(devices) => {
                self.devices = devices;
                self.show(&[]);
                send(self.pid, Signal::SIGUSR2);
            }
            _ => {}
        }
        self.show(&[]);
    }

    fn recover(&mut self, act: Act, old_sampler: Option<u32>) {
        let undone = Instant::now();
        let undone_ns = boottime_now_ns().expect("a clock");
        let is_well = |stage: &Self| {
            let sampler = stage.sampler();
            stage.is_well(undone_ns) && sampler.is_some() && (old_sampler.is_none() || sampler != old_sampler)
        };
        if self.expect(act.name(), is_well) {
            let recovery = self.recoveries.entry(act.name()).or_default();
            recovery.count += 1;
            recovery.longest = recovery.longest.max(undone.elapsed());
        }
    }

    /// Lets time pass until the condition holds, with processes that come and go. That it does not is a finding.
    fn expect(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> bool {
        let begun = Instant::now();
        let mut next_change = begun + self.pace;
        while !condition(self) {
            if begun.elapsed() > RECOVERY || !is_alive(self.pid) {
                if self.goes_on() {
                    let found = format!("waited {RECOVERY:?} for: {what}; {}; {}", self.describe(), self.last_words());
                    self.findings.violation("the bridge did not come to where it must", found);
                }
                return false;
            }
            if Instant::now() >= next_change {
                self.change();
                next_change = Instant::now() + self.pace;
            }
            thread::sleep(MOMENT);
        }
        true
    }

    /// The next moment of the crowd.
    fn change(&mut self) {
        let ended = self.crowd.advance(self.is_crowded);
        self.show(&ended);
        self.changes += 1;
    }

    /// Has the library answer as things are; those that `ended` are not there any more.
    fn show(&mut self, ended: &[u32]) {
        // First: whoever sees a process finds it noted.
        let now = boottime_now_ns().expect("a clock");
        self.attendance.lock().unwrap_or_else(PoisonError::into_inner).note(now, &self.crowd, ended);
        let mut scenario = Scenario::new().driver(&version(self.driver));
        for number in 0..self.devices {
            let mut device = Device { processes: self.crowd.on(number, self.devices), ..Device::h100().at_work() };
            device = device.memory(80 * GIB, 12 * GIB, GIB);
            if let Some((on, fault)) = &self.on_one
                && *on == number
            {
                device = device.fault(fault.clone());
            }
            scenario = scenario.device(device);
        }
        scenario.faults.extend(self.on_all.clone());
        self.sim.set(|_| scenario);
    }

    /// Whether all devices are published, in a round from after this moment, and all pins are there and lead to the maps that they always led to.
    fn is_well(&self, after_ns: u64) -> bool {
        let Ok(meta) = self.reader.meta() else { return false };
        let now = boottime_now_ns().expect("a clock");
        let is_fresh =
            meta.last_update_boottime_ns > after_ns && now.saturating_sub(meta.last_update_boottime_ns) < FRESH.as_nanos() as u64;
        is_fresh
            && self.published().len() == self.devices
            && self.pinned() == self.map_ids
            && self.state().is_some_and(|state| state.phase() == Phase::Publishing)
    }

    fn published(&self) -> Vec<u32> {
        self.reader.devices().unwrap_or_default().into_iter().map(|(index, _)| index).collect()
    }

    fn hiding_place(&self) -> PathBuf {
        self.sim.folder().join("hidden")
    }

    fn pinned(&self) -> [Option<u32>; 5] {
        PINS.map(|pin| map_id(&self.pins.pin(pin)))
    }

    fn sampler(&self) -> Option<u32> {
        children(self.pid).first().copied()
    }

    fn last_words(&self) -> String {
        let log = self.bridge.as_ref().map(Bridge::log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("the bridge logged last:\n{}", lines[lines.len().saturating_sub(8)..].join("\n"))
    }
}

fn version(number: u32) -> String {
    format!("570.{number}.1")
}
