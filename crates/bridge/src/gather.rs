//! When the rounds of several sources are one picture: a pure function of deliveries and times.
//!
//! All samplers tick together (see [`crate::grid`]). A tick is complete when every source that was in time at the last one has delivered; else it is
//! taken a little after the first delivery. A late source's round goes out with the next tick.

use std::time::{Duration, Instant};

use crate::records::News;

/// How long the first to deliver waits for the others; a quarter of the interval where that is shorter.
const LONGEST_GRACE: Duration = Duration::from_millis(25);

/// Who has delivered what, by the source's number.
#[derive(Debug)]
pub(crate) struct Gather {
    origin: Instant,
    interval: Duration,
    turns: Vec<Turn>,
    /// The tick that is being gathered.
    tick: u64,
    /// When the first to deliver did so.
    first: Option<Instant>,
}

/// What one source has delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    is_open: bool,
    /// The tick of the newest round with news.
    tick: Option<u64>,
    /// There is a round, of whatever kind, that was not taken yet.
    is_pending: bool,
    /// There is one with news.
    has_news: bool,
    /// In time at the last tick, or back since then.
    is_expected: bool,
}

impl Turn {
    fn is_in_time(&self, tick: u64) -> bool {
        self.tick.is_some_and(|delivered| delivered >= tick)
    }
}

impl Gather {
    /// For so many sources whose ticks are a whole number of intervals from `origin`.
    pub(crate) fn new(sources: usize, origin: Instant, interval: Duration) -> Self {
        Self { origin, interval, turns: vec![Turn::default(); sources], tick: 0, first: None }
    }

    /// A source was opened. It is waited for when it has delivered once.
    pub(crate) fn join(&mut self, source: usize) {
        self.turns[source] = Turn { is_open: true, ..Turn::default() };
    }

    /// A source delivers no more.
    pub(crate) fn leave(&mut self, source: usize) {
        self.turns[source] = Turn::default();
        if !self.turns.iter().any(|turn| turn.is_in_time(self.tick)) {
            self.first = None;
        }
    }

    /// A source has delivered a round.
    pub(crate) fn deliver(&mut self, source: usize, has_news: bool, now: Instant) {
        let passed = now.saturating_duration_since(self.origin).as_nanos();
        let tick = (passed / self.interval.as_nanos().max(1)) as u64;
        // Whoever is alone has nobody to be in step with.
        let is_alone = self.turns.iter().filter(|turn| turn.is_open).count() <= 1;
        let tick = if is_alone { tick.max(self.tick) } else { tick };
        let turn = &mut self.turns[source];
        turn.is_pending = true;
        turn.has_news |= has_news;
        turn.is_expected = has_news;
        if has_news {
            turn.tick = Some(tick);
            if tick >= self.tick {
                self.first.get_or_insert(now);
            }
        }
    }

