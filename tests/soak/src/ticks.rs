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
}

impl Ticks {
    /// Neither published nor skipped: rounds without news, and those that waited in the pipe until a newer one was there. How many depends on how
    /// busy the machine is.
    pub(crate) const fn overtaken(&self) -> u64 {
        self.due.saturating_sub(self.published + self.skipped)
    }

    /// Counts for a while.
    pub(crate) fn count(&mut self, stage: &Stage, findings: &Findings) {
        let Some(ticks) = Self::in_window(stage) else { return };
        let Self { due, published, skipped, late } = ticks;
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

    fn in_window(stage: &Stage) -> Option<Self> {
        let look = || Some((Instant::now(), *stage.state()?.record()));
        let (begun, before) = look()?;
        thread::sleep(WINDOW);
        let (ended, after) = look()?;
        Some(Self {
            due: ((ended - begun).as_nanos() / POLL_INTERVAL.as_nanos()) as u64,
            published: after.rounds.saturating_sub(before.rounds),
            skipped: after.skipped_ticks.saturating_sub(before.skipped_ticks),
            late: after.late_ticks.saturating_sub(before.late_ticks),
        })
    }
}
