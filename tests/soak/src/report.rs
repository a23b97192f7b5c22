//! What was done and found, for people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Settings;
use crate::findings::{Findings, Violation};
use crate::resources::{Process, Usage};
use crate::stage::Ending;
use crate::ticks::Ticks;
use crate::watch::Seen;

/// The outcome of a run.
#[derive(Debug)]
pub struct Report {
    settings: Settings,
    took: Duration,
    usages: Vec<Usage>,
    ticks: Ticks,
    seen: Arc<Seen>,
    ending: Ending,
    violations: BTreeMap<&'static str, Violation>,
}

impl Report {
    pub(crate) fn new(settings: &Settings, findings: &Findings, usages: Vec<Usage>, ticks: Ticks, seen: Arc<Seen>, ending: Ending) -> Self {
        let (settings, took, violations) = (*settings, findings.elapsed(), findings.violations());
        Self { settings, took, usages, ticks, seen, ending, violations }
    }

    /// How many kinds of things were not as they must be.
    #[must_use]
    pub fn violations(&self) -> usize {
        self.violations.len()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        writeln!(
            f,
            "seed {}: {}, {} changes of the processes, {} scenes",
            self.settings.seed,
            seconds(self.took),
            self.ending.changes,
            self.usages.len()
        )?;
        writeln!(f, "\n{:>6}  {:>14}  what was done", "times", "well again in")?;
        for (name, recovery) in &self.ending.recoveries {
            writeln!(f, "{:>6}  {:>11} ms  {name}", recovery.count, recovery.longest.as_millis())?;
        }
        let seen = &*self.seen;
        writeln!(
            f,
            "\nread: {} snapshots ({} verified), {} times by BPF programs, {} events, {} dumps, {} health checks",
            number(&seen.snapshots),
            number(&seen.verified),
            number(&seen.consumer_reads),
            number(&seen.events),
            number(&seen.dumps),
            number(&seen.healths),
        )?;
        writeln!(
            f,
            "processes: {} in a round at most, shown {} ms after they had left at most",
            number(&seen.most_processes),
            number(&seen.longest_overdue_ms)
        )?;
        let Ticks { due, published, skipped, late, .. } = self.ticks;
        let overtaken = self.ticks.overtaken();
        writeln!(
            f,
            "ticks in quiet seconds: {due} due, {published} published ({late} of them with a late device), {skipped} skipped, {overtaken} overtaken"
        )?;
        self.resources(f)?;
        match self.ending.took {
            Some(took) => writeln!(f, "end: {} ms after SIGTERM; {} lines logged", took.as_millis(), self.ending.log_lines)?,
            None => writeln!(f, "end: before SIGTERM; {} lines logged", self.ending.log_lines)?,
        }
        for (kind, Violation { at, during, what, count }) in &self.violations {
            writeln!(f, "\nVIOLATION: {kind}, {count} times, first {} after the start, during: {during}\n  {what}", seconds(*at))?;
        }
        match self.violations.len() {
            0 => write!(f, "no violations"),
            count => write!(
                f,
                "{count} kinds of violations; the same again: --seed {} --pace {}",
                self.settings.seed,
                self.settings.pace.as_millis()
            ),
        }
    }
}

impl Report {
    /// After the first scene, at most, and after the last.
    fn resources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, pick) in [("daemon", (|usage| usage.daemon) as fn(&Usage) -> Process), ("sampler", |usage| usage.sampler)] {
            let all = || self.usages.iter().map(pick);
            let (Some(first), Some(last)) = (all().next(), all().next_back()) else { continue };
            let most = all().map(|process| process.memory_kib).max().unwrap_or(0);
            writeln!(
                f,
                "{name:<8} {} KiB at first, {most} at most, {} at last; threads {} and {}; file descriptors {} and {}",
                first.memory_kib, last.memory_kib, first.threads, last.threads, first.descriptors, last.descriptors
            )?;
        }
        Ok(())
    }
}
