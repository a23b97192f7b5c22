//! `gpu_bridge_state` and its sequence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gpu_types::maps;
use gpu_types::{GPU_BRIDGE_PUBLISHING, GPU_BRIDGE_STARTING, GPU_BRIDGE_STATE_VERSION, GpuBridgeState};
use map_publisher::{Options, Publisher};
use test_support::Bpffs;

use crate::world::{contents, get, open, options, pinned, put, round, state};

#[test]
fn a_bridge_starts_with_an_empty_state_of_its_own() {
    let bpffs = Bpffs::mount();
    let mut first = open(bpffs.path());
    first.set_state(|state| {
        state.phase = GPU_BRIDGE_PUBLISHING;
        state.late_ticks = 3;
        state.devices[15].uuid[95] = 1;
    });
    first.publish(&round(1, [])).unwrap();
    let left = state(bpffs.path());
    assert_eq!((left.phase, left.late_ticks, left.rounds, left.devices[15].uuid[95]), (GPU_BRIDGE_PUBLISHING, 3, 1, 1));
    drop(first);

    let _second = Publisher::open(&Options { helper_pid: 1, ..options(bpffs.path()) }).unwrap();
    let started = state(bpffs.path());
    assert!(started.sequence > left.sequence && started.sequence.is_multiple_of(2));
    let expected = GpuBridgeState {
        sequence: started.sequence,
        version: GPU_BRIDGE_STATE_VERSION,
        phase: GPU_BRIDGE_STARTING,
        helper_pid: 1,
        ..GpuBridgeState::default()
    };
    assert_eq!(started, expected);
}

#[test]
fn the_sequence_grows_with_every_change_and_every_round_and_rests_even() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let mut last = state(bpffs.path());
    let mut check = |expect_change: bool| {
        let now = state(bpffs.path());
        assert_eq!(now.sequence % 2, 0);
        assert_eq!(now.sequence > last.sequence, expect_change);
        last = now;
        now
    };
    publisher.set_state(|state| state.skipped_ticks = 7);
    assert_eq!(check(true).skipped_ticks, 7);
    publisher.set_state(|state| state.skipped_ticks = 7);
    check(false);
    publisher.publish(&round(1, [1])).unwrap();
    assert_eq!(check(true).rounds, 1);
    publisher.publish(&round(2, [1])).unwrap();
    assert_eq!(check(true).rounds, 2);
    publisher.set_state(|state| (state.sequence, state.version) = (1, 99));
    assert_eq!(check(false).version, GPU_BRIDGE_STATE_VERSION);
}

#[test]
fn readers_are_held_until_the_last_release() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let before = state(bpffs.path()).sequence;
    publisher.hold_readers();
    publisher.set_state(|state| state.phase = GPU_BRIDGE_PUBLISHING);
    assert_eq!((state(bpffs.path()).sequence, state(bpffs.path()).phase), (before + 1, GPU_BRIDGE_PUBLISHING));
    publisher.publish(&round(1, [1])).unwrap();
    assert_eq!((state(bpffs.path()).sequence, state(bpffs.path()).rounds), (before + 1, 1), "still under way");
    publisher.withdraw().unwrap();
    assert_eq!(state(bpffs.path()).sequence, before + 1);
    publisher.release_readers();
    assert_eq!(state(bpffs.path()).sequence, before + 2);
}

#[test]
fn a_sequence_that_a_killed_bridge_left_odd_is_carried_on() {
    let bpffs = Bpffs::mount();
    drop(open(bpffs.path()));
    let map = pinned(bpffs.path(), maps::GPU_BRIDGE_STATE);
    put(&map, 0u32, GpuBridgeState { sequence: 1001, ..state(bpffs.path()) });
    let _publisher = open(bpffs.path());
    assert_eq!(state(bpffs.path()).sequence, 1002);
}

/// Reads like a consumer, by copies of whole values, against a writer at full speed.
#[test]
fn a_snapshot_between_two_equal_even_sequences_is_one_round() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let records = |number: u64| round(number, [1, number as u32 + 1, 1_000_000]);
    publisher.publish(&records(1)).unwrap();

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let names = [maps::GPU_META, maps::GPU_DEVICE, maps::GPU_PER_PID, maps::GPU_PER_PID_PER_DEVICE];
            let maps = names.map(|name| pinned(bpffs.path(), name));
            let state_map = pinned(bpffs.path(), maps::GPU_BRIDGE_STATE);
            let sequence = || get::<u32, GpuBridgeState>(&state_map, 0).unwrap().sequence;
            let (mut accepted, mut refused) = (0u32, 0u32);
            while accepted < 200 {
                let before = sequence();
                let snapshot = contents(&maps);
                if before % 2 == 1 || sequence() != before {
                    refused += 1;
                    continue;
                }
                assert_eq!(snapshot, records(snapshot.meta.last_update_boottime_ns));
                accepted += 1;
            }
            stop.store(true, Ordering::Relaxed);
            (accepted, refused)
        });
        let mut number = 1;
        while !stop.load(Ordering::Relaxed) && !reader.is_finished() {
            number += 1;
            publisher.publish(&records(number)).unwrap();
            publisher.set_state(|state| state.late_ticks = number);
            // Room for a reader to get through now and then.
            if number % 3 == 0 {
                thread::sleep(std::time::Duration::from_micros(500));
            }
        }
        let (accepted, refused) = reader.join().unwrap();
        assert!(accepted == 200 && refused > 0, "{refused} refused: the reader never met the writer");
    });
}
