//! Rounds as they come, also across a bridge that restarts.

use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Map, Reader};

/// How long the pins are trusted to lead to the open maps while nothing new comes.
const PIN_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Between two looks at `gpu_meta`: a twentieth of the poll interval, within these bounds.
const STEPS_PER_INTERVAL: u32 = 20;
const SHORTEST_STEP: Duration = Duration::from_micros(500);
const LONGEST_STEP: Duration = Duration::from_millis(10);
/// Of a bridge that does not say its interval.
const DEFAULT_STEP: Duration = Duration::from_millis(5);

/// Which round the maps hold: two are equal when nothing was published between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    map_id: u32,
    stamp_ns: u64,
}

impl Round {
    /// `CLOCK_BOOTTIME` at which the round's data was taken.
    #[must_use]
    pub const fn boottime_ns(self) -> u64 {
        self.stamp_ns
    }
}

impl Reader {
    /// The round that the maps hold; `None` when nothing was published since `gpu_meta` was created.
    ///
    /// # Errors
    /// As of [`Reader::meta`].
    pub fn round(&self) -> Result<Option<Round>, Error> {
        let map_id = self.map_id(Map::Meta)?;
        let stamp_ns = self.meta()?.last_update_boottime_ns;
        Ok((stamp_ns != 0).then_some(Round { map_id, stamp_ns }))
    }

    /// Waits until the maps hold another round than `after`, for at most `timeout`; `None` when it is up. With `after` `None` any round
    /// will do, also a stale one.
    ///
    /// `gpu_meta` is written last, so the whole round is there; a [`snapshot`](Reader::snapshot) taken now is of this round or a later
    /// one. Rounds that come faster than they are waited for are passed over. The wait looks at `gpu_meta` about twenty times a poll
    /// interval, at most 2,000 times a second; it costs the bridge nothing. When a bridge restarts with new maps, or the first one
    /// starts, the maps are [reopened](Reader::reopen).
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use map_reader::Reader;
    ///
    /// let mut reader = Reader::open("/sys/fs/bpf");
    /// let mut seen = None;
    /// while let Some(round) = reader.wait_for_round(seen, Duration::from_secs(10))? {
    ///     seen = Some(round);
    ///     println!("{} processes at {} ns", reader.snapshot().processes?.len(), round.boottime_ns());
    /// }
    /// # Ok::<(), map_reader::Error>(())
    /// ```
    ///
    /// # Errors
    /// `gpu_meta` cannot be read: at once when a person must do something about it, and when the time is up where there is just none
    /// ([`Error::is_absent`]).
    pub fn wait_for_round(&mut self, after: Option<Round>, timeout: Duration) -> Result<Option<Round>, Error> {
        // An instant that cannot be represented never comes.
        let end = Instant::now().checked_add(timeout);
        let mut step = self.step();
        loop {
            let found = self.round();
            match &found {
                Ok(Some(round)) if after != Some(*round) => return found,
                Err(error) if !error.is_absent() || matches!(error, Error::NotAskedFor { .. }) => return found,
                _ => {}
            }
            let now = Instant::now();
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            // Also across calls that are shorter than that.
            if now.duration_since(self.looked) >= PIN_CHECK_INTERVAL && self.reopen() {
                step = self.step();
                continue;
            }
            if left.is_zero() {
                return found.map(|_| None);
            }
            thread::sleep(step.min(left));
        }
    }

    fn step(&self) -> Duration {
        let interval = self.state_record().ok().map(|record| record.poll_interval_ns).filter(|&interval| interval != 0);
        interval.map_or(DEFAULT_STEP, |ns| (Duration::from_nanos(ns) / STEPS_PER_INTERVAL).clamp(SHORTEST_STEP, LONGEST_STEP))
    }
}
