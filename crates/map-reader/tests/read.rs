//! What the maps hold is what is read, also while it changes.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpu_types::bytes::Record;
use gpu_types::keys::PidDeviceKey;
use gpu_types::{GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use map_reader::{Error, Order, Phase, Reader, Source};

mod support;
use support::{PinDir, SetOnDrop, bind_to_one_cpu, put, put_all};

fn process(pid: u32) -> GpuPidMetricsAggregated {
    GpuPidMetricsAggregated { used_gpu_memory_total: u64::from(pid) << 12, device_count: 1, ..Default::default() }
}

#[test]
fn what_was_written_is_read() {
    let (pins, maps) = PinDir::full();
    let meta = GpuMeta { schema_version: 1, helper_pid: 7, clock_offset_ns: -5, ..Default::default() };
    let device = GpuDeviceMetrics { timestamp_ns: 9, sm_util_pct: 71, compute_mode: 3, ..Default::default() };
    let metrics = GpuPidMetrics { used_gpu_memory: 1 << 40, mig_instance: 5, ..Default::default() };
    put(&maps.meta, 0u32, meta);
    put(&maps.device, 0u32, GpuDeviceMetrics { mem_used: 5, ..Default::default() });
    put(&maps.device, 15u32, device);
    put(&maps.device, 2u32, device);
    for pid in [u32::MAX, 3, 70_000] {
        put(&maps.per_pid, pid, process(pid));
    }
    let keys = [PidDeviceKey::new(70_000, 0), PidDeviceKey::new(3, 1), PidDeviceKey::new(3, 0)];
    put_all(&maps.per_pid_per_device, &keys, &[metrics; 3]);

    let reader = Reader::open(pins.path());
    assert_eq!(reader.meta().unwrap(), meta);
    assert_eq!(reader.devices().unwrap(), [(2, device), (15, device)], "slot 0 has no timestamp: it is empty");
    assert_eq!(reader.device(15).unwrap(), Some(device));
    assert_eq!(reader.device(0).unwrap(), None);
    assert_eq!(reader.device(16).unwrap(), None, "beyond the map");
    let by_pid = [3, 70_000, u32::MAX].map(|pid| (pid, process(pid)));
    assert_eq!(reader.processes(Order::ByKey).unwrap(), by_pid);
    let mut unsorted = reader.processes(Order::Unsorted).unwrap();
    unsorted.sort_by_key(|entry| entry.0);
    assert_eq!(unsorted, by_pid);
    assert_eq!(reader.process(70_000).unwrap(), Some(process(70_000)));
    assert_eq!(reader.process(1).unwrap(), None);
    let by_key = [PidDeviceKey::new(3, 0), PidDeviceKey::new(3, 1), PidDeviceKey::new(70_000, 0)].map(|key| (key, metrics));
    assert_eq!(reader.process_devices(Order::ByKey).unwrap(), by_key);
    assert_eq!(reader.process_device(keys[1]).unwrap(), Some(metrics));
    assert_eq!(reader.process_device(PidDeviceKey::new(4, 0)).unwrap(), None);
}

#[test]
fn new_maps_are_empty() {
    let (pins, _maps) = PinDir::full();
    let reader = Reader::open(pins.path());
    assert_eq!(reader.meta().unwrap(), GpuMeta::default());
    assert_eq!(reader.devices().unwrap(), []);
    assert_eq!(reader.processes(Order::Unsorted).unwrap(), []);
    assert_eq!(reader.process_devices(Order::ByKey).unwrap(), []);
    let error = reader.state().unwrap_err();
    assert!(matches!(error, Error::NeverWritten { map: "gpu_bridge_state" }), "{error:?}");
}

#[test]
fn the_state_is_read_and_an_unknown_version_refused() {
    let (pins, maps) = PinDir::full();
    let reader = Reader::open(pins.path());
    let mut record = GpuBridgeState { sequence: 2, version: 1, phase: 1, source: 3, n_devices: 1, ..Default::default() };
    record.poll_interval_ns = 250_000_000;
    record.devices[0].name[..4].copy_from_slice(b"T4 x");
    put(&maps.state, 0u32, record);
    let state = reader.state().unwrap();
    assert_eq!(*state.record(), record);
    assert!(state.is_consistent());
    assert_eq!((state.phase(), state.source()), (Phase::Publishing, Source::MockFallback));
    assert_eq!(state.poll_interval(), Some(Duration::from_millis(250)));
    assert_eq!(state.devices().map(|device| device.name().into_owned()).collect::<Vec<_>>(), ["T4 x"]);

    put(&maps.state, 0u32, GpuBridgeState { version: 2, ..record });
    let error = reader.state().unwrap_err();
    assert!(matches!(error, Error::UnknownVersion { expected: 1, found: 2, .. }), "{error:?}");
}

#[test]
fn every_entry_of_a_full_map_is_read() {
    let (pins, maps) = PinDir::full();
    let pids: Vec<u32> = (1..=6000).collect();
    let records: Vec<_> = pids.iter().map(|&pid| process(pid)).collect();
    put_all(&maps.per_pid, &pids, &records);
    // Which ones the LRU map dropped is its own affair.
    let kept: Vec<u32> = pids.into_iter().filter(|pid| maps.per_pid.lookup(pid.as_bytes(), MapFlags::ANY).unwrap().is_some()).collect();
    assert!(kept.len() > 3500, "the map holds only {} of its 4096 entries", kept.len());

    let read = Reader::open(pins.path()).processes(Order::ByKey).unwrap();
    assert_eq!(read, kept.into_iter().map(|pid| (pid, process(pid))).collect::<Vec<_>>());
}

/// Reads `per_pid` a few hundred times while `write` runs over and over in another thread; every read must be free of duplicates and of
/// records under the wrong key.
#[track_caller]
fn check_while_writing(reader: &Reader, mut write: impl FnMut() + Send, seen: impl Fn(&BTreeSet<u32>)) {
    const READS: usize = 300;
    let started = Instant::now();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            bind_to_one_cpu();
            while !done.load(Ordering::Relaxed) {
                write();
            }
        });
        // Ends the writer also when an assertion fails.
        let _done = SetOnDrop(&done);
        for _ in 0..READS {
            let entries = reader.processes(Order::Unsorted).unwrap();
            let pids: BTreeSet<u32> = entries.iter().map(|entry| entry.0).collect();
            assert_eq!(pids.len(), entries.len(), "a PID appears twice");
            for (pid, record) in entries {
                assert_eq!(record, process(pid), "the record of another PID");
            }
            seen(&pids);
        }
    });
    assert!(started.elapsed() < Duration::from_secs(60), "{READS} reads took {:?}", started.elapsed());
}

