//! What becomes of ticks while nothing goes on but reading.

use std::thread;
use std::time::{Duration, Instant};

use crate::POLL_INTERVAL;
use crate::findings::Findings;
use crate::stage::Stage;

/// How long is counted.
const WINDOW: Duration = Duration::from_secs(1);
/// The two looks and the ticks are not in step.
const MARGIN: u64 = 50;

/// In all windows.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Ticks {
    pub(crate) due: u64,
    pub(crate) published: u64,
    /// By the sampler, which was late.
    pub(crate) skipped: u64,
    /// Of those published, with a device that was late.
    pub(crate) late: u64,
    newest: Option<Counters>,
}

/// A bridge's counters since its start.
#[derive(Debug, Clone, Copy)]
struct Counters {
    started_boottime_ns: u64,
    rounds: u64,
    skipped: u64,
    late: u64,
}

impl Counters {
    fn read(stage: &Stage) -> Option<Self> {
        let state = *stage.state()?.record();
        Some(Self {
            started_boottime_ns: state.started_boottime_ns,
            rounds: state.rounds,
            skipped: state.skipped_ticks,
            late: state.late_ticks,
        })
    }

    fn have_gone_back_since(&self, earlier: &Self) -> bool {
        let is_less = self.rounds < earlier.rounds || self.skipped < earlier.skipped || self.late < earlier.late;
        self.started_boottime_ns == earlier.started_boottime_ns && is_less
    }
}

impl Ticks {
    /// Neither published nor skipped: rounds without news, and those that waited in the pipe until a newer one was there. How many depends on how
    /// busy the machine is.
    pub(crate) const fn overtaken(&self) -> u64 {
        self.due.saturating_sub(self.published + self.skipped)
    }

    /// Counts for a while.
    pub(crate) fn count(&mut self, stage: &Stage, findings: &Findings) {
        let Some(begun) = Counters::read(stage) else { return };
        let begun_at = Instant::now();
        thread::sleep(WINDOW);
        let Some(ended) = Counters::read(stage) else { return };
        let due = (begun_at.elapsed().as_nanos() / POLL_INTERVAL.as_nanos()) as u64;
        for (before, after) in self.newest.iter().map(|newest| (*newest, begun)).chain([(begun, ended)]) {
            if after.have_gone_back_since(&before) {
                findings.violation("counters", format!("{before:?}, then {after:?}"));
            }
        }
        self.newest = Some(ended);
        let published = ended.rounds.saturating_sub(begun.rounds);
        let skipped = ended.skipped.saturating_sub(begun.skipped);
        let late = ended.late.saturating_sub(begun.late);
        // A tick without a round of news is one with late devices, whether it was published or not.
        let accounted = published + skipped + late;
        if published == 0 || published + skipped > due + MARGIN || accounted + MARGIN < due {
            findings.violation("ticks", format!("{due} due, {published} published, {skipped} skipped, {late} late"));
        }
        self.due += due;
        self.published += published;
        self.skipped += skipped;
        self.late += late;
    }
}
