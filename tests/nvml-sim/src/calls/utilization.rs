//! Utilization of processes.

use crate::{
    abi::{self, nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t, nvmlProcessesUtilizationInfo_v1_t},
    clock,
    runtime::{Call, Done, Gpu, Out},
    scenario::{Activity, Code, Device, ProcessUtilization, Sample},
};

/// A count query (no array) answers the ring's capacity.
pub(crate) fn of_processes(
    call: &Call<'_>,
    device: nvmlDevice_t,
    samples: Out<nvmlProcessUtilizationSample_t>,
    count: Out<u32>,
    last_seen_us: u64,
) -> Done {
    let gpu = call.gpu(device)?;
    let utilization = gpu.device.process_utilization.get()?;
    if samples.is_null() {
        count.put(utilization.capacity)?;
        return Err(Code::INSUFFICIENT_SIZE);
    }
    let rows = rows(call, gpu, utilization, count, last_seen_us)?;
    rows.iter().enumerate().try_for_each(|(at, (pid, sample))| samples.put_at(at, old_row(*pid, sample)))
}

pub(crate) fn of_all_processes(call: &Call<'_>, device: nvmlDevice_t, info: Out<nvmlProcessesUtilizationInfo_v1_t>) -> Done {
    let gpu = call.gpu(device)?;
    let asked = info.get()?;
    if asked.version != abi::nvmlProcessesUtilizationInfo_v1 {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    let utilization = gpu.device.process_utilization.get()?;
    let array = Out::member(asked.procUtilArray);
    let mut count = asked.processSamplesCount;
    if array.is_null() {
        info.put(nvmlProcessesUtilizationInfo_v1_t { processSamplesCount: utilization.capacity, ..asked })?;
        return Err(Code::INSUFFICIENT_SIZE);
    }
    let found = rows(call, gpu, utilization, Out::member(&raw mut count), asked.lastSeenTimeStamp);
    info.put(nvmlProcessesUtilizationInfo_v1_t { processSamplesCount: count, ..asked })?;
    found?.iter().enumerate().try_for_each(|(at, (pid, sample))| array.put_at(at, new_row(*pid, sample)))
}

/// The rows to hand out, their number already in `count`. None newer than the cursor: `NOT_FOUND`.
fn rows(
    call: &Call<'_>,
    gpu: &Gpu,
    utilization: &ProcessUtilization,
    count: Out<u32>,
    last_seen_us: u64,
) -> Result<Vec<(u32, Sample)>, Code> {
    let room = count.get()?;
    let rows = newer_than(&gpu.device, utilization, last_seen_us, clock::realtime_us());
    if rows.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    let needed = rows.len() as u32;
    let growth = gpu.device.process_utilization_growth;
    let asked = if needed > room { Some(needed) } else { gpu.grows(call.symbol, growth.times).then(|| room.saturating_add(growth.by)) };
    count.put(asked.unwrap_or(needed))?;
    asked.map_or(Ok(rows), |_| Err(Code::INSUFFICIENT_SIZE))
}

fn newer_than(device: &Device, utilization: &ProcessUtilization, last_seen_us: u64, now_us: u64) -> Vec<(u32, Sample)> {
    // lastSeen 0 asks for each process's last sample, not for all of them.
    let every = utilization.every_sample && last_seen_us > 0;
    let mut rows: Vec<_> = utilization.raw_rows.iter().map(|row| (row.pid, row.sample)).collect();
    for process in &device.processes {
        match &process.activity {
            Activity::Samples(samples) if every => {
                rows.extend(samples.iter().filter(|sample| sample.at_us > last_seen_us).map(|sample| (process.pid, *sample)));
            }
            activity => rows.extend(activity.newest(last_seen_us, now_us).map(|sample| (process.pid, sample))),
        }
    }
    rows
}

fn old_row(pid: u32, sample: &Sample) -> nvmlProcessUtilizationSample_t {
    let load = sample.load;
    nvmlProcessUtilizationSample_t {
        pid,
        timeStamp: sample.at_us,
        smUtil: load.sm,
        memUtil: load.mem,
        encUtil: load.enc,
        decUtil: load.dec,
    }
}

fn new_row(pid: u32, sample: &Sample) -> nvmlProcessUtilizationInfo_v1_t {
    let load = sample.load;
    nvmlProcessUtilizationInfo_v1_t {
        timeStamp: sample.at_us,
        pid,
        smUtil: load.sm,
        memUtil: load.mem,
        encUtil: load.enc,
        decUtil: load.dec,
        jpgUtil: 0,
        ofaUtil: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::newer_than;
    use crate::scenario::{Device, Load, Process, ProcessUtilization, RawRow, Sample};

    const LOAD: Load = Load::new(50, 20);

    fn device() -> Device {
        let early = Process::compute(1, 0).sampled_at(vec![Sample::new(10, LOAD), Sample::new(20, LOAD)]);
        let late = Process::compute(2, 0).sampled_at(vec![Sample::new(30, LOAD)]);
        Device::default().process(early).process(late).process(Process::compute(3, 0))
    }

    #[track_caller]
    fn check(utilization: &ProcessUtilization, last_seen_us: u64, expected: &[(u32, u64)]) {
        let rows = newer_than(&device(), utilization, last_seen_us, 1_000);
        assert_eq!(rows.iter().map(|(pid, sample)| (*pid, sample.at_us)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn one_row_a_process_and_only_newer_ones() {
        let utilization = ProcessUtilization::default();
        check(&utilization, 0, &[(1, 20), (2, 30)]);
        check(&utilization, 5, &[(1, 20), (2, 30)]);
        check(&utilization, 20, &[(2, 30)]);
        check(&utilization, 30, &[]);
    }

    #[test]
    fn every_sample_when_told_so_but_not_from_the_beginning() {
        let utilization = ProcessUtilization { every_sample: true, ..ProcessUtilization::default() };
        check(&utilization, 5, &[(1, 10), (1, 20), (2, 30)]);
        check(&utilization, 0, &[(1, 20), (2, 30)]);
    }

    #[test]
    fn garbage_comes_whatever_was_seen() {
        let garbage = RawRow { pid: 0, sample: Sample::new(0, Load::new(37_100, 0)) };
        let utilization = ProcessUtilization { raw_rows: vec![garbage], ..ProcessUtilization::default() };
        check(&utilization, 30, &[(0, 0)]);
    }
}