    /// Until when a tick that has begun to come in waits for the rest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.first.map(|first| first + (self.interval / 4).min(LONGEST_GRACE))
    }

    /// Whether what there is should be published now, or, when nobody has news, described.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        match self.deadline() {
            Some(deadline) => now >= deadline || self.turns.iter().all(|turn| !turn.is_expected || turn.is_in_time(self.tick)),
            None => self.turns.iter().any(|turn| turn.is_pending) && !self.turns.iter().any(|turn| turn.is_expected),
        }
    }

    /// What the source has delivered since something was taken.
    pub(crate) fn news(&self, source: usize) -> News {
        match self.turns[source] {
            Turn { has_news: false, .. } => News::Nothing,
            turn if turn.is_in_time(self.tick) => News::InTime,
            _ => News::Late,
        }
    }

    /// What there is has been taken.
    pub(crate) fn take(&mut self) {
        let gathered = self.turns.iter().filter(|turn| turn.is_in_time(self.tick)).filter_map(|turn| turn.tick).max();
        for turn in &mut self.turns {
            turn.is_expected = turn.is_in_time(self.tick);
            (turn.is_pending, turn.has_news) = (false, false);
        }
        if let Some(gathered) = gathered {
            self.tick = gathered + 1;
        }
        self.first = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    struct Fixture {
        origin: Instant,
        gather: Gather,
    }

    impl Fixture {
        fn new(sources: usize) -> Self {
            let origin = Instant::now();
            let mut gather = Gather::new(sources, origin, INTERVAL);
            (0..sources).for_each(|source| gather.join(source));
            Self { origin, gather }
        }

        /// A delivery so many ms after the origin; whether there is something to take then.
        fn deliver(&mut self, source: usize, at_ms: u64) -> bool {
            self.deliver_with(source, at_ms, true)
        }

        fn deliver_with(&mut self, source: usize, at_ms: u64, has_news: bool) -> bool {
            self.gather.deliver(source, has_news, self.origin + Duration::from_millis(at_ms));
            self.is_due(at_ms)
        }

        fn is_due(&self, at_ms: u64) -> bool {
            self.gather.is_due(self.origin + Duration::from_millis(at_ms))
        }

        /// Who has news of this tick in what is taken.
        fn take(&mut self) -> Vec<usize> {
            let news = (0..self.gather.turns.len()).filter(|&source| self.gather.news(source) == News::InTime).collect();
            self.gather.take();
            news
        }

        /// Two sources that are both in time.
        fn in_step() -> Self {
            let mut fixture = Self::new(2);
            assert!(fixture.deliver(0, 1), "nothing is expected of who has not delivered yet");
            assert_eq!(fixture.take(), [0]);
            assert!(!fixture.deliver(1, 2), "too late for the first tick");
            assert!(!fixture.deliver(1, 101));
            assert!(fixture.deliver(0, 102));
            assert_eq!(fixture.take(), [0, 1]);
            fixture
        }
    }

    #[test]
    fn one_source_is_taken_at_every_delivery_whenever_it_comes() {
        let mut fixture = Fixture::new(1);
        for at_ms in [0, 99, 99, 101, 350, 399, 400] {
            assert!(fixture.deliver(0, at_ms), "{at_ms}");
            assert!(fixture.gather.deadline().is_some());
            assert_eq!(fixture.take(), [0]);
            assert!(!fixture.is_due(at_ms) && fixture.gather.deadline().is_none());
        }
        // Without news: to be described.
        assert!(fixture.deliver_with(0, 500, false));
        assert_eq!(fixture.take(), [0; 0]);
    }

    #[test]
    fn sources_that_are_in_time_are_taken_together() {
        let mut fixture = Fixture::in_step();
        for tick in 2..5 {
            assert!(!fixture.deliver(1, tick * 100 + 1));
            assert!(fixture.deliver(0, tick * 100 + 3));
            assert_eq!(fixture.take(), [0, 1]);
        }
    }

    #[test]
    fn a_late_source_is_waited_for_once_and_its_round_goes_out_with_the_next_tick() {
        let mut fixture = Fixture::in_step();
        assert!(!fixture.deliver(0, 201));
        assert!(!fixture.is_due(225) && fixture.is_due(226));
        assert_eq!(fixture.take(), [0]);
        assert!(fixture.deliver(0, 301), "not waited for again");
        assert_eq!(fixture.take(), [0]);
        // Late, and expected again from the next tick on.
        assert!(!fixture.deliver(1, 340) && !fixture.is_due(399));
        assert!(!fixture.deliver(0, 401));
        assert_eq!(fixture.gather.news(1), News::Late);
        assert!(fixture.deliver(1, 405));
        assert_eq!(fixture.take(), [0, 1]);
        assert_eq!([0, 1].map(|source| fixture.gather.news(source)), [News::Nothing; 2]);
    }

    #[test]
    fn a_source_that_is_late_at_every_tick_has_news_at_every_tick() {
        let mut fixture = Fixture::in_step();
        for tick in 2..6 {
            fixture.deliver(0, tick * 100 + 1);
            assert!(fixture.is_due(tick * 100 + 26));
            assert_eq!(fixture.gather.news(1), if tick == 2 { News::Nothing } else { News::Late });
            assert_eq!(fixture.take(), [0]);
            assert!(!fixture.deliver(1, tick * 100 + 50));
        }
    }

    #[test]
    fn a_round_without_news_is_not_waited_for_and_described_when_nobody_has_any() {
        let mut fixture = Fixture::in_step();
        assert!(!fixture.deliver_with(1, 225, false), "the other is expected");
        assert!(fixture.deliver(0, 226));
        assert_eq!(fixture.take(), [0]);
        assert!(fixture.deliver(0, 301));
        assert_eq!(fixture.take(), [0]);
        assert!(!fixture.deliver_with(1, 325, false));
        assert!(fixture.deliver_with(0, 425, false), "nobody has news");
        assert_eq!(fixture.take(), [0; 0]);
    }

    #[test]
    fn who_leaves_is_not_waited_for_and_who_stays_goes_on_alone() {
        let mut fixture = Fixture::in_step();
        assert!(!fixture.deliver(0, 201));
        fixture.gather.leave(1);
        assert!(fixture.is_due(201));
        assert_eq!(fixture.take(), [0]);
        assert!(fixture.deliver(0, 202), "alone");
        fixture.take();
        fixture.gather.join(1);
        fixture.gather.deliver(1, true, fixture.origin + Duration::from_millis(420));
        fixture.gather.leave(1);
        assert!(fixture.gather.deadline().is_none() && !fixture.is_due(1_000));
    }
}
