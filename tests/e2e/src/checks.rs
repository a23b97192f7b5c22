//! What a snapshot of the maps must satisfy at any time.

use std::collections::BTreeMap;

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_DEVICE_PRIMARY_MULTI, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::{Snapshot, to_boottime_ns};

/// Every record that can be read is from before now.
///
/// # Panics
/// When one is not, or a map cannot be read.
#[track_caller]
pub fn check_not_in_the_future(snapshot: &Snapshot, now_boottime_ns: u64) {
    let meta = snapshot.meta.as_ref().expect("gpu_meta");
    assert!(meta.last_update_boottime_ns <= now_boottime_ns, "{meta:?} at {now_boottime_ns}");
    for timestamp in timestamps(snapshot) {
        let boottime = to_boottime_ns(timestamp, meta.clock_offset_ns).expect("a time since the machine was started");
        assert!(boottime <= now_boottime_ns, "a record from {boottime} at {now_boottime_ns}");
    }
}

/// The parts of one round agree.
///
/// # Panics
/// When they do not, or a map cannot be read.
#[track_caller]
pub fn check_round(snapshot: &Snapshot) {
    let meta = snapshot.meta.as_ref().expect("gpu_meta");
    assert_eq!((meta.schema_version, meta._reserved), (1, 0));
    let devices = snapshot.devices.as_ref().expect("gpu_device");
    assert_eq!(meta.n_devices as usize, devices.len());
    for timestamp in timestamps(snapshot) {
        let boottime = to_boottime_ns(timestamp, meta.clock_offset_ns).expect("a time since the machine was started");
        assert!(boottime <= meta.last_update_boottime_ns, "a record from {boottime} in {meta:?}");
    }

    let mut expected = BTreeMap::<u32, GpuPidMetricsAggregated>::new();
    for (key, record) in snapshot.process_devices.as_ref().expect("gpu_per_pid_per_device") {
        assert_eq!(key.device(), u32::from(record.gpu_device));
        assert!(devices.iter().any(|(index, _)| *index == key.device()), "{key:?} is on a device that is not published");
        add(&mut expected, *key, record);
    }
    let found: BTreeMap<u32, GpuPidMetricsAggregated> = snapshot.processes.as_ref().expect("gpu_per_pid").iter().copied().collect();
    assert_eq!(found, expected);
}

/// The contract's aggregation, written once more.
fn add(processes: &mut BTreeMap<u32, GpuPidMetricsAggregated>, key: PidDeviceKey, record: &GpuPidMetrics) {
    let process = processes.entry(key.pid()).or_default();
    process.timestamp_ns = process.timestamp_ns.max(record.timestamp_ns);
    process.used_gpu_memory_total += record.used_gpu_memory;
    process.sm_util_pct_max = process.sm_util_pct_max.max(record.sm_util_pct);
    process.mem_util_pct_max = process.mem_util_pct_max.max(record.mem_util_pct);
    process.device_count += 1;
    process.gpu_device_primary = match process.device_count {
        1 => record.gpu_device,
        _ => GPU_DEVICE_PRIMARY_MULTI,
    };
}

/// All that are set: 0 is a process without a sample.
fn timestamps(snapshot: &Snapshot) -> impl Iterator<Item = u64> {
    let devices = snapshot.devices.as_ref().expect("gpu_device").iter().map(|(_, record)| record.timestamp_ns);
    let processes = snapshot.processes.as_ref().expect("gpu_per_pid").iter().map(|(_, record)| record.timestamp_ns);
    let process_devices = snapshot.process_devices.as_ref().expect("gpu_per_pid_per_device").iter().map(|(_, record)| record.timestamp_ns);
    devices.chain(processes).chain(process_devices).filter(|timestamp| *timestamp > 0)
}
