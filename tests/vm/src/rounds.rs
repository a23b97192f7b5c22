//! Invented rounds: a window of process ids that moves on.

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_MAX_DEVICES, GPU_SCHEMA_VERSION, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use map_publisher::Records;

/// Above every process id of a kernel.
const FIRST_PID: u32 = 1 << 23;
/// Between two rounds' stamps. The publisher reads the maps back once a second by these stamps, which would mend losses: so late that it does
/// not come to that.
const INTERVAL_NS: u64 = 1_000_000;

/// Rounds, each with other figures in every record and some new processes.
#[derive(Debug)]
pub(crate) struct Rounds {
    processes: u32,
    churn: u32,
    start_ns: u64,
    number: u32,
}

impl Rounds {
    pub(crate) fn new(processes: u32, churn: u32, start_boottime_ns: u64) -> Self {
        Self { processes, churn, start_ns: start_boottime_ns, number: 0 }
    }

    /// The next one.
    pub(crate) fn advance(&mut self) -> Records {
        self.number += 1;
        let timestamp_ns = self.start_ns + u64::from(self.number) * INTERVAL_NS;
        let mut records = Records {
            meta: GpuMeta {
                schema_version: GPU_SCHEMA_VERSION,
                n_devices: GPU_MAX_DEVICES,
                last_update_boottime_ns: timestamp_ns,
                helper_pid: std::process::id(),
                ..GpuMeta::default()
            },
            ..Records::default()
        };
        records.devices.fill(GpuDeviceMetrics { timestamp_ns, sm_util_pct: self.number % 101, ..Default::default() });

        let first = FIRST_PID + self.number * self.churn;
        for pid in first..first + self.processes {
            let device = pid % GPU_MAX_DEVICES;
            let (used, memory) = (self.number % 101, u64::from(pid) << 12);
            records.processes.push((
                pid,
                GpuPidMetricsAggregated {
                    timestamp_ns,
                    used_gpu_memory_total: memory,
                    sm_util_pct_max: used,
                    gpu_device_primary: device as u8,
                    device_count: 1,
                    ..Default::default()
                },
            ));
            records.process_devices.push((
                PidDeviceKey::new(pid, device).into(),
                GpuPidMetrics { timestamp_ns, used_gpu_memory: memory, sm_util_pct: used, gpu_device: device as u8, ..Default::default() },
            ));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_and_every_record_changes() {
        let mut rounds = Rounds::new(10, 3, 5);
        let (one, two) = (rounds.advance(), rounds.advance());
        let pids = |records: &Records| records.processes.iter().map(|(pid, _)| *pid).collect::<Vec<_>>();
        assert_eq!(pids(&one).len(), 10);
        assert_eq!(pids(&one)[3..], pids(&two)[..7]);
        assert_ne!(one.processes[3], two.processes[0]);
        assert_ne!(one.process_devices[3], two.process_devices[0]);
        assert!(one.process_devices.is_sorted_by_key(|(key, _)| *key));
    }
}
