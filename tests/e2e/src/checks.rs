//! What a snapshot of the maps must satisfy at any time.

use std::collections::BTreeMap;

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_DEVICE_PRIMARY_MULTI, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::{Error, Snapshot, to_boottime_ns};

/// Every record that can be read is from before now.
///
/// # Panics
/// When one is not, or a map cannot be read.
#[track_caller]
pub fn check_not_in_the_future(snapshot: &Snapshot, now_boottime_ns: u64) {
    not_in_the_future(snapshot, now_boottime_ns).unwrap_or_else(|why| panic!("{why}"));
}

/// The parts of one round agree; or nothing is shown, as when the source is gone.
///
/// # Panics
/// When they do not, or a map cannot be read.
#[track_caller]
pub fn check_round(snapshot: &Snapshot) {
    round(snapshot).unwrap_or_else(|why| panic!("{why}"));
}

/// Every record that can be read is from before now.
///
/// # Errors
/// What is not, with its values, or the map that cannot be read.
pub fn not_in_the_future(snapshot: &Snapshot, now_boottime_ns: u64) -> Result<(), String> {
    let meta = read(&snapshot.meta)?;
    demand(meta.last_update_boottime_ns <= now_boottime_ns, || format!("{meta:?} at {now_boottime_ns}"))?;
    earlier_than(snapshot, now_boottime_ns)
}

/// The parts of one round agree; or nothing is shown, as when the source is gone.
///
/// # Errors
/// What does not, with its values, or the map that cannot be read.
pub fn round(snapshot: &Snapshot) -> Result<(), String> {
    let (meta, devices) = (read(&snapshot.meta)?, read(&snapshot.devices)?);
    demand((meta.schema_version, meta._reserved) == (1, 0), || format!("{meta:?}"))?;
    if is_withdrawn(snapshot)? {
        return Ok(());
    }
    demand(meta.n_devices as usize == devices.len(), || format!("{} devices in {meta:?}", devices.len()))?;
    earlier_than(snapshot, meta.last_update_boottime_ns)?;

    let mut expected = BTreeMap::<u32, GpuPidMetricsAggregated>::new();
    for (key, record) in read(&snapshot.process_devices)? {
        demand(key.device() == u32::from(record.gpu_device), || format!("{key:?} holds {record:?}"))?;
        let is_published = devices.iter().any(|(index, _)| *index == key.device());
        demand(is_published, || format!("{key:?} is on a device that is not published"))?;
        add(&mut expected, *key, record);
    }
    let found: BTreeMap<u32, GpuPidMetricsAggregated> = read(&snapshot.processes)?.iter().copied().collect();
    for pid in expected.keys().chain(found.keys()) {
        let (expected, found) = (expected.get(pid), found.get(pid));
        demand(expected == found, || format!("process {pid} is {found:?}, and over its devices {expected:?}"))?;
    }
    Ok(())
}

/// The maps are empty, all of them: `gpu_meta` stays as the last round left it then, and grows stale.
fn is_withdrawn(snapshot: &Snapshot) -> Result<bool, String> {
    Ok(read(&snapshot.devices)?.is_empty() && read(&snapshot.processes)?.is_empty() && read(&snapshot.process_devices)?.is_empty())
}

/// Every record is from this moment or before, by the offset in `gpu_meta`.
fn earlier_than(snapshot: &Snapshot, boottime_ns: u64) -> Result<(), String> {
    let meta = read(&snapshot.meta)?;
    let devices = read(&snapshot.devices)?.iter().map(|(_, record)| record.timestamp_ns);
    let processes = read(&snapshot.processes)?.iter().map(|(_, record)| record.timestamp_ns);
    let process_devices = read(&snapshot.process_devices)?.iter().map(|(_, record)| record.timestamp_ns);
    // 0 is a process without a sample.
    for timestamp in devices.chain(processes).chain(process_devices).filter(|timestamp| *timestamp > 0) {
        let boottime = to_boottime_ns(timestamp, meta.clock_offset_ns);
        let taken = boottime.ok_or_else(|| format!("a record from {timestamp}, before the machine was started, with {meta:?}"))?;
        demand(taken <= boottime_ns, || format!("a record from {taken} at {boottime_ns}, with {meta:?}"))?;
    }
    Ok(())
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

fn read<T>(part: &Result<T, Error>) -> Result<&T, String> {
    part.as_ref().map_err(ToString::to_string)
}

fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
