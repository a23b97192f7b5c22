//! What a snapshot of the maps must satisfy at any time.

use std::collections::BTreeMap;

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_DEVICE_PRIMARY_MULTI, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::{BridgeState, Error, Phase, Snapshot, to_boottime_ns};

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
        return may_be_empty(snapshot.state.as_ref().map(BridgeState::phase).ok(), meta);
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

/// Whoever publishes devices shows them.
fn may_be_empty(phase: Option<Phase>, meta: &GpuMeta) -> Result<(), String> {
    demand(phase != Some(Phase::Publishing) || meta.n_devices == 0, || format!("empty maps while publishing, with {meta:?}"))
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

#[cfg(test)]
mod tests {
    use gpu_types::GpuDeviceMetrics;
    use map_reader::Consistency;

    use super::*;

    const OFFSET_NS: i64 = 1_000;

    /// A process on two devices, in a round of boot time 500.
    fn snapshot() -> Snapshot {
        let device = GpuDeviceMetrics { timestamp_ns: 1_400, ..GpuDeviceMetrics::default() };
        let on = |gpu_device, used_gpu_memory, sm_util_pct| {
            let record = GpuPidMetrics { timestamp_ns: 1_300, used_gpu_memory, sm_util_pct, gpu_device, ..GpuPidMetrics::default() };
            (PidDeviceKey::new(7, gpu_device.into()), record)
        };
        let process = GpuPidMetricsAggregated {
            timestamp_ns: 1_300,
            used_gpu_memory_total: 30,
            sm_util_pct_max: 9,
            gpu_device_primary: GPU_DEVICE_PRIMARY_MULTI,
            device_count: 2,
            ..GpuPidMetricsAggregated::default()
        };
        let mut snapshot = Snapshot::default();
        snapshot.meta =
            Ok(GpuMeta { schema_version: 1, n_devices: 2, last_update_boottime_ns: 500, clock_offset_ns: OFFSET_NS, ..GpuMeta::default() });
        snapshot.devices = Ok(vec![(0, device), (1, device)]);
        snapshot.processes = Ok(vec![(7, process)]);
        snapshot.process_devices = Ok(vec![on(0, 10, 9), on(1, 20, 3)]);
        snapshot.consistency = Consistency::Verified;
        snapshot
    }

    #[track_caller]
    fn check_refused(change: impl FnOnce(&mut Snapshot), why: &str) {
        let mut changed = snapshot();
        change(&mut changed);
        let refused = round(&changed).expect_err("it does not agree");
        assert!(refused.contains(why), "{refused}");
    }

    #[test]
    fn parts_of_a_round_agree_and_an_empty_picture_has_none() {
        assert_eq!(round(&snapshot()), Ok(()));
        let mut withdrawn = snapshot();
        (withdrawn.devices, withdrawn.processes, withdrawn.process_devices) = (Ok(vec![]), Ok(vec![]), Ok(vec![]));
        assert_eq!(round(&withdrawn), Ok(()));
    }

    #[test]
    fn nothing_is_shown_only_by_who_publishes_nothing() {
        let meta = GpuMeta { n_devices: 2, ..GpuMeta::default() };
        for phase in [None, Some(Phase::Waiting), Some(Phase::Stopping), Some(Phase::Starting)] {
            assert_eq!(may_be_empty(phase, &meta), Ok(()), "{phase:?}");
        }
        assert!(may_be_empty(Some(Phase::Publishing), &meta).is_err_and(|why| why.contains("empty maps while publishing")));
        assert_eq!(may_be_empty(Some(Phase::Publishing), &GpuMeta::default()), Ok(()));
    }

    #[test]
    fn parts_that_do_not_agree_are_told() {
        check_refused(|snapshot| snapshot.devices = Ok(vec![]), "0 devices in");
        check_refused(|snapshot| snapshot.process_devices.as_mut().expect("read")[1].1.used_gpu_memory = 21, "process 7 is Some");
        check_refused(|snapshot| snapshot.process_devices = Ok(vec![]), "over its devices None");
        check_refused(|snapshot| snapshot.processes = Ok(vec![]), "process 7 is None");
        check_refused(|snapshot| snapshot.devices.as_mut().expect("read")[1].1.timestamp_ns = 1_501, "a record from 501 at 500");
        check_refused(|snapshot| snapshot.devices.as_mut().expect("read")[0].0 = 5, "is on a device that is not published");
        check_refused(|snapshot| snapshot.devices = Err(Error::NeverWritten { map: "gpu_device" }), "was not written yet");
    }

    #[test]
    fn the_future_begins_after_now() {
        assert_eq!(not_in_the_future(&snapshot(), 500), Ok(()));
        assert!(not_in_the_future(&snapshot(), 499).is_err_and(|why| why.contains("last_update_boottime_ns: 500")));
    }
}
