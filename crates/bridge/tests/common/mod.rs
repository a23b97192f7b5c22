//! A source whose devices do as the test says, and a bridge that publishes it.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub, reason = "shared by test binaries that use parts of it")]

pub mod log_lines;

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bridge::{
    BridgeError, Control, Limits, Plan, SamplerError, Source, Unobserved, WhenUnavailable,
    clock::{Clock, SystemClock},
    sampler::{Event, LaneLauncher, Launch, Round, Sampler},
};
use map_publisher::Options;
use map_reader::{Map, Order, Reader};
use telemetry::{
    Answer, Device, DeviceError, Identity, Memory, Metrics, Now, OpenError, OpenSource, Probe, Process, ProcessUtilization, Reading,
    SourceInfo, TelemetrySource,
};
use test_support::{Bpffs, eventually};

/// What a device does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Answers,
    /// Once after each opening; then it says that the source is gone.
    AnswersOnce,
    /// Takes three quarters of the interval for it.
    AnswersLate,
    /// Does not return until the mood changes.
    Hangs,
    Lost,
    SourceGone,
}

/// The script that a source and its devices follow; clones are the same one.
#[derive(Clone, Debug)]
pub struct Script(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug)]
pub struct State {
    pub moods: Vec<Mood>,
    /// So many devices answer once the source is opened anew, whatever it does until then.
    pub devices_when_opened: Option<usize>,
    /// What its devices' ids begin with.
    pub tag: &'static str,
    pub driver_version: Option<&'static str>,
    /// Why the source does not open.
    pub closed: Option<&'static str>,
    /// It is there, though, and does not work.
    pub is_broken: bool,
    /// What is missing, to be seen without starting a sampler.
    pub missing: Option<&'static str>,
    /// It says that it is gone when its devices are others.
    pub is_reopened_at_once: bool,
    /// So many samplers are still to die.
    pub deaths: usize,
    /// PIDs and the memory that they hold, on every device.
    pub processes: Vec<(u32, u64)>,
    pub opened: usize,
    /// Attempts to open it, those that failed included.
    pub attempts: usize,
    /// Devices that are open.
    pub open_devices: usize,
}

impl Script {
    pub fn new(devices: usize) -> Self {
        let state = State {
            moods: vec![Mood::Answers; devices],
            devices_when_opened: None,
            tag: "GPU",
            driver_version: None,
            closed: None,
            is_broken: false,
            missing: None,
            is_reopened_at_once: false,
            deaths: 0,
            processes: vec![(4_000_001, 1 << 20)],
            opened: 0,
            attempts: 0,
            open_devices: 0,
        };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    pub fn mood(&self, device: usize, mood: Mood) {
        self.change(|state| state.moods[device] = mood);
    }

    pub fn opened(&self) -> usize {
        self.lock().opened
    }

    pub fn attempts(&self) -> usize {
        self.lock().attempts
    }

    pub fn open_devices(&self) -> usize {
        self.lock().open_devices
    }

    pub fn launcher(&self, poll_interval: Duration, clock: Arc<dyn Clock>) -> impl Launch + 'static {
        let script = self.clone();
        let lanes = LaneLauncher::new(move || Box::new(ScriptedSource(script.clone())), poll_interval, clock);
        ScriptedLauncher { lanes, script: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }
}

/// Starts samplers that die when the script says so.
#[derive(Debug)]
struct ScriptedLauncher {
    lanes: LaneLauncher,
    script: Script,
}

impl Launch for ScriptedLauncher {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        Ok(Box::new(Mortal { sampler: self.lanes.launch()?, script: self.script.clone() }))
    }

    fn missing(&mut self) -> Option<String> {
        self.script.lock().missing.map(str::to_owned)
    }

    fn is_reopened_at_once(&self) -> bool {
        self.script.lock().is_reopened_at_once
    }
}

#[derive(Debug)]
struct Mortal {
    sampler: Box<dyn Sampler>,
    script: Script,
}

