//! Snapshots beside a bridge that keeps its sequence counter in a memory mapping.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use libbpf_rs::MapHandle;
use map_reader::{Consistency, Error, Reader, Snapshot};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

mod support;
use support::{Maps, PinDir, SetOnDrop, put, put_all};

const PID: u32 = 4242;
const LENGTH: NonZeroUsize = NonZeroUsize::new(size_of::<GpuBridgeState>()).unwrap();

/// The sequence counter of `gpu_bridge_state`, mapped for writing as a bridge does.
struct Counter(NonNull<AtomicU64>);

// SAFETY: an atomic in memory that stays mapped until the value is dropped.
#[expect(unsafe_code, reason = "the mapping is shared memory")]
unsafe impl Sync for Counter {}

impl Counter {
    #[expect(unsafe_code, reason = "memory mapping")]
    fn map(state: &MapHandle) -> Self {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe { mmap(None, LENGTH, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, state, 0) };
        Self(address.expect("mapping gpu_bridge_state").cast())
    }

    #[expect(unsafe_code, reason = "memory mapping")]
    fn get(&self) -> &AtomicU64 {
        // SAFETY: the record begins with its u64 counter, and the mapping is aligned to a page and lives as long as self.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Counter {
    #[expect(unsafe_code, reason = "memory mapping")]
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; no reference outlives self.
        let unmapped = unsafe { munmap(self.0.cast(), LENGTH.get()) };
        assert_eq!(unmapped, Ok(()));
    }
}

/// Makes every map say `round`.
fn write_round(maps: &Maps, round: u64) {
    let pids: Vec<u32> = (1..=40).collect();
    let keys: Vec<_> = pids.iter().map(|&pid| PidDeviceKey::new(pid, 0)).collect();
    put_all(&maps.per_pid, &pids, &[GpuPidMetricsAggregated { timestamp_ns: round, ..Default::default() }; 40]);
    put_all(&maps.per_pid_per_device, &keys, &[GpuPidMetrics { timestamp_ns: round, ..Default::default() }; 40]);
    for index in 0..4u32 {
        put(&maps.device, index, GpuDeviceMetrics { timestamp_ns: round, ..Default::default() });
    }
    put(&maps.meta, 0u32, GpuMeta { schema_version: 1, last_update_boottime_ns: round, helper_pid: PID, ..Default::default() });
}

/// The different rounds that the parts of a snapshot are of.
fn rounds(snapshot: &Snapshot) -> Vec<u64> {
    let mut rounds = vec![snapshot.meta.as_ref().unwrap().last_update_boottime_ns];
    rounds.extend(snapshot.devices.as_ref().unwrap().iter().map(|entry| entry.1.timestamp_ns));
    rounds.extend(snapshot.processes.as_ref().unwrap().iter().map(|entry| entry.1.timestamp_ns));
    rounds.extend(snapshot.process_devices.as_ref().unwrap().iter().map(|entry| entry.1.timestamp_ns));
    rounds.sort_unstable();
    rounds.dedup();
    rounds
}

fn publish_state(maps: &Maps, change: impl FnOnce(&mut GpuBridgeState)) {
    let mut record = GpuBridgeState { version: 1, phase: 1, source: 1, helper_pid: PID, ..Default::default() };
    change(&mut record);
    put(&maps.state, 0u32, record);
}

#[test]
fn a_verified_snapshot_is_of_one_round() {
    let (pins, maps) = PinDir::full();
    write_round(&maps, 1);
    publish_state(&maps, |_| {});
    let counter = Counter::map(&maps.state);
    let reader = Reader::open(pins.path());
    let done = AtomicBool::new(false);
    let mut verified = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 2.. {
                counter.get().fetch_add(1, Ordering::SeqCst);
                write_round(&maps, round);
                counter.get().fetch_add(1, Ordering::SeqCst);
                // A bridge at its smallest interval.
                thread::sleep(Duration::from_millis(1));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // Ends the writer also when an assertion fails.
        let _done = SetOnDrop(&done);
        let limit = Instant::now() + Duration::from_secs(60);
        while verified < 500 && Instant::now() < limit {
            let snapshot = reader.snapshot();
            if snapshot.consistency == Consistency::Verified {
                verified += 1;
                assert_eq!(rounds(&snapshot).len(), 1, "rounds {:?} in one snapshot", rounds(&snapshot));
                assert!(snapshot.state.as_ref().unwrap().is_consistent());
                assert_eq!(snapshot.processes.as_ref().unwrap().len(), 40);
            }
        }
    });
    assert_eq!(verified, 500, "so few snapshots could be verified within a minute");
}

