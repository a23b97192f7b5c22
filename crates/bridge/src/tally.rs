//! What happened since the last summary.

use std::{collections::BTreeMap, time::Duration};

use crate::sampler::Round;

/// One source's part of it. Samplers count from the opening of their source; this keeps what the summaries have told.
#[derive(Debug, Default)]
pub(crate) struct SourceTally {
    /// Ticks that the samplers before this one skipped.
    skipped_before: u64,
    /// What the samplers before this one had to add.
    carried: Counts,
    told: Counts,
    /// Failed calls at the last summary.
    failures_told: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    skipped: u64,
    time_in_source: Duration,
}

impl Counts {
    fn of(round: Option<&Round>) -> Self {
        round.map_or_else(Self::default, |round| Self {
            skipped: round.skipped_ticks,
            time_in_source: Duration::from_nanos(round.devices.iter().map(|device| device.time_in_source_ns).sum()),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            skipped: self.skipped.saturating_sub(before.skipped),
            time_in_source: self.time_in_source.saturating_sub(before.time_in_source),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self { skipped: self.skipped + other.skipped, time_in_source: self.time_in_source + other.time_in_source }
    }
}

/// What one source did since the last summary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceSummary {
    pub(crate) skipped: u64,
    pub(crate) time_in_source: Duration,
    /// In words.
    pub(crate) failures: String,
}

impl SourceTally {
    /// A newly opened source counts from 0.
    pub(crate) fn reopened(&mut self) {
        self.told = Counts::default();
        self.failures_told.clear();
    }

    /// A sampler is about to end, and its counts with it.
    pub(crate) fn closing(&mut self, round: Option<&Round>) {
        self.skipped_before = self.skipped(round);
        self.carried = self.carried.plus(Counts::of(round).since(self.told));
        self.told = Counts::default();
    }

    /// Ticks that were skipped since the start, by all samplers.
    pub(crate) fn skipped(&self, round: Option<&Round>) -> u64 {
        self.skipped_before + round.map_or(0, |round| round.skipped_ticks)
    }

    /// What happened since the last one.
    pub(crate) fn summarise(&mut self, round: Option<&Round>) -> SourceSummary {
        let counts = Counts::of(round);
        let Counts { skipped, time_in_source } = std::mem::take(&mut self.carried).plus(counts.since(self.told));
        self.told = counts;
        let failures_now = failures_by_call(round);
        let failures = describe_failures(&failures_now, &self.failures_told);
        self.failures_told = failures_now;
        SourceSummary { skipped, time_in_source, failures }
    }
}

/// The failed calls of all devices, since the source was opened.
fn failures_by_call(round: Option<&Round>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for failures in round.into_iter().flat_map(|round| &round.devices).flat_map(|device| &device.reading.failures) {
        *counts.entry(failures.call.clone()).or_default() += failures.count;
    }
    counts
}

fn describe_failures(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> String {
    let new = now.iter().map(|(call, count)| (call, count.saturating_sub(before.get(call).copied().unwrap_or(0))));
    let new: Vec<String> = new.filter(|(_, count)| *count > 0).map(|(call, count)| format!("{call} {count}")).collect();
    if new.is_empty() { "none failed".to_owned() } else { format!("failed: {}", new.join(", ")) }
}

#[cfg(test)]
mod tests {
    use telemetry::{Failures, Reading};

    use super::*;
    use crate::sampler::DeviceReading;

    /// A round of devices whose calls have failed so often.
    fn round(devices: &[&[(&str, u64)]]) -> Round {
        let device = |failures: &&[(&str, u64)]| {
            let failures = failures.iter().map(|&(call, count)| Failures { call: call.to_owned(), count }).collect();
            DeviceReading { reading: Reading { failures, ..Reading::default() }, ..DeviceReading::default() }
        };
        Round { devices: devices.iter().map(device).collect(), ..Round::default() }
    }

    #[test]
    fn failed_calls_are_summed_over_devices_and_counted_since_the_last_summary() {
        let none = failures_by_call(None);
        assert_eq!(describe_failures(&none, &none), "none failed");
        let first = failures_by_call(Some(&round(&[&[("Power", 7), ("Fan", 1)], &[], &[("Power", 3)]])));
        assert_eq!(describe_failures(&first, &none), "failed: Fan 1, Power 10");
        let second = failures_by_call(Some(&round(&[&[("Power", 607), ("Fan", 1)], &[], &[("Power", 3)]])));
        assert_eq!(describe_failures(&second, &first), "failed: Power 600");
        assert_eq!(describe_failures(&second, &second), "none failed");
    }

    #[test]
    fn a_summary_counts_what_is_new_over_all_samplers() {
        let at = |skipped_ticks, ms: u64| {
            let device = DeviceReading { time_in_source_ns: ms * 1_000_000, ..DeviceReading::default() };
            Round { skipped_ticks, devices: vec![device], ..Round::default() }
        };
        let mut tally = SourceTally::default();
        let check = |tally: &mut SourceTally, round: Option<&Round>, skipped, ms| {
            let summary = tally.summarise(round);
            assert_eq!((summary.skipped, summary.time_in_source), (skipped, Duration::from_millis(ms)));
        };
        check(&mut tally, Some(&at(3, 10)), 3, 10);
        check(&mut tally, Some(&at(4, 15)), 1, 5);
        tally.closing(Some(&at(6, 17)));
        check(&mut tally, None, 2, 2);
        tally.reopened();
        check(&mut tally, Some(&at(1, 1)), 1, 1);
    }

    #[test]
    fn skipped_ticks_are_counted_from_the_start_whoever_skipped_them() {
        let skipped = |skipped_ticks| Round { skipped_ticks, ..Round::default() };
        let mut tally = SourceTally::default();
        assert_eq!((tally.skipped(None), tally.skipped(Some(&skipped(3)))), (0, 3));
        tally.closing(Some(&skipped(4)));
        tally.closing(None);
        tally.reopened();
        assert_eq!((tally.skipped(None), tally.skipped(Some(&skipped(2)))), (4, 6));
    }
}
