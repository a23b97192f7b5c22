//! The clocks that NVML's answers depend on.

use nix::time::{ClockId, clock_gettime};

fn nanoseconds(clock: ClockId) -> u64 {
    // Fails only for a clock that the kernel does not know; these are older than any kernel that is supported.
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// `CLOCK_BOOTTIME` in nanoseconds.
pub fn boottime_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_BOOTTIME)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME` in microseconds: the clock of NVML's sample times.
pub fn realtime_us() -> u64 {
    nanoseconds(ClockId::CLOCK_REALTIME) / 1_000
}
