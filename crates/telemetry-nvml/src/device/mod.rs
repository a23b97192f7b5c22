//! One GPU: which questions it answers, and how.

mod calls;
mod late;
mod nvlink;
mod pcie;
mod processes;
mod scratch;
mod sensors;
mod throughput;
mod turnstile;
mod utilization;

use std::time::{Duration, Instant};

use telemetry::{Answer, Device, DeviceError, Identity, Now, Probe, Reading};

pub(crate) use self::late::LateDevice;
use self::{
    calls::Calls, nvlink::NvLink, pcie::Pcie, processes::ProcessProbes, scratch::Scratch, throughput::Throughput, turnstile::Turnstile,
    utilization::Utilization,
};
use crate::{pure::processes::ListKind, sys::Gpu};

/// The questions, each a group of calls of like cost and rhythm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Utilization,
    Sensors,
    Memory,
    Fan,
    Ecc,
    ComputeMode,
    List(ListKind),
    ProcessUtilization,
    PcieCounters,
    PcieThroughput,
    NvLink,
}

const QUESTIONS: [Question; 13] = [
    Question::Utilization,
    Question::Sensors,
    Question::Memory,
    Question::List(ListKind::Compute),
    Question::List(ListKind::Graphics),
    Question::List(ListKind::Mps),
    Question::ProcessUtilization,
    Question::PcieCounters,
    Question::PcieThroughput,
    Question::NvLink,
    Question::Fan,
    Question::Ecc,
    Question::ComputeMode,
];

const PROBES: [Probe; QUESTIONS.len()] = {
    let mut probes = [Probe { name: "", period: Duration::ZERO }; QUESTIONS.len()];
    let mut at = 0;
    while at < probes.len() {
        probes[at] = QUESTIONS[at].probe();
        at += 1;
    }
    probes
};

impl Question {
    /// Where an answer can change at any time, a period says how often it is worth asking: a fan takes seconds to change its speed, ECC
    /// errors are rare, and an administrator sets the compute mode.
    const fn probe(self) -> Probe {
        let (name, period_ms) = match self {
            Self::Utilization => ("utilization", 0),
            Self::Sensors => ("sensors", 0),
            Self::Memory => ("memory", 0),
            Self::Fan => ("fan", 1_000),
            Self::Ecc => ("ecc", 5_000),
            Self::ComputeMode => ("compute mode", 10_000),
            Self::List(ListKind::Compute) => ("compute processes", 0),
            Self::List(ListKind::Graphics) => ("graphics processes", 0),
            Self::List(ListKind::Mps) => ("mps processes", 0),
            Self::ProcessUtilization => ("process utilization", 0),
            Self::PcieCounters => ("pcie counters", pcie::PERIOD_MS),
            Self::PcieThroughput => ("pcie throughput", 0),
            Self::NvLink => ("nvlink", 500),
        };
        Probe { name, period: Duration::from_millis(period_ms) }
    }
}

/// Who may call the driver, for all GPUs of one library.
#[derive(Clone, Debug)]
pub(crate) struct Turnstiles {
    questions: Turnstile,
    /// A driver may hold its lock for the 20 ms that this call takes, and those of many GPUs in a row would be some polls. It is made
    /// beside the questions.
    throughput: Turnstile,
}

impl Default for Turnstiles {
    fn default() -> Self {
        // Longer than any question but the first takes.
        Self { questions: Turnstile::new(Duration::from_millis(20)), throughput: Turnstile::new(Duration::from_millis(250)) }
    }
}

/// A GPU, with all that is remembered of it between two questions.
#[derive(Debug)]
pub(crate) struct NvmlDevice {
    identity: Identity,
    calls: Calls,
    utilization: Utilization,
    processes: ProcessProbes,
    pcie: Pcie,
    throughput: Throughput,
    nvlink: NvLink,
    turnstile: Turnstile,
    time_waiting: Duration,
    /// When each question was last answered without a failure, on `CLOCK_BOOTTIME`.
    sound_ns: [u64; QUESTIONS.len()],
}

/// A failure that passes sooner leaves the last answer standing: one call in a million that goes wrong is no idle GPU, and none without memory.
const FAILURE_HOLD: Duration = Duration::from_millis(500);

