//! How old is what the maps say? Pure functions of a record and a clock reading; the clock itself is the caller's.

use std::io;
use std::time::Duration;

use gpu_types::{GPU_SCHEMA_VERSION, GpuMeta};
use nix::time::{ClockId, clock_gettime};

/// How `gpu_meta` stands against a clock and the age that the caller still accepts.
///
/// ```
/// use std::time::Duration;
/// use gpu_types::{GPU_SCHEMA_VERSION, GpuMeta};
/// use map_reader::Freshness;
///
/// let meta = GpuMeta { schema_version: GPU_SCHEMA_VERSION, last_update_boottime_ns: 5_000_000_000, ..GpuMeta::default() };
/// let judge = |now_ns| Freshness::of(&meta, now_ns, Duration::from_millis(300));
/// assert!(judge(5_100_000_000).is_fresh());
/// assert_eq!(judge(6_000_000_000), Freshness::Stale { age: Duration::from_secs(1) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freshness {
    /// No round has been published since the map was created.
    NeverPublished,
    /// The newest round is at most as old as accepted.
    Fresh {
        /// Time since the round's data was taken.
        age: Duration,
    },
    /// The newest round is older than accepted: the bridge is gone, stuck or without a driver, and no record may be believed.
    Stale {
        /// Time since the round's data was taken.
        age: Duration,
    },
    /// The record is of a schema version that this crate does not know, so not even its time need mean the same, and no record may be believed.
    /// [`Reader::meta`](crate::Reader::meta) gives no such record.
    UnknownVersion {
        /// The version in the record.
        found: u32,
    },
}

impl Freshness {
    /// Judges `meta` at `now_boottime_ns` (`CLOCK_BOOTTIME`, see [`boottime_now_ns`]).
    #[must_use]
    pub fn of(meta: &GpuMeta, now_boottime_ns: u64, max_age: Duration) -> Self {
        if let Some(found) = unknown_schema(meta) {
            return Self::UnknownVersion { found };
        }
        match age(meta, now_boottime_ns) {
            None => Self::NeverPublished,
            Some(age) if age <= max_age => Self::Fresh { age },
            Some(age) => Self::Stale { age },
        }
    }

    /// Whether the records may be believed.
    #[must_use]
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh { .. })
    }
}

/// The record's schema version, when it is another than this crate's. One that was never written has none.
pub(crate) fn unknown_schema(meta: &GpuMeta) -> Option<u32> {
    let unwritten = meta.schema_version == 0 && meta.last_update_boottime_ns == 0;
    (meta.schema_version != GPU_SCHEMA_VERSION && !unwritten).then_some(meta.schema_version)
}

/// Time since the newest round's data was taken; `None` when nothing was ever published. A round that was published after the caller read
/// its clock is new, so its age is zero and not the 584 years that an unsigned difference would give.
#[must_use]
pub fn age(meta: &GpuMeta, now_boottime_ns: u64) -> Option<Duration> {
    (meta.last_update_boottime_ns != 0).then(|| Duration::from_nanos(now_boottime_ns.saturating_sub(meta.last_update_boottime_ns)))
}

/// Time since the sample behind a device or process record; `None` when it has no sample (`timestamp_ns` 0) or its time makes no sense with
/// this `meta`. Zero for a sample from after `now_boottime_ns`.
///
/// ```
/// use std::time::Duration;
/// use gpu_types::GpuMeta;
/// use map_reader::sample_age;
///
/// let meta = GpuMeta { clock_offset_ns: 1_700_000_000_000_000_000, ..GpuMeta::default() };
/// assert_eq!(sample_age(1_700_000_005_000_000_000, &meta, 5_250_000_000), Some(Duration::from_millis(250)));
/// assert_eq!(sample_age(0, &meta, 5_250_000_000), None, "no sample yet");
/// ```
#[must_use]
pub fn sample_age(timestamp_ns: u64, meta: &GpuMeta, now_boottime_ns: u64) -> Option<Duration> {
    if timestamp_ns == 0 {
        return None;
    }
    let taken = to_boottime_ns(timestamp_ns, meta.clock_offset_ns)?;
    Some(Duration::from_nanos(now_boottime_ns.saturating_sub(taken)))
}

/// A record's `timestamp_ns` (`CLOCK_REALTIME`) as `CLOCK_BOOTTIME`, with the `clock_offset_ns` of the `gpu_meta` read together with it; `None`
/// when that lies before boot or beyond 64 bits.
///
/// ```
/// use map_reader::{to_boottime_ns, to_realtime_ns};
///
/// let clock_offset_ns = 1_700_000_000_000_000_000; // booted at that wall-clock time
/// assert_eq!(to_boottime_ns(1_700_000_000_250_000_000, clock_offset_ns), Some(250_000_000));
/// assert_eq!(to_realtime_ns(250_000_000, clock_offset_ns), Some(1_700_000_000_250_000_000));
/// assert_eq!(to_boottime_ns(1, clock_offset_ns), None, "before boot");
/// ```
#[must_use]
pub fn to_boottime_ns(timestamp_ns: u64, clock_offset_ns: i64) -> Option<u64> {
    u64::try_from(i128::from(timestamp_ns) - i128::from(clock_offset_ns)).ok()
}

