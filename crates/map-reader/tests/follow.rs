//! Waiting for rounds, and maps that are replaced.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::thread;
use std::time::{Duration, Instant};

use gpu_types::maps::{META, PER_PID};
use gpu_types::{GpuBridgeState, GpuMeta, GpuPidMetricsAggregated};
use libbpf_rs::MapHandle;
use map_reader::{Error, Map, Reader, Round};

mod support;
use support::{PinDir, put};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(30);

fn publish(meta: &MapHandle, stamp_ns: u64) {
    put(meta, 0u32, GpuMeta { schema_version: 1, last_update_boottime_ns: stamp_ns, ..Default::default() });
}

#[test]
fn the_round_that_is_there_is_given_at_once_and_then_only_another_one() {
    let (pins, maps) = PinDir::full();
    let mut reader = Reader::open(pins.path());
    assert_eq!(reader.wait_for_round(None, SHORT).unwrap(), None, "nothing was published");
    publish(&maps.meta, 7);
    let first = reader.wait_for_round(None, LONG).unwrap().expect("a round");
    assert_eq!(first.boottime_ns(), 7);
    assert_eq!(reader.round().unwrap(), Some(first));
    let started = Instant::now();
    assert_eq!(reader.wait_for_round(Some(first), SHORT).unwrap(), None);
    assert!(started.elapsed() >= SHORT);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SHORT);
            publish(&maps.meta, 8);
        });
        assert_eq!(reader.wait_for_round(Some(first), LONG).unwrap().map(Round::boottime_ns), Some(8));
    });
}

#[test]
fn a_fast_bridge_is_followed_round_by_round() {
    let (pins, maps) = PinDir::full();
    put(&maps.state, 0u32, GpuBridgeState { version: 1, poll_interval_ns: 20_000_000, ..Default::default() });
    let mut reader = Reader::open(pins.path());
    let mut seen = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for stamp_ns in 1..=20 {
                publish(&maps.meta, stamp_ns);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let mut round = None;
        while seen.last() != Some(&20) {
            round = Some(reader.wait_for_round(round, LONG).unwrap().expect("a round"));
            seen.extend(round.map(Round::boottime_ns));
        }
    });
    assert!(seen.is_sorted() && seen.len() >= 10, "{seen:?}");
}

#[test]
fn new_maps_are_followed_also_when_they_hold_the_same_stamp() {
    let (pins, maps) = PinDir::full();
    publish(&maps.meta, 7);
    put(&maps.per_pid, 1u32, GpuPidMetricsAggregated::default());
    let mut reader = Reader::open(pins.path());
    let round = reader.wait_for_round(None, LONG).unwrap();
    assert!(!reader.reopen(), "nothing has changed");

    let old = reader.map_id(Map::Meta).unwrap();
    for name in ["gpu_meta", "gpu_per_pid"] {
        pins.remove(name);
    }
    let (meta, _per_pid) = (pins.create(&META), pins.create(&PER_PID));
    assert_eq!(reader.processes(map_reader::Order::ByKey).unwrap().len(), 1, "the maps of before are still held");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SHORT);
            publish(&meta, 7);
        });
        let next = reader.wait_for_round(round, LONG).unwrap().expect("the new bridge's round");
        assert!(Some(next) != round);
        assert_eq!(next.boottime_ns(), 7);
    });
    assert_ne!(reader.map_id(Map::Meta).unwrap(), old);
    assert_eq!(reader.processes(map_reader::Order::ByKey).unwrap(), []);
}

#[test]
fn a_bridge_that_is_not_there_yet_is_waited_for() {
    let pins = PinDir::empty();
    let mut reader = Reader::open(pins.path());
    let error = reader.wait_for_round(None, SHORT).unwrap_err();
    assert!(matches!(error, Error::NotPinned { map: "gpu_meta", .. }), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SHORT);
            publish(&pins.create(&META), 3);
        });
        assert_eq!(reader.wait_for_round(None, LONG).unwrap().map(Round::boottime_ns), Some(3));
    });
}

#[test]
fn waits_that_are_short_follow_too() {
    let pins = PinDir::empty();
    let mut reader = Reader::open(pins.path());
    publish(&pins.create(&META), 3);
    let end = Instant::now() + LONG;
    let mut found = None;
    while found.is_none() && Instant::now() < end {
        found = reader.wait_for_round(None, Duration::from_millis(1)).ok().flatten();
    }
    assert_eq!(found.map(Round::boottime_ns), Some(3));
}

#[test]
fn what_waiting_does_not_mend_is_told_at_once() {
    let pins = PinDir::empty();
    pins.create(&gpu_types::maps::MapDefinition { value_size: 40, ..META });
    let started = Instant::now();
    let error = Reader::open(pins.path()).wait_for_round(None, LONG).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let error = Reader::open_only(pins.path(), &[Map::State]).wait_for_round(None, LONG).unwrap_err();
    assert!(matches!(error, Error::NotAskedFor { .. }), "{error}");
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn a_map_whose_pin_is_gone_is_no_longer_open_after_reopening() {
    let (pins, _maps) = PinDir::full();
    let mut reader = Reader::open_only(pins.path(), &[Map::Meta, Map::PerPid]);
    pins.remove("gpu_meta");
    reader.meta().unwrap();
    assert!(reader.reopen());
    assert!(reader.meta().unwrap_err().is_absent());
    reader.processes(map_reader::Order::Unsorted).unwrap();
    assert!(matches!(reader.devices(), Err(Error::NotAskedFor { .. })), "what was not asked for stays closed");
}
