//! One round, as the maps shall hold it, and what publishing it did.

use gpu_types::{GPU_MAX_DEVICES, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated, maps};

use crate::PublishError;

/// One round in the ABI's structs. Kept by the caller and filled anew each time, so that a round needs no memory of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// Written last. `last_update_boottime_ns` also times the reading back of the maps.
    pub meta: GpuMeta,
    /// By device index; `timestamp_ns` 0 is an empty slot.
    pub devices: [GpuDeviceMetrics; GPU_MAX_DEVICES as usize],
    /// By host PID: ascending, each once, at most [`maps::PID_PUBLISH_LIMIT`].
    pub processes: Vec<(u32, GpuPidMetricsAggregated)>,
    /// By `(pid << 32) | device index`: ascending, each once, at most [`maps::PID_PUBLISH_LIMIT`].
    pub process_devices: Vec<(u64, GpuPidMetrics)>,
}

impl Records {
    /// Whether the two lists are what the fields above promise.
    pub(crate) fn check(&self) -> Result<(), PublishError> {
        check(maps::GPU_PER_PID, &self.processes)?;
        check(maps::GPU_PER_PID_PER_DEVICE, &self.process_devices)
    }
}

fn check<K: Ord, V>(map: &'static str, entries: &[(K, V)]) -> Result<(), PublishError> {
    if entries.len() > maps::PID_PUBLISH_LIMIT as usize {
        return Err(PublishError::Records { map, demand: "at most 3,968" });
    }
    if !entries.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(PublishError::Records { map, demand: "sorted by a unique key" });
    }
    Ok(())
}

/// What publishing a round did to the two per-process maps together, in entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// New, or changed since the last round.
    pub upserted: usize,
    /// Departed, or left by an earlier bridge.
    pub deleted: usize,
    /// Whether the maps were read back after writing: the next two can only then be above 0.
    pub read_back: bool,
    /// Written a second time, since reading back found them missing or changed by someone else.
    pub rewritten: usize,
    /// Removed, since reading back found entries that are nobody's.
    pub strangers_removed: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_processes(pids: impl IntoIterator<Item = u32>, demand: Option<&str>) {
        let processes = pids.into_iter().map(|pid| (pid, GpuPidMetricsAggregated::default())).collect();
        let error = Records { processes, ..Records::default() }.check().err().map(|error| error.to_string());
        assert_eq!(error, demand.map(|demand| format!("the records for gpu_per_pid are not {demand}")));
    }

    #[test]
    fn records_are_sorted_unique_and_bounded() {
        check_processes([], None);
        check_processes([1, 2, 9], None);
        check_processes(1..=maps::PID_PUBLISH_LIMIT, None);
        check_processes(1..=maps::PID_PUBLISH_LIMIT + 1, Some("at most 3,968"));
        check_processes([1, 1], Some("sorted by a unique key"));
        check_processes([2, 1], Some("sorted by a unique key"));
        assert_eq!(maps::PID_PUBLISH_LIMIT, 3968, "the messages name it");
    }
}
