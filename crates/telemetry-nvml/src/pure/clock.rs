//! NVML's time stamps against the clocks: how far a stamp may be off, and what a step of the wall clock means for a cursor.

use telemetry::{CLOCK_STEP_NS, Now, Stamp};

/// How far in the future a stamp may lie and still be believed, in nanoseconds.
const FUTURE_NS: u64 = 1_000_000_000;

/// A sample's time, from NVML's microseconds of `CLOCK_REALTIME`; `None` when no sample can have been taken then: before the machine
/// was started, or more than a second from now.
pub(crate) fn believable(stamp_us: u64, now: Now) -> Option<Stamp> {
    let realtime_ns = stamp_us.checked_mul(1_000)?;
    let boot_ns = u64::try_from(now.clock_offset_ns).unwrap_or(0);
    let sound = stamp_us != 0 && realtime_ns >= boot_ns && realtime_ns <= now.realtime_ns().saturating_add(FUTURE_NS);
    sound.then_some(Stamp { realtime_ns, clock_offset_ns: now.clock_offset_ns })
}

/// How far a driver's samples have been read: a time on its clock, moved along when that clock is set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    seen_us: u64,
    offset_ns: Option<i64>,
}

impl Cursor {
    /// The time after which samples are wanted, in NVML's microseconds; 0 at first, for all that there are. To be called before each
    /// reading: it is here that a step of the wall clock is noticed.
    pub(crate) fn since(&mut self, now: Now) -> u64 {
        let step_ns = self.offset_ns.map_or(0, |offset| now.clock_offset_ns.saturating_sub(offset));
        if self.offset_ns.is_none() || step_ns.unsigned_abs() > CLOCK_STEP_NS {
            self.offset_ns = Some(now.clock_offset_ns);
            if self.seen_us != 0 {
                // Not back to 0: that would ask for samples which were already read.
                self.seen_us = self.seen_us.saturating_add_signed(step_ns / 1_000).max(1);
            }
        }
        self.seen_us
    }

    /// Notes a sample that was accepted. A stamp from the future moves the cursor to now only, so that it hides nothing.
    pub(crate) fn note(&mut self, stamp: Stamp, now: Now) {
        let seen_us = stamp.realtime_ns.min(now.realtime_ns()) / 1_000;
        if seen_us > self.seen_us {
            *self = Self { seen_us, offset_ns: Some(now.clock_offset_ns) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;
    const OFFSET_NS: i64 = 1_700_000_000_000_000_000;

    const fn at(boottime_ns: u64, clock_offset_ns: i64) -> Now {
        Now { boottime_ns, clock_offset_ns }
    }

    #[test]
    fn a_stamp_keeps_its_time_exactly() {
        let now = at(50_000_000_000, OFFSET_NS);
        let stamp = believable(now.realtime_ns() / 1_000 - 7, now).unwrap();
        assert_eq!(stamp, Stamp { realtime_ns: now.realtime_ns() - 7_000, clock_offset_ns: OFFSET_NS });
    }

    #[test]
    fn stamps_before_the_machine_started_or_beyond_a_second_are_not_believed() {
        let now = at(50_000_000_000, OFFSET_NS);
        let now_us = now.realtime_ns() / 1_000;
        assert!(believable(now_us + 1_000_000, now).is_some());
        for garbage in [0, 1, 1_000_000, now_us - 50_000_001, now_us + 1_000_001, u64::MAX] {
            assert_eq!(believable(garbage, now), None, "{garbage}");
        }
    }

    #[test]
    fn a_step_moves_the_cursor_along() {
        let mut cursor = Cursor::default();
        let before = at(50_000_000_000, OFFSET_NS);
        assert_eq!(cursor.since(before), 0);
        cursor.note(before.stamp(), before);
        assert_eq!(cursor.since(before), before.realtime_ns() / 1_000);
        for step in [-HOUR_NS, HOUR_NS] {
            let after = at(50_100_000_000, OFFSET_NS + step);
            let mut cursor = cursor;
            assert_eq!(cursor.since(after), before.realtime_ns().saturating_add_signed(step) / 1_000);
        }
    }

    #[test]
    fn a_small_adjustment_does_not_move_it() {
        let mut cursor = Cursor::default();
        let now = at(50_000_000_000, OFFSET_NS);
        cursor.since(now);
        cursor.note(now.stamp(), now);
        assert_eq!(cursor.since(at(50_000_000_000, OFFSET_NS + 9_000_000)), now.realtime_ns() / 1_000);
    }

    proptest! {
        #[test]
        fn the_cursor_never_stands_in_the_future(steps in prop::collection::vec((0_u64..5_000_000_000, -HOUR_NS..HOUR_NS, -2_000_000_i64..2_000_000), 1..50)) {
            let mut cursor = Cursor::default();
            let mut now = at(7_200_000_000_000, OFFSET_NS);
            for (gap, step, ahead_us) in steps {
                now.boottime_ns += gap;
                now.clock_offset_ns = OFFSET_NS + step;
                let since = cursor.since(now);
                prop_assert!(since <= now.realtime_ns() / 1_000 + 10_000);
                if let Some(stamp) = believable((now.realtime_ns() / 1_000).saturating_add_signed(ahead_us), now) {
                    prop_assert!(stamp.realtime_ns <= now.realtime_ns() + FUTURE_NS);
                    cursor.note(stamp, now);
                }
            }
        }
    }
}
