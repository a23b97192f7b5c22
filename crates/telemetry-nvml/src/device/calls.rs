//! What becomes of a call: a value, an answer that there is none, or trouble; and whose trouble it is.

use log::debug;
use telemetry::{DeviceError, Failures, Now};

use crate::sys::{Clock, Code, Gpu};

/// The calls whose answers are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    GpuSamples,
    MemorySamples,
    UtilizationRates,
    Temperature,
    Power,
    SmClock,
    MemoryClock,
    EventReasons,
    ThrottleReasons,
    Encoder,
    Decoder,
    MemoryV2,
    MemoryV1,
    Fan,
    EccCorrected,
    EccUncorrected,
    ComputeMode,
    ComputeProcesses,
    GraphicsProcesses,
    MpsProcesses,
    ProcessUtilization,
    ProcessesUtilizationInfo,
    PcieCounters,
    PcieThroughputTx,
    PcieThroughputRx,
    NvLinkAll,
    NvLinkCount,
    NvLinkEach,
    NvLink5,
}

impl Call {
    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// What a call came to, when neither the device nor the source is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<T> {
    /// Its value.
    Value(T),
    /// The device or its library does not have it. It is not asked again.
    Never,
    /// This time not.
    Failed(Code),
}

impl<T> Outcome<T> {
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Never | Self::Failed(_) => None,
        }
    }

    pub(crate) const fn is_never(&self) -> bool {
        matches!(self, Self::Never)
    }
}

/// Looking a handle up takes milliseconds, so it is done ever less often where it does not help.
const FIRST_LOOKUP_NS: u64 = 1_000_000_000;
const RAREST_LOOKUP_NS: u64 = 64_000_000_000;

/// A device's handle, and how its calls have been answered.
#[derive(Debug)]
pub(crate) struct Calls {
    gpu: Gpu,
    uuid: String,
    /// Calls that are not asked again.
    never: u64,
    /// Calls that failed, and how often; each is logged the first time.
    failures: Vec<(Call, Failures)>,
    /// Whether a call of this question was answered, be it with no.
    answered: bool,
    /// How a call of this question went unanswered.
    unanswered: Option<Code>,
    /// Whether a call of this question failed that may be answered next time.
    failed: bool,
    /// The handle may no longer be this device's.
    suspect: bool,
    next_lookup_ns: u64,
    lookup_gap_ns: u64,
}

impl Calls {
    pub(crate) fn new(gpu: Gpu, uuid: String) -> Self {
        Self {
            gpu,
            uuid,
            never: 0,
            failures: Vec::new(),
            answered: false,
            unanswered: None,
            failed: false,
            suspect: false,
            next_lookup_ns: 0,
            lookup_gap_ns: FIRST_LOOKUP_NS,
        }
    }

    pub(crate) const fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Before a question: a handle that was refused is looked up anew.
    pub(crate) fn begin(&mut self, now: Now) -> Result<(), DeviceError> {
        (self.answered, self.unanswered, self.failed) = (false, None, false);
        if !self.suspect || self.uuid.is_empty() || now.boottime_ns < self.next_lookup_ns {
            return Ok(());
        }
        self.next_lookup_ns = now.boottime_ns.saturating_add(self.lookup_gap_ns);
        self.lookup_gap_ns = (self.lookup_gap_ns * 2).min(RAREST_LOOKUP_NS);
        match self.gpu.library().device_by_uuid(&self.uuid) {
            Ok(gpu) => {
                if !gpu.is_same(&self.gpu) {
                    self.lookup_gap_ns = FIRST_LOOKUP_NS;
                }
                self.gpu = gpu;
                self.suspect = false;
                Ok(())
            }
            Err(code) if code.is_source_gone() => Err(DeviceError::SourceGone(format!("looking for {}: {code}", self.uuid))),
            Err(code) => Err(DeviceError::Lost(format!("looking for {}: {code}", self.uuid))),
        }
    }

