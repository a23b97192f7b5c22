//! Points in time that survive a step of the wall clock.

use serde::{Deserialize, Serialize};

/// A change of the clock offset by more than this, in nanoseconds, is a step of the wall clock; below, it is slewing and rounding.
pub const CLOCK_STEP_NS: u64 = 10_000_000;

/// One bracketed reading of the clocks: `CLOCK_BOOTTIME`, and how far `CLOCK_REALTIME` is from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME` − `CLOCK_BOOTTIME` in nanoseconds.
    pub clock_offset_ns: i64,
}

impl Now {
    /// `CLOCK_REALTIME` in nanoseconds.
    pub const fn realtime_ns(&self) -> u64 {
        self.boottime_ns.saturating_add_signed(self.clock_offset_ns)
    }

    /// This moment as the time of a reading, for metrics without a sample time of their own.
    pub const fn stamp(&self) -> Stamp {
        Stamp { realtime_ns: self.realtime_ns(), clock_offset_ns: self.clock_offset_ns }
    }
}

/// When something was measured: the wall-clock time as its source gave it, with the clock offset that was in force when it was read, so
/// that the sample's place on `CLOCK_BOOTTIME` stays known when the wall clock is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// `CLOCK_REALTIME` in nanoseconds.
    pub realtime_ns: u64,
    /// `CLOCK_REALTIME` − `CLOCK_BOOTTIME` in nanoseconds when the sample was read.
    pub clock_offset_ns: i64,
}

impl Stamp {
    /// The sample's place on `CLOCK_BOOTTIME`, in nanoseconds.
    pub const fn boottime_ns(&self) -> u64 {
        match self.clock_offset_ns.checked_neg() {
            Some(back) => self.realtime_ns.saturating_add_signed(back),
            None => self.realtime_ns,
        }
    }
}
