//! How often new samples appear, learned from their times.

use std::time::Duration;

/// Longer gaps are pauses (a process that did nothing has no samples), not the rhythm.
const LONGEST_NS: u64 = 5_000_000_000;
/// Shorter ones are samples of the same moment.
const SHORTEST_NS: u64 = 1_000_000;
const KEPT: usize = 15;

/// The last few gaps between samples; their median is the rhythm, so that neither a missed sample nor a late one changes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rhythm {
    gaps_ns: [u64; KEPT],
    seen: usize,
}

impl Rhythm {
    /// Learns from two samples that followed each other, by their places on one clock.
    pub(crate) fn learn(&mut self, earlier_ns: u64, later_ns: u64) {
        let gap = later_ns.saturating_sub(earlier_ns);
        if (SHORTEST_NS..=LONGEST_NS).contains(&gap) {
            self.gaps_ns[self.seen % KEPT] = gap;
            self.seen += 1;
        }
    }

    /// The rhythm, once it is known.
    pub(crate) fn period(&self) -> Option<Duration> {
        let mut gaps = self.gaps_ns;
        let gaps = &mut gaps[..self.seen.min(KEPT)];
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied().map(Duration::from_nanos)
    }
}

/// When to ask again for what appears at a rhythm: a wait, counted from the asking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// How often it was asked in vain since the last new sample.
    vain: u32,
    wait: Duration,
}

impl Wait {
    /// Asked at once at first.
    pub(crate) const NONE: Self = Self { vain: 0, wait: Duration::ZERO };

    pub(crate) const fn get(&self) -> Duration {
        self.wait
    }

    /// A new sample was there; the next can exist a period after it.
    pub(crate) fn found(&mut self, sampled_boottime_ns: u64, now_boottime_ns: u64, period: Duration) {
        let age = Duration::from_nanos(now_boottime_ns.saturating_sub(sampled_boottime_ns));
        // An old sample means that one could be there at any time.
        *self = Self { vain: 0, wait: period.checked_sub(age).unwrap_or(period / 4) };
    }

    /// Nothing new: soon again, then ever later up to a second.
    pub(crate) fn nothing(&mut self, period: Duration) {
        self.vain = self.vain.saturating_add(1);
        self.wait = (period / 4).saturating_mul(self.vain).clamp(Duration::from_millis(10), Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_rhythm_is_the_median_gap() {
        let mut rhythm = Rhythm::default();
        assert_eq!(rhythm.period(), None);
        for gap in [1_000, 1_000, 2_000, 1_000, 300] {
            rhythm.learn(0, gap * MS);
        }
        assert_eq!(rhythm.period(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn pauses_and_samples_of_one_moment_teach_nothing() {
        let mut rhythm = Rhythm::default();
        rhythm.learn(0, 60_000 * MS);
        rhythm.learn(0, 10);
        rhythm.learn(50, 20);
        assert_eq!(rhythm.period(), None);
    }

    #[test]
    fn a_driver_that_changes_its_rhythm_is_followed() {
        let mut rhythm = Rhythm::default();
        (0..20).for_each(|_| rhythm.learn(0, 1_000 * MS));
        (0..20).for_each(|_| rhythm.learn(0, 200 * MS));
        assert_eq!(rhythm.period(), Some(Duration::from_millis(200)));
    }

    #[test]
    fn the_wait_ends_when_the_next_sample_can_exist() {
        let mut wait = Wait::NONE;
        wait.found(1_000 * MS, 1_300 * MS, Duration::from_secs(1));
        assert_eq!(wait.get(), Duration::from_millis(700));
        wait.nothing(Duration::from_secs(1));
        assert_eq!(wait.get(), Duration::from_millis(250));
        (0..9).for_each(|_| wait.nothing(Duration::from_secs(1)));
        assert_eq!(wait.get(), Duration::from_secs(1));
        wait.found(1_000 * MS, 9_000 * MS, Duration::from_secs(1));
        assert_eq!(wait.get(), Duration::from_millis(250));
    }

    proptest! {
        #[test]
        fn a_period_is_one_of_the_gaps_and_a_wait_is_bounded(stamps in prop::collection::vec((any::<u64>(), any::<u64>()), 0..60), now in any::<u64>()) {
            let mut rhythm = Rhythm::default();
            let mut wait = Wait::NONE;
            for (earlier, later) in stamps {
                rhythm.learn(earlier, later);
                let period = rhythm.period().unwrap_or(Duration::from_secs(1));
                prop_assert!(period.as_nanos() >= u128::from(SHORTEST_NS) && period.as_nanos() <= u128::from(LONGEST_NS));
                wait.found(later, now, period);
                prop_assert!(wait.get() <= period);
                wait.nothing(period);
                prop_assert!(wait.get() <= Duration::from_secs(1));
            }
        }
    }
}
