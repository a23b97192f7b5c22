//! A GPU whose handle cannot be had when the source is opened: it fell off the bus, lacks power, needs a reset. It may come.

use std::time::Duration;

use telemetry::{Answer, Device, DeviceError, Identity, Now, Probe, Reading};

use super::{NvmlDevice, PROBES, Turnstiles};
use crate::{
    source::identify,
    sys::{Code, Library},
};

/// Asking for a handle takes milliseconds, so it is done ever less often.
const FIRST_GAP_NS: u64 = 1_000_000_000;
const LONGEST_GAP_NS: u64 = 64_000_000_000;

/// Looks for its handle until it has one, and is that device from then on.
#[derive(Debug)]
pub(crate) struct LateDevice {
    identity: Identity,
    library: Library,
    turnstiles: Turnstiles,
    found: Option<Box<dyn Device>>,
    failure: Code,
    next_look_ns: u64,
    gap_ns: u64,
}

impl LateDevice {
    /// The device of this index, of which nothing else is known, and why its handle could not be had.
    pub(crate) fn boxed(index: u32, vendor_id: u32, library: Library, turnstiles: &Turnstiles, failure: Code) -> Box<dyn Device> {
        let identity = Identity { index, vendor_id, ..Identity::default() };
        Box::new(Self { identity, library, turnstiles: turnstiles.clone(), found: None, failure, next_look_ns: 0, gap_ns: FIRST_GAP_NS })
    }

    fn look(&mut self, now: Now) -> Result<&mut Box<dyn Device>, DeviceError> {
        if self.found.is_none() && now.boottime_ns >= self.next_look_ns {
            self.next_look_ns = now.boottime_ns.saturating_add(self.gap_ns);
            self.gap_ns = (self.gap_ns * 2).min(LONGEST_GAP_NS);
            match self.library.device(self.identity.index) {
                Ok(gpu) => {
                    self.identity = identify(&gpu, self.identity.index);
                    self.found = Some(NvmlDevice::boxed(self.identity.clone(), gpu, &self.turnstiles));
                }
                Err(code) if code.is_source_gone() => return Err(DeviceError::SourceGone(format!("looking for a handle: {code}"))),
                Err(code) => self.failure = code,
            }
        }
        self.found.as_mut().ok_or_else(|| DeviceError::Lost(format!("no handle: {}", self.failure)))
    }
}

impl Device for LateDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn probes(&self) -> &[Probe] {
        &PROBES
    }

    fn period(&self, probe: usize) -> Duration {
        self.found.as_ref().map_or(PROBES[probe].period, |device| device.period(probe))
    }

    fn ask(&mut self, probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        self.look(now)?.ask(probe, now, reading)
    }

    fn time_elsewhere(&self) -> Duration {
        self.found.as_ref().map_or(Duration::ZERO, |device| device.time_elsewhere())
    }

    fn time_waiting(&self) -> Duration {
        self.found.as_ref().map_or(Duration::ZERO, |device| device.time_waiting())
    }
}
