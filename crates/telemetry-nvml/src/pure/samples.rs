//! Utilization samples: which are believed, and what several of them come to.

use telemetry::{Now, ProcessUtilization, Stamp};

use super::{clock::believable, stride::is_a_pid};

/// A row of the driver's buffer of process samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessRow {
    pub(crate) pid: u32,
    pub(crate) stamp_us: u64,
    pub(crate) sm_pct: u32,
    pub(crate) mem_pct: u32,
    pub(crate) enc_pct: u32,
    pub(crate) dec_pct: u32,
}

impl ProcessRow {
    /// The sample, if it is one: a PID that a process can have, percentages, a time after `since_us` when something can have been sampled.
    fn believed(&self, since_us: u64, now: Now) -> Option<ProcessUtilization> {
        let percentages = [self.sm_pct, self.mem_pct, self.enc_pct, self.dec_pct];
        if !is_a_pid(self.pid) || percentages.iter().any(|pct| *pct > 100) || self.stamp_us <= since_us {
            return None;
        }
        let sampled = believable(self.stamp_us, now)?;
        Some(ProcessUtilization { sampled, sm_pct: self.sm_pct, mem_pct: self.mem_pct, enc_pct: self.enc_pct, dec_pct: self.dec_pct })
    }
}

/// The believed rows by PID, one for each: the maximum of each percentage and the newest time.
pub(crate) fn fold(rows: &[ProcessRow], since_us: u64, now: Now, folded: &mut Vec<(u32, ProcessUtilization)>) {
    folded.clear();
    folded.extend(rows.iter().filter_map(|row| Some((row.pid, row.believed(since_us, now)?))));
    folded.sort_unstable_by_key(|(pid, _)| *pid);
    folded.dedup_by(|(later, sample), (kept, sum)| {
        let same = later == kept;
        if same {
            *sum = join(*sum, *sample);
        }
        same
    });
}

fn join(one: ProcessUtilization, other: ProcessUtilization) -> ProcessUtilization {
    ProcessUtilization {
        sampled: if other.sampled.realtime_ns > one.sampled.realtime_ns { other.sampled } else { one.sampled },
        sm_pct: one.sm_pct.max(other.sm_pct),
        mem_pct: one.mem_pct.max(other.mem_pct),
        enc_pct: one.enc_pct.max(other.enc_pct),
        dec_pct: one.dec_pct.max(other.dec_pct),
    }
}

/// A device's utilization sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) stamp_us: u64,
    /// `None`: a value that is no number.
    pub(crate) pct: Option<u32>,
}

