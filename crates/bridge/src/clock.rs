//! The two clocks of the contract, read together.

use std::fmt::Debug;

use nix::time::{ClockId, clock_gettime};
use telemetry::Now;

/// Where time comes from; a parameter everywhere, so that tests can set it.
pub trait Clock: Debug + Send + Sync {
    /// `CLOCK_REALTIME` in nanoseconds.
    fn realtime_ns(&self) -> u64;

    /// `CLOCK_BOOTTIME` in nanoseconds.
    fn boottime_ns(&self) -> u64;

    /// Both clocks, bracketed: boottime is read between two reads of realtime, again while these lie more than 100 µs apart or run backwards.
    /// Where clock reads are slow the tightest bracket of a few is taken.
    fn now(&self) -> Now {
        const CLOSE_ENOUGH_NS: u64 = 100_000;
        const ATTEMPTS: usize = 5;

        let mut tightest: Option<(u64, Now)> = None;
        for _ in 0..ATTEMPTS {
            let before = self.realtime_ns();
            let boottime_ns = self.boottime_ns();
            let after = self.realtime_ns();
            let Some(width) = after.checked_sub(before) else { continue };
            let middle = before + width / 2;
            let now = Now { boottime_ns, clock_offset_ns: middle.wrapping_sub(boottime_ns).cast_signed() };
            if tightest.is_none_or(|(best, _)| width < best) {
                tightest = Some((width, now));
            }
            if width <= CLOSE_ENOUGH_NS {
                break;
            }
        }
        tightest.map_or_else(
            // The wall clock ran backwards within every bracket.
            || {
                let boottime_ns = self.boottime_ns();
                Now { boottime_ns, clock_offset_ns: self.realtime_ns().wrapping_sub(boottime_ns).cast_signed() }
            },
            |(_, now)| now,
        )
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn realtime_ns(&self) -> u64 {
        read(ClockId::CLOCK_REALTIME)
    }

    fn boottime_ns(&self) -> u64 {
        read(ClockId::CLOCK_BOOTTIME)
    }
}

fn read(clock: ClockId) -> u64 {
    // The kernel supports both clocks since 2.6.39; a failure would be a broken vDSO, and 0 reads as "never".
    clock_gettime(clock).map_or(0, |time| time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Answers with scripted values; every read takes `step_ns` on both clocks.
    #[derive(Debug)]
    struct Scripted {
        realtime: Mutex<Vec<u64>>,
        boottime_ns: u64,
    }

    impl Clock for Scripted {
        fn realtime_ns(&self) -> u64 {
            self.realtime.lock().unwrap().pop().expect("read the clock once too often")
        }

        fn boottime_ns(&self) -> u64 {
            self.boottime_ns
        }
    }

    #[track_caller]
    fn check(realtime: &[u64], boottime_ns: u64, offset: i64) {
        let clock = Scripted { realtime: Mutex::new(realtime.iter().rev().copied().collect()), boottime_ns };
        assert_eq!(clock.now(), Now { boottime_ns, clock_offset_ns: offset });
    }

    #[test]
    fn the_offset_is_taken_at_the_middle_of_the_bracket() {
        check(&[1_000_000, 1_000_100], 400, 999_650);
    }

    #[test]
    fn a_wide_bracket_is_tried_again() {
        check(&[1_000_000, 1_900_000, 2_000_000, 2_000_200], 100, 2_000_000);
    }

    #[test]
    fn of_wide_brackets_only_the_tightest_counts() {
        check(&[0, 500_000, 1_000_000, 1_400_000, 2_000_000, 2_200_000, 3_000_000, 3_600_000, 4_000_000, 4_700_000], 0, 2_100_000);
    }

    #[test]
    fn a_bracket_over_a_backward_step_is_dropped() {
        check(&[9_000_000, 1_000, 1_100, 1_200], 50, 1_100);
    }

    #[test]
    fn the_wall_clock_may_be_behind_the_boot_clock() {
        check(&[1_000, 1_000], 5_000, -4_000);
    }

    #[test]
    fn the_systems_clocks_agree_with_the_kernels_offset() {
        let first = SystemClock.now();
        let second = SystemClock.now();
        assert!(second.boottime_ns > first.boottime_ns);
        assert!((second.clock_offset_ns - first.clock_offset_ns).abs() < 1_000_000);
        assert!(first.realtime_ns() > 1_600_000_000_000_000_000);
    }
}
