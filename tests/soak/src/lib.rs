//! The bridge under everything at once: processes that come and go by the thousand, GPUs and drivers that fail and come back, signals, lost
//! pins, and readers of every kind all the while.
//!
//! [`run`] does it and says what was found. What is done is a function of the seed ([`Settings::seed`]); when exactly depends on the machine.

#![allow(clippy::expect_used, clippy::panic, reason = "a test's own program: without what it needs it ends, with the reason")]

mod crowd;
mod dice;
mod findings;
mod report;
mod resources;
mod script;
mod stage;
mod ticks;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use findings::Findings;
use resources::Usage;
use script::Script;
use stage::Stage;
use ticks::Ticks;
use watch::Watch;

pub use report::Report;

/// Between two ticks of the bridge.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// What a daemon that was told to end may take, and what measuring that may.
const END_LIMIT: Duration = Duration::from_millis(1_000 + 200);

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For so long; what was begun is brought to its end.
    pub length: Duration,
    /// Whatever looks random follows from it.
    pub seed: u64,
    /// Between two changes of the processes.
    pub pace: Duration,
}

/// Does it, and tells `progress` a line now and then. [`Report::violations`] says what was not as it must be.
///
/// # Panics
/// When something that it takes is not there: root, a binary, the simulated library.
#[must_use]
pub fn run(settings: &Settings, progress: impl Fn(&str)) -> Report {
    let findings = Arc::new(Findings::new());
    let mut stage = Stage::set(settings, Arc::clone(&findings));
    let watch = Watch::start(&mut stage, &findings);
    let mut script = Script::new(settings.seed);
    let (mut baseline, mut usages, mut ticks) = (None::<Usage>, Vec::new(), Ticks::default());

    let end = Instant::now() + settings.length;
    while Instant::now() < end && stage.goes_on() {
        for step in script.scene() {
            if Instant::now() >= end || !stage.goes_on() {
                break;
            }
            stage.play(&step);
        }
        // All is well now, and nothing changes: what must be true, exactly.
        stage.settle();
        ticks.count(&stage, &findings);
        let usage = stage.usage(baseline.as_ref());
        if let Some(baseline) = &baseline {
            usage.compare(baseline).into_iter().for_each(|(kind, what)| findings.violation(kind, what));
        }
        baseline.get_or_insert(usage);
        usages.push(usage);
        let kinds = findings.violations().len();
        progress(&format!("{:>6.0} s: {} scenes, {kinds} kinds of violations", findings.elapsed().as_secs_f64(), usages.len()));
    }

    let seen = watch.end();
    let ending = stage.end(END_LIMIT);
    Report::new(settings, &findings, usages, ticks, seen, ending)
}