fn remove(map: &MapHandle, pid: u32) {
    // The map may have dropped it by itself.
    drop(map.delete(pid.as_bytes()));
}

#[test]
fn a_full_map_that_changes_meanwhile_is_read_without_duplicates() {
    let (pins, maps) = PinDir::full();
    let mut next = 0u32;
    let write = || {
        let pids: Vec<u32> = (0..64).map(|step| 1 + (next + step) % 9000).collect();
        let records: Vec<_> = pids.iter().map(|&pid| process(pid)).collect();
        put_all(&maps.per_pid, &pids, &records);
        next = (next + 64) % 9000;
    };
    check_while_writing(&Reader::open(pins.path()), write, |_| {});
}

#[test]
fn entries_that_stay_are_in_every_read_while_others_come_and_go() {
    let (pins, maps) = PinDir::full();
    let staying: BTreeSet<u32> = (1..=1000).collect();
    let write_staying = || {
        bind_to_one_cpu();
        staying.iter().for_each(|&pid| put(&maps.per_pid, pid, process(pid)));
    };
    thread::scope(|scope| scope.spawn(write_staying).join().unwrap());
    let mut round = 0u32;
    let write = || {
        for pid in 10_000 + round % 500..10_050 + round % 500 {
            put(&maps.per_pid, pid, process(pid));
            remove(&maps.per_pid, pid.wrapping_sub(300));
        }
        round = round.wrapping_add(17);
    };
    check_while_writing(&Reader::open(pins.path()), write, |seen| {
        let lost: Vec<_> = staying.difference(seen).collect();
        assert!(lost.is_empty(), "not read: {lost:?}");
    });
}

#[test]
fn one_reader_serves_several_threads() {
    let (pins, maps) = PinDir::full();
    for pid in 1..=500 {
        put(&maps.per_pid, pid, process(pid));
    }
    let reader = Reader::open(pins.path());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(reader.processes(Order::ByKey).unwrap().len(), 500);
                }
            });
        }
    });
}