#[test]
fn a_snapshot_without_the_bridges_own_map_is_unverified() {
    let (pins, maps) = PinDir::full();
    pins.remove("gpu_bridge_state");
    write_round(&maps, 7);
    let snapshot = Reader::open(pins.path()).snapshot();
    assert_eq!(snapshot.consistency, Consistency::Unverified);
    assert_eq!(rounds(&snapshot), [7]);
    assert!(snapshot.state.unwrap_err().is_absent());
}

#[test]
fn a_counter_that_another_bridge_left_behind_verifies_nothing() {
    let (pins, maps) = PinDir::full();
    write_round(&maps, 7);
    publish_state(&maps, |record| record.helper_pid = PID + 1);
    assert_eq!(Reader::open(pins.path()).snapshot().consistency, Consistency::Unverified);
    publish_state(&maps, |_| {});
    assert_eq!(Reader::open(pins.path()).snapshot().consistency, Consistency::Verified);
}

#[test]
fn a_bridge_that_died_within_a_round_delays_a_snapshot_only_shortly() {
    let (pins, maps) = PinDir::full();
    write_round(&maps, 7);
    publish_state(&maps, |record| record.sequence = 11);
    let started = Instant::now();
    let snapshot = Reader::open(pins.path()).snapshot();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(snapshot.consistency, Consistency::Unsettled);
    assert_eq!(rounds(&snapshot), [7]);
    assert!(!snapshot.state.unwrap().is_consistent());
}

#[test]
fn records_of_another_schema_are_not_taken_for_records_of_this_one() {
    let (pins, maps) = PinDir::full();
    write_round(&maps, 7);
    publish_state(&maps, |_| {});
    put(&maps.meta, 0u32, GpuMeta { schema_version: 2, last_update_boottime_ns: 7, helper_pid: PID, ..Default::default() });
    let mut reader = Reader::open(pins.path());
    let snapshot = reader.snapshot();
    let check = |error: &Error, map: &str| {
        let expected = format!("cannot interpret {map}: its version is 2, this program knows 1 (use one that came with the bridge)");
        assert_eq!(error.to_string(), expected);
        assert!(!error.is_absent());
    };
    check(&snapshot.meta.unwrap_err(), "gpu_meta");
    check(&snapshot.devices.unwrap_err(), "gpu_device");
    check(&snapshot.processes.unwrap_err(), "gpu_per_pid");
    check(&snapshot.process_devices.unwrap_err(), "gpu_per_pid_per_device");
    assert_eq!(snapshot.state.unwrap().record().helper_pid, PID, "it has a version of its own");
    assert_eq!(snapshot.consistency, Consistency::Unverified);
    check(&reader.meta().unwrap_err(), "gpu_meta");
    check(&reader.round().unwrap_err(), "gpu_meta");
    check(&reader.wait_for_round(None, Duration::from_secs(60)).unwrap_err(), "gpu_meta");
}

#[test]
fn a_snapshot_has_what_can_be_read_beside_what_cannot() {
    let (pins, maps) = PinDir::full();
    write_round(&maps, 7);
    publish_state(&maps, |_| {});
    pins.remove("gpu_meta");
    let snapshot = Reader::open(pins.path()).snapshot();
    assert_eq!(snapshot.consistency, Consistency::Unverified, "whose counter it is cannot be told without gpu_meta");
    assert_eq!(snapshot.meta.unwrap_err().map(), "gpu_meta");
    assert_eq!(snapshot.devices.unwrap().len(), 4);
    assert_eq!(snapshot.processes.unwrap().len(), 40);
}
