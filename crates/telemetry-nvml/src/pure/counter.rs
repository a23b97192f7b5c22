//! Byte counters into rates.

/// How many of a counter's bits the driver hands out before it starts again at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Bits16,
    Bits32,
    Bits64,
}

impl Width {
    /// The number of values; `None` for 2⁶⁴, which no counter of bytes passes in a machine's life.
    const fn modulus(self) -> Option<u64> {
        match self {
            Self::Bits16 => Some(1 << 16),
            Self::Bits32 => Some(1 << 32),
            Self::Bits64 => None,
        }
    }
}

/// One reading of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) value: u64,
    pub(crate) width: Width,
}

/// What a counter counts, and how fast it can at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Bytes that one count stands for.
    pub(crate) unit_bytes: u64,
    /// The fastest that the link can go, in kB/s.
    pub(crate) limit_kbps: u64,
    /// Whether `limit_kbps` is this link's own, and not merely what no link exceeds. A counter that can wrap needs the former.
    pub(crate) limit_known: bool,
}

/// What a reading, compared with the one before, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The first reading: the next one gives a rate.
    First,
    /// Too soon after the last one to divide by; the last one stays.
    TooSoon,
    /// The rate since the last reading, in kB/s.
    Rate(u64),
    /// The counter stands lower than before: it was reset.
    Reset,
    /// It may have wrapped more than once since the last reading.
    Ambiguous,
    /// More than the link can carry: this is no counter of bytes, or was reset.
    TooFast,
}

/// Below this the clock's and the call's own jitter is a large part of the interval.
const SHORTEST_INTERVAL_NS: u64 = 1_000_000;

/// A counter's last reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    last: Option<(Count, u64)>,
}

impl Counter {
    /// Takes a reading made at `boottime_ns`.
    pub(crate) fn advance(&mut self, count: Count, boottime_ns: u64, scale: Scale) -> Change {
        let Some((last, last_ns)) = self.last else {
            self.last = Some((count, boottime_ns));
            return Change::First;
        };
        let elapsed_ns = boottime_ns.saturating_sub(last_ns);
        if elapsed_ns < SHORTEST_INTERVAL_NS {
            return Change::TooSoon;
        }
        self.last = Some((count, boottime_ns));
        if last.width != count.width {
            return Change::Reset;
        }
        let delta = match count.width.modulus() {
            None if count.value < last.value => return Change::Reset,
            None => count.value - last.value,
            Some(modulus) => {
                if !scale.limit_known || scale.most_counts(elapsed_ns) >= u128::from(modulus) {
                    return Change::Ambiguous;
                }
                count.value.wrapping_sub(last.value) & (modulus - 1)
            }
        };
        match scale.rate_kbps(delta, elapsed_ns) {
            rate if rate > u128::from(scale.limit_kbps) => Change::TooFast,
            // The cast is exact: the rate is not above a u64.
            rate => Change::Rate(rate as u64),
        }
    }

    /// Forgets the last reading.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }
}

impl Scale {
    /// How many counts the link can make in `elapsed_ns`.
    fn most_counts(self, elapsed_ns: u64) -> u128 {
        u128::from(self.limit_kbps) * u128::from(elapsed_ns) / 1_000_000 / u128::from(self.unit_bytes.max(1))
    }

