//! The loop on real maps, with a source that does as it is told.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::{thread, time::Duration};

use bridge::{BridgeError, WhenUnavailable};
use common::{INTERVAL, Mood, Running, Script, fall_back_to, stamp, wait_for};
use map_reader::{DevicePhase, Phase, Reader, Source};
use test_support::{Bpffs, eventually};

const PID: u32 = 4_000_001;

fn wait_for_phase(reader: &Reader, phase: Phase) {
    eventually(&format!("phase {phase:?}"), || reader.state().is_ok_and(|state| state.phase() == phase).then_some(()));
}

fn device_phase(reader: &Reader, index: u32) -> DevicePhase {
    reader.state().unwrap().devices().find(|device| device.index() == index).unwrap().phase()
}

#[test]
fn rounds_are_published_and_the_end_leaves_nothing() {
    let running = Running::start(&Script::new(2), WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    let meta = reader.meta().unwrap();
    assert_eq!((meta.schema_version, meta.n_devices, meta.helper_pid), (1, 2, std::process::id()));
    let first = stamp(&reader);
    eventually("a later round", || (stamp(&reader) > first).then_some(()));
    let state = reader.state().unwrap();
    assert_eq!((state.phase(), state.source(), state.poll_interval()), (Phase::Publishing, Source::Real, Some(INTERVAL)));
    let last = stamp(&reader);

    let (pins, result) = running.stop();
    result.unwrap();
    assert_eq!(pins.pins(), [""; 0]);
    wait_for(&reader, &[], &[]);
    assert!(stamp(&reader) >= last, "gpu_meta is left as it was");
}

#[test]
fn with_keep_pins_the_data_stays_and_the_next_bridge_goes_on_in_the_same_maps() {
    let script = Script::new(1);
    let running = Running::start_in(Bpffs::mount(), &script, WhenUnavailable::Fail, true);
    let reader = running.reader();
    wait_for(&reader, &[0], &[PID]);
    let (pins, result) = running.stop();
    result.unwrap();
    wait_for(&reader, &[0], &[PID]);
    script.change(|state| state.processes = vec![(PID + 1, 5)]);
    let running = Running::start_in(pins, &script, WhenUnavailable::Fail, false);
    // The reader holds the maps of before.
    wait_for(&reader, &[0], &[PID + 1]);
    running.stop().1.unwrap();
}

#[test]
fn a_hanging_device_costs_its_own_slot_only() {
    let script = Script::new(2);
    let running = Running::start(&script, WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    script.mood(1, Mood::Hangs);
    wait_for(&reader, &[0], &[PID]);
    assert_eq!(device_phase(&reader, 1), DevicePhase::Lost);
    let before = stamp(&reader);
    eventually("the other device goes on", || (stamp(&reader) > before + 5 * INTERVAL.as_nanos() as u64).then_some(()));
    script.mood(1, Mood::Answers);
    wait_for(&reader, &[0, 1], &[PID]);
    running.stop().1.unwrap();
}

#[test]
fn the_loop_is_seen_to_go_round_when_nothing_is_published() {
    let script = Script::new(1);
    script.change(|state| state.closed = Some("no driver today"));
    let running = Running::start(&script, WhenUnavailable::Wait);
    let reader = running.reader();
    wait_for_phase(&reader, Phase::Idle);
    for _ in 0..3 {
        let before = reader.state().unwrap().record().alive_boottime_ns;
        assert!(before > 0);
        eventually("a later turn", || (reader.state().unwrap().record().alive_boottime_ns > before).then_some(()));
    }
    running.stop().1.unwrap();
}

#[test]
fn who_a_device_is_found_to_be_later_is_put_down() {
    let script = Script::new(2);
    let running = Running::start(&script, WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    let uuid = |index| reader.state().unwrap().device(index).unwrap().uuid().into_owned();
    assert_eq!([uuid(0), uuid(1)], ["GPU-0", "GPU-1"]);
    let rounds = reader.state().unwrap().record().rounds;
    script.change(|state| state.tag = "FOUND");
    eventually("both are named", || ([uuid(0), uuid(1)] == ["FOUND-0", "FOUND-1"]).then_some(()));
    // Nothing else has changed.
    wait_for(&reader, &[0, 1], &[PID]);
    assert_eq!([0, 1].map(|index| device_phase(&reader, index)), [DevicePhase::Answering; 2]);
    eventually("rounds go on", || (reader.state().unwrap().record().rounds > rounds + 5).then_some(()));
    assert_eq!(script.opened(), 1);
    running.stop().1.unwrap();
}

#[test]
fn a_lost_device_is_removed_and_comes_back() {
    let script = Script::new(2);
    let running = Running::start(&script, WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    script.mood(0, Mood::Lost);
    wait_for(&reader, &[1], &[PID]);
    script.mood(0, Mood::Answers);
    wait_for(&reader, &[0, 1], &[PID]);
    assert_eq!(script.opened(), 1, "without opening the source anew");
    running.stop().1.unwrap();
}

#[test]
fn when_every_device_hangs_the_maps_are_emptied_gpu_meta_stops_and_the_end_is_quick() {
    let script = Script::new(2);
    let running = Running::start(&script, WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    script.change(|state| state.moods = vec![Mood::Hangs; 2]);
    wait_for(&reader, &[], &[]);
    wait_for_phase(&reader, Phase::Waiting);
    let stopped = stamp(&reader);
    thread::sleep(10 * INTERVAL);
    assert_eq!(stamp(&reader), stopped);
    let asked = std::time::Instant::now();
    let (pins, result) = running.stop();
    result.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(pins.pins(), [""; 0]);
    script.change(|state| state.moods = vec![Mood::Answers; 2]);
}

#[test]
fn a_source_that_is_gone_is_waited_for_with_empty_maps() {
    let script = Script::new(1);
    let running = Running::start(&script, WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0], &[PID]);
    script.change(|state| {
        state.moods[0] = Mood::SourceGone;
        state.closed = Some("the driver is being replaced");
    });
    wait_for(&reader, &[], &[]);
    wait_for_phase(&reader, Phase::Waiting);
    script.change(|state| {
        state.moods[0] = Mood::Answers;
        state.closed = None;
    });
    wait_for(&reader, &[0], &[PID]);
    assert_eq!(script.opened(), 2);
    wait_for_phase(&reader, Phase::Publishing);
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_does_not_open_ends_the_bridge_and_leaves_no_pins() {
    let script = Script::new(1);
    script.change(|state| state.closed = Some("no such library"));
    let (pins, result) = Running::start(&script, WhenUnavailable::Fail).wait();
    let error = result.unwrap_err();
    assert!(matches!(&error, BridgeError::Open { source, .. } if source.to_string() == "no such library"), "{error:?}");
    assert_eq!(pins.pins(), [""; 0]);
}

#[test]
fn a_source_that_may_come_later_is_waited_for() {
    let script = Script::new(1);
    script.change(|state| state.closed = Some("no GPU"));
    let running = Running::start(&script, WhenUnavailable::Wait);
    let reader = running.reader();
    wait_for_phase(&reader, Phase::Idle);
    assert_eq!(stamp(&reader), 0);
    script.change(|state| state.closed = None);
    wait_for(&reader, &[0], &[PID]);
    running.stop().1.unwrap();
}

#[test]
fn the_fallback_is_published_until_the_real_source_opens() {
    let (real, invented) = (Script::new(1), Script::new(3));
    real.change(|state| {
        state.closed = Some("no GPU");
        state.processes = vec![(77, 1)];
    });
    let running = Running::start(&real, fall_back_to(&invented));
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[PID]);
    assert_eq!(reader.state().unwrap().source(), Source::MockFallback);
    real.change(|state| state.closed = None);
    wait_for(&reader, &[0], &[77]);
    assert_eq!(reader.state().unwrap().source(), Source::Real);
    running.stop().1.unwrap();
}

#[test]
fn on_request_the_fallback_is_let_go_with_the_driver_and_comes_back_with_it() {
    let (real, invented) = (Script::new(1), Script::new(3));
    real.change(|state| state.closed = Some("no GPU"));
    let running = Running::start(&real, fall_back_to(&invented));
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[PID]);
    running.control().release();
    wait_for(&reader, &[], &[]);
    wait_for_phase(&reader, Phase::Waiting);
    let (stopped, opened) = (stamp(&reader), real.opened());
    thread::sleep(10 * INTERVAL);
    assert_eq!((stamp(&reader), real.opened(), invented.open_devices()), (stopped, opened, 0));
    running.control().take_up();
    wait_for(&reader, &[0, 1, 2], &[PID]);
    assert_eq!(reader.state().unwrap().source(), Source::MockFallback);
    // Not before it is known that the driver cannot be had.
    running.control().release();
    wait_for(&reader, &[], &[]);
    real.change(|state| {
        state.closed = None;
        state.processes = vec![(77, 1)];
    });
    running.control().take_up();
    wait_for(&reader, &[0], &[77]);
    assert_eq!((reader.state().unwrap().source(), invented.opened()), (Source::Real, 2));
    running.stop().1.unwrap();
}

#[test]
fn a_driver_is_let_go_and_taken_up_on_request() {
    let script = Script::new(2);
    let running = Running::start(&script, WhenUnavailable::Fail);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    running.control().release();
    wait_for(&reader, &[], &[]);
    wait_for_phase(&reader, Phase::Waiting);
    assert_eq!(script.open_devices(), 0);
    let stopped = stamp(&reader);
    thread::sleep(10 * INTERVAL);
    assert_eq!((stamp(&reader), script.opened()), (stopped, 1));
    running.control().take_up();
    wait_for(&reader, &[0, 1], &[PID]);
    assert_eq!(script.opened(), 2);
    running.stop().1.unwrap();
}