impl Sampler for Mortal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sampler.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        self.sampler.deadline()
    }

    fn receive(&mut self) -> Result<Event, SamplerError> {
        let mut state = self.script.lock();
        if state.deaths > 0 {
            state.deaths -= 1;
            return Err(SamplerError::Ended { status: "as scripted".to_owned() });
        }
        drop(state);
        self.sampler.receive()
    }

    fn round(&self) -> &Round {
        self.sampler.round()
    }
}

#[derive(Debug)]
struct ScriptedSource(Script);

impl TelemetrySource for ScriptedSource {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        let mut state = self.0.lock();
        state.attempts += 1;
        if let Some(why) = state.closed {
            return Err(if state.is_broken { OpenError::Failed(why.to_owned()) } else { OpenError::NotAvailable(why.to_owned()) });
        }
        state.opened += 1;
        let count = state.devices_when_opened.take().map_or(state.moods.len(), |count| {
            state.moods[..count].fill(Mood::Answers);
            count
        });
        state.open_devices += count;
        let devices = (0..count).map(|index| -> Box<dyn Device> {
            let identity = Identity { index: index as u32, uuid: format!("{}-{index}", state.tag), ..Identity::default() };
            Box::new(ScriptedDevice { identity, script: self.0.clone(), asked: 0, sample: ProcessUtilization::default() })
        });
        let devices = devices.collect();
        let driver_version = state.driver_version.map(str::to_owned);
        Ok(OpenSource { info: SourceInfo { name: "scripted".to_owned(), driver_version, ..SourceInfo::default() }, devices })
    }

    fn is_free(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct ScriptedDevice {
    identity: Identity,
    script: Script,
    asked: u64,
    /// The newest of every process.
    sample: ProcessUtilization,
}

/// A process's utilization is sampled anew at each so many asks.
const SAMPLE_PERIOD: u64 = 25;

impl Drop for ScriptedDevice {
    fn drop(&mut self) {
        self.script.lock().open_devices -= 1;
    }
}

impl Device for ScriptedDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn probes(&self) -> &[Probe] {
        &[Probe { name: "everything", period: Duration::ZERO }]
    }

    fn ask(&mut self, _probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        let index = self.identity.index as usize;
        let state = self.script.0.1.wait_while(self.script.lock(), |state| state.moods[index] == Mood::Hangs).unwrap();
        match state.moods[index] {
            Mood::AnswersOnce if self.asked > 0 => return Err(DeviceError::SourceGone("scripted end".to_owned())),
            Mood::Answers | Mood::AnswersOnce | Mood::Hangs => {}
            Mood::AnswersLate => thread::sleep(INTERVAL * 3 / 4),
            Mood::Lost => return Err(DeviceError::Lost("scripted loss".to_owned())),
            Mood::SourceGone => return Err(DeviceError::SourceGone("scripted end".to_owned())),
        }
        let memory = Memory { total_bytes: 1 << 30, used_bytes: 1 << 20, reserved_bytes: 0 };
        reading.metrics = Metrics { sm_util_pct: Some(40 + self.identity.index), memory: Some(memory), ..Metrics::default() };
        if self.asked.is_multiple_of(SAMPLE_PERIOD) {
            self.sample = ProcessUtilization { sampled: now.stamp(), sm_pct: 10, ..ProcessUtilization::default() };
        }
        self.asked += 1;
        if !self.identity.uuid.starts_with(state.tag) {
            self.identity.uuid = format!("{}-{index}", state.tag);
        }
        reading.processes.clear();
        reading.processes.extend(state.processes.iter().map(|&(pid, memory)| Process {
            pid,
            used_memory_bytes: Some(memory),
            utilization: Some(self.sample),
            ..Process::default()
        }));
        Ok(Answer::Answered)
    }
}

/// A bridge on a thread, in a BPF file system of its own.
pub struct Running {
    pub pins: Bpffs,
    control: Control,
    thread: Option<JoinHandle<Result<(), BridgeError>>>,
}