impl NvmlDevice {
    pub(crate) fn boxed(identity: Identity, gpu: Gpu, turnstiles: &Turnstiles) -> Box<dyn Device> {
        let pcie = Pcie::new(&gpu);
        let throughput = Throughput::new(identity.index, turnstiles.throughput.clone());
        let calls = Calls::new(gpu, identity.uuid.clone());
        Box::new(Self {
            identity,
            calls,
            utilization: Utilization::default(),
            processes: ProcessProbes::default(),
            pcie,
            throughput,
            nvlink: NvLink::Unknown,
            turnstile: turnstiles.questions.clone(),
            time_waiting: Duration::ZERO,
            sound_ns: [0; QUESTIONS.len()],
        })
    }

    fn try_ask(&mut self, probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        let (metrics, sampled) = (reading.metrics, reading.sampled);
        self.calls.begin(now)?;
        let answer = scratch::with(|scratch| self.answer(QUESTIONS[probe], now, reading, scratch))?;
        self.calls.end()?;
        if !self.calls.has_failed() {
            self.sound_ns[probe] = now.boottime_ns;
        } else if now.boottime_ns.saturating_sub(self.sound_ns[probe]) <= self.failure_hold_ns(probe) {
            reading.metrics = reading.metrics.or(metrics);
            reading.sampled = reading.sampled.or(sampled);
        }
        Ok(answer)
    }

    /// Long enough for the question to be asked once more.
    fn failure_hold_ns(&self, probe: usize) -> u64 {
        FAILURE_HOLD.max(self.period(probe) * 2).as_nanos() as u64
    }

    fn answer(&mut self, question: Question, now: Now, reading: &mut Reading, scratch: &mut Scratch) -> Result<Answer, DeviceError> {
        let Self { calls, .. } = self;
        match question {
            Question::Utilization => self.utilization.ask(calls, now, reading, scratch),
            Question::Sensors => sensors::sensors(calls, &mut reading.metrics),
            Question::Memory => sensors::memory(calls, &mut reading.metrics),
            Question::Fan => sensors::fan(calls, &mut reading.metrics),
            Question::Ecc => sensors::ecc(calls, &mut reading.metrics),
            Question::ComputeMode => sensors::compute_mode(calls, &mut reading.metrics),
            Question::List(kind) => self.processes.ask_list(calls, kind, now, reading, scratch),
            Question::ProcessUtilization => self.processes.ask_utilization(calls, now, reading, &mut scratch.processes),
            Question::PcieCounters => self.pcie.ask(calls, now, &mut reading.metrics),
            Question::PcieThroughput if self.pcie.counters_may_serve() => Ok(Answer::Answered),
            Question::PcieThroughput => self.throughput.ask(calls, self.pcie.limit_kbps(), now, &mut reading.metrics),
            Question::NvLink => self.nvlink.ask(calls, now, &mut reading.metrics, &mut scratch.fields),
        }
    }
}

impl Device for NvmlDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn probes(&self) -> &[Probe] {
        &PROBES
    }

    fn period(&self, probe: usize) -> Duration {
        match QUESTIONS[probe] {
            Question::Utilization => self.utilization.wait(),
            Question::List(kind) => self.processes.list_wait(kind),
            Question::ProcessUtilization => self.processes.utilization_wait(),
            Question::PcieThroughput => self.throughput.wait(),
            question => question.probe().period,
        }
    }

    fn ask(&mut self, probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        let start = Instant::now();
        let pass = self.turnstile.pass();
        let waited = start.elapsed();
        self.time_waiting += waited;
        let answer = self.try_ask(probe, after(now, waited), reading);
        drop(pass);
        self.calls.tell_failures(&mut reading.failures);
        answer
    }

    fn time_elsewhere(&self) -> Duration {
        self.throughput.time()
    }

    fn time_waiting(&self) -> Duration {
        self.time_waiting
    }
}

/// The clocks after a wait: rates are over the time between two calls, not between two times of asking.
fn after(now: Now, waited: Duration) -> Now {
    const NEGLIGIBLE: Duration = Duration::from_micros(100);
    if waited < NEGLIGIBLE {
        return now;
    }
    Now { boottime_ns: now.boottime_ns.saturating_add(waited.as_nanos() as u64), ..now }
}
