//! Which device looks through /proc for all.
//!
//! It stays the same one, so that whoever asks it learns what a look costs and can ration it. When its card sleeps or is lost, another takes
//! its place.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

const NOBODY: usize = usize::MAX;
/// One that has been asked nothing for longer does not look either.
const AWAY_NS: u64 = 2_000_000_000;
/// How soon the others see whether it still does.
pub(super) const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// The one that looks, and when it was last asked anything. That two take its place at once does no harm: the second finds the look done.
#[derive(Debug)]
pub(crate) struct Looker {
    place: AtomicUsize,
    seen_ns: AtomicU64,
}

impl Default for Looker {
    fn default() -> Self {
        Self { place: AtomicUsize::new(NOBODY), seen_ns: AtomicU64::new(0) }
    }
}

impl Looker {
    /// The device at `place` is asked something, and its card is awake.
    pub(super) fn saw(&self, place: usize, now_ns: u64) {
        if self.place.load(Ordering::Relaxed) == place {
            self.seen_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Whether the device at `place` is the one, which it becomes when the one before is away.
    pub(super) fn is_it(&self, place: usize, now_ns: u64) -> bool {
        let looker = self.place.load(Ordering::Relaxed);
        let is_away = looker == NOBODY || now_ns.saturating_sub(self.seen_ns.load(Ordering::Relaxed)) > AWAY_NS;
        if looker != place && is_away {
            self.place.store(place, Ordering::Relaxed);
            self.seen_ns.store(now_ns, Ordering::Relaxed);
        }
        looker == place || is_away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn the_first_stays_the_one_while_it_is_asked_and_another_follows_when_it_is_not() {
        let looker = Looker::default();
        assert!(looker.is_it(3, SECOND_NS));
        for second in 1..20 {
            looker.saw(1, second * SECOND_NS);
            looker.saw(3, second * SECOND_NS);
            assert!(!looker.is_it(1, second * SECOND_NS) && looker.is_it(3, second * SECOND_NS));
        }
        looker.saw(1, 21 * SECOND_NS);
        assert!(!looker.is_it(1, 21 * SECOND_NS));
        assert!(looker.is_it(1, 22 * SECOND_NS));
        assert!(!looker.is_it(3, 23 * SECOND_NS), "it has lost its place");
    }
}