pub const INTERVAL: Duration = Duration::from_millis(20);

/// How a bridge is to be started.
pub struct Setup {
    pub pins: Bpffs,
    pub when_unavailable: WhenUnavailable,
    pub keep_pins: bool,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            pins: Bpffs::mount(),
            when_unavailable: WhenUnavailable::Fail,
            keep_pins: false,
            clock: Arc::new(SystemClock),
            limits: Limits::default(),
        }
    }
}

impl Setup {
    pub fn start(self, source: &Script) -> Running {
        self.start_all(&[("scripted", source)])
    }

    pub fn start_all(self, sources: &[(&'static str, &Script)]) -> Running {
        let Self { pins, when_unavailable, keep_pins, clock, limits } = self;
        let control = Control::new().unwrap();
        let plan = Plan {
            maps: Options::new(pins.path(), std::process::id(), clock.boottime_ns()),
            keep_pins,
            poll_interval: INTERVAL,
            version: "0.0.0".to_owned(),
            sources: sources.iter().map(|(name, script)| Source { name, ..source(script, false, Arc::clone(&clock)) }).collect(),
            clock,
            when_unavailable,
            observer: Box::new(Unobserved),
        };
        let stop = control.clone();
        let thread = thread::spawn(move || bridge::run_within(plan, &limits, &stop));
        Running { pins, control, thread: Some(thread) }
    }
}

impl Running {
    pub fn start(source: &Script, when_unavailable: WhenUnavailable) -> Self {
        Setup { when_unavailable, ..Setup::default() }.start(source)
    }

    pub fn start_in(pins: Bpffs, source: &Script, when_unavailable: WhenUnavailable, keep_pins: bool) -> Self {
        Setup { pins, when_unavailable, keep_pins, ..Setup::default() }.start(source)
    }

    pub fn reader(&self) -> Reader {
        eventually("the maps", || {
            // They are pinned one after the other.
            let are_there = Map::ALL.iter().all(|map| self.pins.pin(map.name()).exists());
            are_there.then(|| Reader::open(self.pins.path())).filter(|reader| reader.state().is_ok())
        })
    }

    pub fn control(&self) -> &Control {
        &self.control
    }

    pub fn stop(mut self) -> (Bpffs, Result<(), BridgeError>) {
        self.control.stop();
        let result = self.thread.take().unwrap().join().unwrap();
        (self.pins, result)
    }

    /// The end of a bridge that ends by itself.
    pub fn wait(mut self) -> (Bpffs, Result<(), BridgeError>) {
        let result = self.thread.take().unwrap().join().unwrap();
        (self.pins, result)
    }
}

pub fn source(script: &Script, is_mock: bool, clock: Arc<dyn Clock>) -> Source {
    Source { name: "scripted", is_mock, launcher: Box::new(script.launcher(INTERVAL, clock)) }
}

/// The fallback that invents what its script says.
pub fn fall_back_to(script: &Script) -> WhenUnavailable {
    WhenUnavailable::FallBack(source(script, true, Arc::new(SystemClock)))
}

/// What the maps hold, in brief.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub devices: Vec<u32>,
    pub pids: Vec<u32>,
}

pub fn seen(reader: &Reader) -> Seen {
    Seen {
        devices: reader.devices().unwrap().into_iter().filter(|(_, record)| record.timestamp_ns > 0).map(|(index, _)| index).collect(),
        pids: reader.processes(Order::ByKey).unwrap().into_iter().map(|(pid, _)| pid).collect(),
    }
}

#[track_caller]
pub fn wait_for(reader: &Reader, devices: &[u32], pids: &[u32]) {
    let expected = Seen { devices: devices.to_vec(), pids: pids.to_vec() };
    eventually(&format!("{expected:?}"), || (seen(reader) == expected).then_some(()));
}

pub fn stamp(reader: &Reader) -> u64 {
    reader.meta().unwrap().last_update_boottime_ns
}
