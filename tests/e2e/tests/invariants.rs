//! What a reader may rely on at every moment, looked at as fast as possible.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use e2e::checks::{check_not_in_the_future, check_round};
use e2e::{Bpffs, Bridge, Sim};
use map_reader::{Consistency, Order, Reader, boottime_now_ns};
use nvml_sim::scenario::{Code, Device, Load, Process, ProcessUtilization, Scenario};

const WATCH: Duration = Duration::from_secs(3);
/// Above the kernel's largest process id.
const FIRST_PID: u32 = 1 << 30;

#[test]
fn a_reader_of_the_mock_source_never_sees_the_future_nor_parts_that_disagree() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "5ms").start();
    let reader = bridge.wait_until_published(&pins);
    watch(&reader, 50, |_| {});
}

#[test]
fn a_reader_of_a_busy_driver_never_sees_the_future_nor_parts_that_disagree() {
    let pins = Bpffs::mount();
    let device = Device::default().utilization(71, 53).memory(80 << 30, 12 << 30, 1 << 30);
    let device = device.process_utilization(ProcessUtilization::default());
    let mut sim = Sim::install(Scenario::new().devices(4, device.clone()));
    let mut bridge = sim.bridge(&pins, "20ms").start();
    let reader = bridge.wait_until_published(&pins);

    // Processes come and go, some of them on two devices, and now and then the last device is lost and found.
    let (mut largest, mut fewest) = (0, usize::MAX);
    watch(&reader, 20, |step| {
        let count = reader.processes(Order::Unsorted).unwrap().len();
        (largest, fewest) = (largest.max(count), fewest.min(count));
        if !step.is_multiple_of(40) {
            return;
        }
        let change = step / 40;
        let index = change % 4;
        let device = match index {
            3 if change % 16 == 3 => device.clone().lost(Code::GPU_IS_LOST),
            _ => (0..change % 5).fold(device.clone(), |device, i| device.process(process(change + i))),
        };
        let index = usize::try_from(index).unwrap();
        sim.change(index, |_| device);
    });
    assert!(largest > fewest, "between {fewest} and {largest} processes: none came or went");
}

fn process(number: u32) -> Process {
    let loads = vec![Load::all(number % 101, 50, 7, 3), Load::new(100, 0)];
    Process::compute(FIRST_PID + number % 20, u64::from(number) << 20).sampled_every(100, loads)
}

/// Looks at all maps as often as possible, and does a `step` in between.
#[track_caller]
fn watch(reader: &Reader, rounds: usize, mut step: impl FnMut(u32)) {
    let (mut verified, mut stamps) = (0, Vec::new());
    let end = Instant::now() + WATCH;
    for number in 0.. {
        if Instant::now() >= end {
            break;
        }
        let snapshot = reader.snapshot();
        let now = boottime_now_ns().unwrap();
        check_not_in_the_future(&snapshot, now);
        if snapshot.consistency == Consistency::Verified {
            check_round(&snapshot);
            verified += 1;
        }
        stamps.push(snapshot.meta.unwrap().last_update_boottime_ns);
        step(number);
    }
    assert!(stamps.is_sorted(), "gpu_meta's time ran backwards");
    stamps.dedup();
    assert!(stamps.len() > rounds, "only {} rounds were seen", stamps.len());
    assert!(verified > rounds, "only {verified} of {} rounds could be verified", stamps.len());
}

/// The times of one device and one process.
type Times = (u64, u64);

#[test]
fn whoever_sees_a_new_gpu_meta_sees_the_records_that_belong_to_it() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "5ms").start();
    let reader = bridge.wait_until_published(&pins);
    let pid = reader.processes(Order::ByKey).unwrap().first().expect("a mock process").0;

    // What was seen after each gpu_meta at once, and what truly belongs to it.
    let mut seen: Vec<(u64, Times)> = Vec::new();
    let mut rounds = BTreeMap::<u64, Times>::new();
    let end = Instant::now() + WATCH;
    while Instant::now() < end {
        let stamp = reader.meta().unwrap().last_update_boottime_ns;
        seen.push((stamp, times(&reader, pid)));
        if seen.len().is_multiple_of(10) {
            let snapshot = reader.snapshot();
            if snapshot.consistency == Consistency::Verified {
                let device = snapshot.devices.unwrap()[0].1.timestamp_ns;
                let process = snapshot.processes.unwrap().iter().find(|(candidate, _)| *candidate == pid).unwrap().1.timestamp_ns;
                rounds.insert(snapshot.meta.unwrap().last_update_boottime_ns, (device, process));
            }
        }
    }
    assert!(rounds.len() > 50, "only {} rounds could be verified", rounds.len());
    let mut compared = 0;
    for (stamp, (device, process)) in seen {
        if let Some(round) = rounds.get(&stamp) {
            assert!(device >= round.0, "gpu_meta of {stamp} was there before its gpu_device: {device} < {}", round.0);
            assert!(process >= round.1, "gpu_meta of {stamp} was there before its gpu_per_pid: {process} < {}", round.1);
            compared += 1;
        }
    }
    assert!(compared > 500, "only {compared} reads could be compared");
}

fn times(reader: &Reader, pid: u32) -> Times {
    let device = reader.device(0).unwrap().expect("the mock source's first device").timestamp_ns;
    let process = reader.process(pid).unwrap().expect("the mock process").timestamp_ns;
    (device, process)
}