/// The believed samples in the order of their times, written into `kept`.
pub(crate) fn believed_samples(samples: impl Iterator<Item = Sample>, since_us: u64, now: Now, kept: &mut Vec<(Stamp, u32)>) {
    let believed = |sample: Sample| {
        let pct = sample.pct.filter(|pct| *pct <= 100 && sample.stamp_us > since_us)?;
        Some((believable(sample.stamp_us, now)?, pct))
    };
    kept.clear();
    kept.extend(samples.filter_map(believed));
    kept.sort_unstable_by_key(|(stamp, pct)| (stamp.realtime_ns, *pct));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Now = Now { boottime_ns: 100_000_000_000, clock_offset_ns: 1_700_000_000_000_000_000 };
    const NOW_US: u64 = 1_700_000_100_000_000;

    const fn row(pid: u32, stamp_us: u64, sm_pct: u32, mem_pct: u32) -> ProcessRow {
        ProcessRow { pid, stamp_us, sm_pct, mem_pct, enc_pct: 0, dec_pct: 0 }
    }

    #[track_caller]
    fn check(rows: &[ProcessRow], since_us: u64, expected: &[(u32, u64, u32, u32)]) {
        let mut folded = Vec::new();
        fold(rows, since_us, NOW, &mut folded);
        let folded: Vec<_> =
            folded.iter().map(|(pid, sample)| (*pid, sample.sampled.realtime_ns / 1_000, sample.sm_pct, sample.mem_pct)).collect();
        assert_eq!(folded, expected);
    }

    #[test]
    fn several_samples_of_a_process_are_their_maximum_at_the_newest_time() {
        check(&[row(7, NOW_US - 50, 10, 90), row(7, NOW_US - 10, 40, 3), row(7, NOW_US - 90, 20, 4)], 0, &[(7, NOW_US - 10, 40, 90)]);
    }

    #[test]
    fn garbage_is_not_believed() {
        let garbage = [
            row(7, NOW_US - 10, 37_100, 0),
            row(7, NOW_US - 10, 1, 101),
            row(0, NOW_US - 10, 1, 1),
            row(u32::MAX, NOW_US - 10, 1, 1),
            row(7, 0, 1, 1),
            row(7, 12_345, 1, 1),
            row(7, NOW_US + 1_000_001, 1, 1),
            row(7, u64::MAX, 1, 1),
            ProcessRow { enc_pct: 200, ..row(7, NOW_US, 1, 1) },
            ProcessRow { dec_pct: 200, ..row(7, NOW_US, 1, 1) },
        ];
        check(&garbage, 0, &[]);
    }

    #[test]
    fn what_was_seen_before_is_not_new() {
        check(&[row(7, NOW_US - 50, 10, 1), row(8, NOW_US - 49, 10, 1)], NOW_US - 50, &[(8, NOW_US - 49, 10, 1)]);
    }

    #[test]
    fn device_samples_come_in_the_order_of_time() {
        let sample = |ago, pct| Sample { stamp_us: NOW_US - ago, pct: Some(pct) };
        let samples = [sample(5, 50), sample(20, 20), sample(10, 101), sample(15, 15), Sample { stamp_us: NOW_US, pct: None }];
        let mut kept = Vec::new();
        believed_samples(samples.into_iter(), NOW_US - 20, NOW, &mut kept);
        assert_eq!(kept.iter().map(|(_, pct)| *pct).collect::<Vec<_>>(), [15, 50]);
    }

    proptest! {
        #[test]
        fn nothing_over_100_nothing_old_nothing_from_the_future(
            rows in prop::collection::vec((0_u32..6, prop_oneof![any::<u64>(), NOW_US - 3_000_000..NOW_US + 3_000_000], 0_u32..130, 0_u32..130), 0..60),
            since_us in prop_oneof![Just(0), NOW_US - 3_000_000..NOW_US],
        ) {
            let rows: Vec<_> = rows.into_iter().map(|(pid, stamp, sm, mem)| row(pid, stamp, sm, mem)).collect();
            let mut folded = Vec::new();
            fold(&rows, since_us, NOW, &mut folded);
            for (pid, sample) in &folded {
                prop_assert!(*pid != 0 && sample.sm_pct <= 100 && sample.mem_pct <= 100);
                prop_assert!(sample.sampled.realtime_ns > since_us * 1_000 && sample.sampled.realtime_ns <= NOW.realtime_ns() + 1_000_000_000);
                prop_assert!(rows.iter().any(|row| row.pid == *pid && row.stamp_us == sample.sampled.realtime_ns / 1_000));
            }
        }

        #[test]
        fn the_order_of_rows_does_not_matter(mut rows in prop::collection::vec((1_u32..4, NOW_US - 1_000..NOW_US, 0_u32..=100, 0_u32..=100), 0..20)) {
            let fold_all = |rows: &[(u32, u64, u32, u32)]| {
                let mut folded = Vec::new();
                fold(&rows.iter().map(|(pid, stamp, sm, mem)| row(*pid, *stamp, *sm, *mem)).collect::<Vec<_>>(), 0, NOW, &mut folded);
                folded
            };
            let forward = fold_all(&rows);
            rows.reverse();
            prop_assert_eq!(forward, fold_all(&rows));
        }
    }
}