    /// After a question. One that went wholly unanswered is that metric's trouble, unless other calls go unanswered too.
    pub(crate) fn end(&mut self) -> Result<(), DeviceError> {
        match self.unanswered {
            Some(code) if !self.answered => self.probe_whether_lost(code),
            _ => {
                if !self.suspect {
                    self.lookup_gap_ns = FIRST_LOOKUP_NS;
                }
                Ok(())
            }
        }
    }

    /// Makes some of the cheapest calls until one is answered.
    fn probe_whether_lost(&self, unanswered: Code) -> Result<(), DeviceError> {
        const CONTROLS: [Control; 4] = [
            |gpu| gpu.temperature().map(drop),
            |gpu| gpu.clock(Clock::Sm).map(drop),
            |gpu| gpu.power_usage().map(drop),
            |gpu| gpu.memory_v1().map(drop),
        ];
        for control in CONTROLS {
            match control(&self.gpu) {
                Err(code) if is_no_answer(code) => {}
                Err(code) if code.is_source_gone() => return Err(DeviceError::SourceGone(code.to_string())),
                Err(code) if code.is_device_lost() => return Err(DeviceError::Lost(code.to_string())),
                Ok(()) | Err(_) => return Ok(()),
            }
        }
        Err(DeviceError::Lost(format!("no call is answered: {unanswered}")))
    }

    /// Makes a call, unless it is known not to be there.
    pub(crate) fn ask<T>(&mut self, call: Call, make: impl FnOnce(&Gpu) -> Result<T, Code>) -> Result<Outcome<T>, DeviceError> {
        if self.is_never(call) {
            return Ok(Outcome::Never);
        }
        let result = make(&self.gpu);
        self.settle(call, result)
    }

    pub(crate) const fn is_never(&self, call: Call) -> bool {
        self.never & call.bit() != 0
    }

    /// What the result of a call that was made comes to.
    pub(crate) fn settle<T>(&mut self, call: Call, result: Result<T, Code>) -> Result<Outcome<T>, DeviceError> {
        let code = match result {
            Ok(value) => {
                self.answered = true;
                return Ok(Outcome::Value(value));
            }
            Err(code) => code,
        };
        if code.is_source_gone() {
            return Err(DeviceError::SourceGone(format!("{call:?}: {code}")));
        }
        if !code.is_never() && code != Code::NOT_FOUND {
            self.count(call, code);
        }
        if code.is_device_lost() {
            self.suspect = true;
            return Err(DeviceError::Lost(format!("{call:?}: {code}")));
        }
        if code.is_never() {
            self.answered = true;
            self.never |= call.bit();
            debug!("{}: {call:?} is not there: {code}", self.uuid);
            return Ok(Outcome::Never);
        }
        if is_no_answer(code) {
            self.unanswered = Some(code);
            self.suspect |= code == Code::INVALID_ARGUMENT;
        } else {
            self.answered = true;
        }
        self.failed |= code != Code::NOT_FOUND;
        Ok(Outcome::Failed(code))
    }

    /// Whether a call since [`begin`](Self::begin) failed in a way that may pass.
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed
    }

    fn count(&mut self, call: Call, code: Code) {
        match self.failures.iter_mut().find(|(failed, _)| *failed == call) {
            Some((_, failures)) => failures.count += 1,
            None => {
                debug!("{}: {call:?} fails: {code}", self.uuid);
                self.failures.push((call, Failures { call: format!("{call:?}"), count: 1 }));
            }
        }
    }

    /// Brings a reading's counts up to date, in the memory that it already has.
    pub(crate) fn tell_failures(&self, told: &mut Vec<Failures>) {
        told.truncate(self.failures.len());
        for (told, (_, failures)) in told.iter_mut().zip(&self.failures) {
            told.clone_from(failures);
        }
        let new = &self.failures[told.len()..];
        told.extend(new.iter().map(|(_, failures)| failures.clone()));
    }
}

/// A call whose value does not matter.
type Control = fn(&Gpu) -> Result<(), Code>;

/// Codes that say nothing of what was asked: a container that lost its access to the device gets 999 from everything, and a handle that is
/// no longer one is an invalid argument.
const fn is_no_answer(code: Code) -> bool {
    matches!(code, Code::UNKNOWN | Code::INVALID_ARGUMENT)
}
