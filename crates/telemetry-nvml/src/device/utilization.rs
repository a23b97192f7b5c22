//! The device's utilization, with the time at which the driver sampled it.

use std::time::Duration;

use telemetry::{Answer, DeviceError, Now, Reading, Stamp};

use super::{
    calls::{Call, Calls, Outcome},
    scratch::Scratch,
};
use crate::{
    pure::{
        clock::Cursor,
        rhythm::{Rhythm, Wait},
        samples::believed_samples,
    },
    sys::{Gpu, SampleKind},
};

/// Assumed until the driver's rhythm is known; drivers have been seen to sample every 1/6 s to every second.
const ASSUMED_PERIOD: Duration = Duration::from_millis(200);
/// Without a new sample for this long, or four periods, the current rates are asked for instead.
const SILENCE_NS: u64 = 3_000_000_000;

/// One of the driver's rings of samples.
#[derive(Debug)]
struct Ring {
    kind: SampleKind,
    call: Call,
    cursor: Cursor,
    rhythm: Rhythm,
    newest: Option<(Stamp, u32)>,
}

impl Ring {
    const fn new(kind: SampleKind, call: Call, cursor: Cursor, rhythm: Rhythm) -> Self {
        Self { kind, call, cursor, rhythm, newest: None }
    }

    /// Reads what is new; whether something was.
    fn read(&mut self, calls: &mut Calls, now: Now, scratch: &mut Scratch) -> Result<bool, DeviceError> {
        let since_us = self.cursor.since(now);
        let Scratch { ring, samples, .. } = scratch;
        if !matches!(calls.ask(self.call, |gpu| gpu.samples(self.kind, since_us, ring))?, Outcome::Value(())) {
            return Ok(false);
        }
        believed_samples(ring.samples(), since_us, now, samples);
        let last = self.newest.map(|(stamp, _)| stamp);
        let stamps = || samples.iter().map(|(stamp, _)| *stamp);
        for (earlier, later) in last.into_iter().chain(stamps()).zip(stamps().skip(usize::from(last.is_none()))) {
            self.rhythm.learn(earlier.boottime_ns(), later.boottime_ns());
        }
        // Of several, the newest and not their mean: the record carries one time, and this is what the GPU did then.
        let Some(newest) = samples.last() else { return Ok(false) };
        self.cursor.note(newest.0, now);
        let is_new = last.is_none_or(|last| newest.0.boottime_ns() > last.boottime_ns());
        // A clock that is adjusted may place a sample before the last one: time does not go backwards.
        if is_new {
            self.newest = Some(*newest);
        }
        Ok(is_new)
    }

    fn period(&self) -> Duration {
        self.rhythm.period().unwrap_or(ASSUMED_PERIOD)
    }

    /// The newest sample, unless the ring has fallen silent.
    fn current(&self, now: Now) -> Option<(Stamp, u32)> {
        let silence_ns = u64::try_from(self.period().as_nanos()).map_or(SILENCE_NS, |period| (period * 4).max(SILENCE_NS));
        self.newest.filter(|(stamp, _)| now.boottime_ns.saturating_sub(stamp.boottime_ns()) <= silence_ns)
    }
}

/// What is remembered of the device's utilization.
#[derive(Debug)]
pub(crate) struct Utilization {
    gpu: Ring,
    memory: Ring,
    /// How long the rings need not be read.
    rings_wait: Wait,
    rings_due_ns: u64,
    /// The rates serve, which have no rhythm of their own.
    rates_serve: bool,
}

impl Default for Utilization {
    fn default() -> Self {
        Self {
            gpu: Ring::new(SampleKind::Gpu, Call::GpuSamples, Cursor::default(), Rhythm::default()),
            memory: Ring::new(SampleKind::Memory, Call::MemorySamples, Cursor::default(), Rhythm::default()),
            rings_wait: Wait::NONE,
            rings_due_ns: 0,
            rates_serve: false,
        }
    }
}

impl Utilization {
    pub(crate) fn wait(&self) -> Duration {
        if self.rates_serve { Duration::ZERO } else { self.rings_wait.get() }
    }

    pub(crate) fn ask(&mut self, calls: &mut Calls, now: Now, reading: &mut Reading, scratch: &mut Scratch) -> Result<Answer, DeviceError> {
        // Otherwise it is for the ring's next sample that this was asked.
        let rings_are_due = !self.rates_serve || now.boottime_ns >= self.rings_due_ns;
        if rings_are_due {
            self.read_gpu_ring(calls, now, scratch)?;
        }
        let rates = calls.ask(Call::UtilizationRates, Gpu::utilization_rates)?;
        // The rates' memory part stands for the memory ring, which costs as much again as the GPU's. That it is that ring's newest sample is
        // likely and not documented; it is not older than the driver's period.
        if rates.value().is_none() && rings_are_due {
            self.memory.read(calls, now, scratch)?;
        }
        let rates = rates.value().filter(|(gpu, memory)| *gpu <= 100 && *memory <= 100);
        let (gpu, memory) = (self.gpu.current(now), self.memory.current(now));
        self.rates_serve = gpu.is_none() && rates.is_some();
        reading.metrics.sm_util_pct = gpu.map(|(_, pct)| pct).or(rates.map(|(gpu, _)| gpu));
        reading.metrics.mem_util_pct = rates.map(|(_, memory)| memory).or(memory.map(|(_, pct)| pct));
        reading.sampled = gpu.map(|(stamp, _)| stamp).or(rates.map(|_| now.stamp()));
        let is_never = [Call::GpuSamples, Call::UtilizationRates, Call::MemorySamples].iter().all(|call| calls.is_never(*call));
        Ok(if is_never { Answer::NotSupported } else { Answer::Answered })
    }

    fn read_gpu_ring(&mut self, calls: &mut Calls, now: Now, scratch: &mut Scratch) -> Result<(), DeviceError> {
        let is_new = self.gpu.read(calls, now, scratch)?;
        match self.gpu.newest {
            Some((stamp, _)) if is_new => self.rings_wait.found(stamp.boottime_ns(), now.boottime_ns, self.gpu.period()),
            _ => self.rings_wait.nothing(self.gpu.period()),
        }
        self.rings_due_ns = now.boottime_ns.saturating_add(self.rings_wait.get().as_nanos() as u64);
        Ok(())
    }
}