/// A `CLOCK_BOOTTIME` reading as `CLOCK_REALTIME`, the reverse of [`to_boottime_ns`].
#[must_use]
pub fn to_realtime_ns(boottime_ns: u64, clock_offset_ns: i64) -> Option<u64> {
    u64::try_from(i128::from(boottime_ns) + i128::from(clock_offset_ns)).ok()
}

/// The age up to which data counts as fresh when the user names none: the larger of one second and three poll intervals. A bridge that
/// does not say its interval is taken to poll at its default, 100 ms.
#[must_use]
pub fn default_max_age(poll_interval: Option<Duration>) -> Duration {
    const FLOOR: Duration = Duration::from_secs(1);
    poll_interval.map_or(FLOOR, |interval| interval.saturating_mul(3).max(FLOOR))
}

/// `CLOCK_BOOTTIME` now, the clock of `last_update_boottime_ns` (and of eBPF's `bpf_ktime_get_boot_ns`).
///
/// # Errors
/// The kernel's, when the process may not read the clock.
pub fn boottime_now_ns() -> io::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    Ok(u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(last_update_boottime_ns: u64, clock_offset_ns: i64) -> GpuMeta {
        GpuMeta { schema_version: 1, last_update_boottime_ns, clock_offset_ns, ..GpuMeta::default() }
    }

    #[track_caller]
    fn check(stamp_ns: u64, now_ns: u64, expected: Freshness) {
        assert_eq!(Freshness::of(&meta(stamp_ns, 0), now_ns, Duration::from_nanos(300)), expected);
    }

    #[test]
    fn age_decides_between_fresh_and_stale() {
        let ns = Duration::from_nanos;
        check(0, 5_000, Freshness::NeverPublished);
        check(5_000, 5_000, Freshness::Fresh { age: ns(0) });
        check(5_000, 5_300, Freshness::Fresh { age: ns(300) });
        check(5_000, 5_301, Freshness::Stale { age: ns(301) });
        check(1, u64::MAX, Freshness::Stale { age: ns(u64::MAX - 1) });
    }

    #[test]
    fn a_stamp_after_the_clock_reading_is_fresh() {
        check(5_001, 5_000, Freshness::Fresh { age: Duration::ZERO });
        check(u64::MAX, 0, Freshness::Fresh { age: Duration::ZERO });
    }

    #[test]
    fn a_record_of_another_schema_is_never_fresh_and_one_that_was_never_written_is_no_such_record() {
        let judge = |schema_version, stamp_ns| {
            let meta = GpuMeta { schema_version, ..meta(stamp_ns, 0) };
            Freshness::of(&meta, 5_000, Duration::from_nanos(300))
        };
        assert_eq!(judge(0, 0), Freshness::NeverPublished);
        assert_eq!(judge(1, 0), Freshness::NeverPublished);
        for (version, stamp_ns) in [(2, 5_000), (2, 0), (0, 5_000), (u32::MAX, 1)] {
            assert_eq!(judge(version, stamp_ns), Freshness::UnknownVersion { found: version });
        }
        assert!(!judge(2, 5_000).is_fresh());
    }

    #[test]
    fn times_convert_both_ways() {
        assert_eq!(to_boottime_ns(1_700_000_000_000_000_000, 1_699_999_000_000_000_000), Some(1_000_000_000_000));
        assert_eq!(to_realtime_ns(1_000_000_000_000, 1_699_999_000_000_000_000), Some(1_700_000_000_000_000_000));
        assert_eq!(to_boottime_ns(5, -10), Some(15), "a wall clock behind the boot clock has a negative offset");
        assert_eq!(to_realtime_ns(15, -10), Some(5));
    }

    #[test]
    fn impossible_times_are_none() {
        assert_eq!(to_boottime_ns(5, 10), None);
        assert_eq!(to_boottime_ns(u64::MAX, -1), None);
        assert_eq!(to_realtime_ns(5, i64::MIN), None);
        assert_eq!(to_realtime_ns(u64::MAX, 1), None);
    }

    #[test]
    fn a_sample_is_as_old_as_its_own_time_says() {
        let meta = meta(9_000, 1_000_000);
        assert_eq!(sample_age(1_008_500, &meta, 9_100), Some(Duration::from_nanos(600)));
        assert_eq!(sample_age(1_009_500, &meta, 9_100), Some(Duration::ZERO));
        assert_eq!(sample_age(0, &meta, 9_100), None);
        assert_eq!(sample_age(999_999, &meta, 9_100), None, "before boot");
    }

    #[test]
    fn accepted_age_follows_slow_intervals_only() {
        assert_eq!(default_max_age(None), Duration::from_secs(1));
        assert_eq!(default_max_age(Some(Duration::from_millis(100))), Duration::from_secs(1));
        assert_eq!(default_max_age(Some(Duration::from_secs(2))), Duration::from_secs(6));
        assert_eq!(default_max_age(Some(Duration::MAX)), Duration::MAX);
    }

    #[test]
    fn the_boot_clock_advances() {
        let first = boottime_now_ns().unwrap();
        assert!(first > 0);
        assert!(boottime_now_ns().unwrap() >= first);
    }
}