    /// Rounded to the nearest kB/s.
    fn rate_kbps(self, delta: u64, elapsed_ns: u64) -> u128 {
        let elapsed = u128::from(elapsed_ns);
        (u128::from(delta) * u128::from(self.unit_bytes) * 1_000_000 + elapsed / 2) / elapsed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GEN5_X16: Scale = Scale { unit_bytes: 1, limit_kbps: 64_000_000, limit_known: true };
    const SLOW: Scale = Scale { unit_bytes: 1, limit_kbps: 250_000, limit_known: true };

    const fn wide(value: u64) -> Count {
        Count { value, width: Width::Bits64 }
    }

    const fn narrow(value: u64) -> Count {
        Count { value, width: Width::Bits32 }
    }

    #[track_caller]
    fn check(scale: Scale, first: Count, second: Count, elapsed_ms: u64, expected: Change) {
        let mut counter = Counter::default();
        assert_eq!(counter.advance(first, 5, scale), Change::First);
        assert_eq!(counter.advance(second, 5 + elapsed_ms * 1_000_000, scale), expected);
    }

    #[test]
    fn a_delta_is_divided_by_the_time_that_really_passed() {
        check(GEN5_X16, wide(1_000), wide(5_001_000), 1_000, Change::Rate(5_000));
        check(GEN5_X16, wide(1_000), wide(5_001_000), 250, Change::Rate(20_000));
        check(GEN5_X16, wide(7), wide(7), 250, Change::Rate(0));
    }

    #[test]
    fn kib_counters_give_kb_per_second() {
        check(Scale { unit_bytes: 1024, ..GEN5_X16 }, wide(0), wide(1_000), 1_000, Change::Rate(1_024));
    }

    #[test]
    fn a_64_bit_counter_that_fell_was_reset() {
        check(GEN5_X16, wide(1_000_000), wide(10), 100, Change::Reset);
    }

    #[test]
    fn a_32_bit_counter_wraps_where_the_link_is_slow_enough() {
        check(SLOW, narrow(u64::from(u32::MAX) - 999), narrow(1_000_000 - 1_000), 100, Change::Rate(10_000));
    }

    #[test]
    fn a_32_bit_counter_on_a_fast_link_is_ambiguous_after_68_ms() {
        check(GEN5_X16, narrow(0), narrow(1_000), 68, Change::Ambiguous);
        check(GEN5_X16, narrow(0), narrow(1_000_000), 50, Change::Rate(20_000));
        check(Scale { limit_known: false, ..GEN5_X16 }, narrow(0), narrow(1_000_000), 50, Change::Ambiguous);
    }

    #[test]
    fn more_than_the_link_carries_is_refused() {
        check(SLOW, wide(0), wide(250_001_000), 1_000, Change::TooFast);
        check(SLOW, wide(0), wide(250_000_000), 1_000, Change::Rate(250_000));
    }

    #[test]
    fn two_readings_in_one_instant_keep_the_first() {
        let mut counter = Counter::default();
        assert_eq!(counter.advance(wide(0), 0, GEN5_X16), Change::First);
        assert_eq!(counter.advance(wide(500), 10, GEN5_X16), Change::TooSoon);
        assert_eq!(counter.advance(wide(1_000_000), 1_000_000_000, GEN5_X16), Change::Rate(1_000));
    }

    proptest! {
        #[test]
        fn no_rate_exceeds_the_link(
            readings in prop::collection::vec((any::<u64>(), any::<bool>(), 0_u64..20_000_000_000), 1..40),
            limit_kbps in 1_u64..200_000_000,
            limit_known in any::<bool>(),
            unit_bytes in prop_oneof![Just(1_u64), Just(1024)],
        ) {
            let scale = Scale { unit_bytes, limit_kbps, limit_known };
            let mut counter = Counter::default();
            let mut now = 0;
            for (value, is_narrow, gap) in readings {
                now += gap;
                let count = if is_narrow { narrow(value & u64::from(u32::MAX)) } else { wide(value) };
                if let Change::Rate(rate) = counter.advance(count, now, scale) {
                    prop_assert!(rate <= limit_kbps);
                }
            }
        }

        #[test]
        fn an_honest_counter_gives_its_rate_through_wraps(start in any::<u32>(), kbps in 0_u64..=250_000, gaps_ms in prop::collection::vec(1_u64..15_000, 1..20)) {
            let mut counter = Counter::default();
            let mut total = u64::from(start);
            let mut now = 0;
            counter.advance(narrow(total & u64::from(u32::MAX)), now, SLOW);
            for gap in gaps_ms {
                now += gap * 1_000_000;
                total += kbps * gap;
                prop_assert_eq!(counter.advance(narrow(total & u64::from(u32::MAX)), now, SLOW), Change::Rate(kbps));
            }
        }
    }
}
