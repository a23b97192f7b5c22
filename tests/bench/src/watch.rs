//! `gpu_meta` as a reader sees it: when which stamp appears.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use map_reader::{Reader, boottime_now_ns};
use serde::{Deserialize, Serialize};

use crate::cpu::AwayFromThePublisher;

/// Twice a millisecond; eight times an interval where that is more often.
const PERIOD: Duration = Duration::from_micros(500);

/// What was seen of the updates.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Updates {
    pub(crate) per_second: f64,
    /// Between two updates.
    pub(crate) interval_ms: Spread,
    /// From an update's stamp to when it was seen.
    pub(crate) age_ms: Spread,
}

/// How figures are spread.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |share: f64| figures.get(((figures.len() as f64 * share) as usize).min(figures.len().saturating_sub(1)));
        let at = |share| at(share).copied().unwrap_or(0.0);
        Self { min: at(0.0), median: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// Watches for `duration`.
pub(crate) fn watch(reader: &Reader, interval: Duration, duration: Duration) -> Result<Updates> {
    let _place = AwayFromThePublisher::go()?;
    let period = PERIOD.min(interval / 8);
    let begun = Instant::now();
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let mut next = begun;
    while begun.elapsed() < duration {
        let stamp_ns = reader.meta().context("cannot read gpu_meta")?.last_update_boottime_ns;
        if seen.last().is_none_or(|(_, last)| *last != stamp_ns) {
            seen.push((boottime_now_ns().context("cannot read the clock")?, stamp_ns));
        }
        next += period;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    // When the first one came is not known.
    let seen = seen.get(1..).unwrap_or_default();
    let ms = |ns: u64| ns as f64 / 1e6;
    let intervals = seen.windows(2).map(|pair| ms(pair[1].0 - pair[0].0));
    let ages = seen.iter().map(|(at, stamp)| ms(at.saturating_sub(*stamp)));
    Ok(Updates {
        per_second: seen.len() as f64 / begun.elapsed().as_secs_f64(),
        interval_ms: Spread::of(intervals.collect()),
        age_ms: Spread::of(ages.collect()),
    })
}
