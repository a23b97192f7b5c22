//! How often the loop tries again, and when it gives up, with short limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::{thread, time::Duration};

use bridge::{BridgeError, Limits, WhenUnavailable};
use common::{INTERVAL, Mood, Script, Setup, fall_back_to, stamp, wait_for};
use map_reader::Phase;
use test_support::{Bpffs, eventually};

const PID: u32 = 4_000_001;
/// As short as these can be beside [`INTERVAL`].
const SHORT: Limits = Limits {
    first_retry: Duration::from_millis(10),
    longest_retry: Duration::from_millis(40),
    steady_after: Duration::from_secs(60),
    most_failures: 4,
    open: Duration::from_secs(60),
    slow_open: Duration::from_secs(5),
    stuck: Duration::from_millis(1),
    report: Duration::from_secs(600),
};

#[track_caller]
fn check_gives_up(spoil: impl FnOnce(&Script), last_failure: &str) {
    let script = Script::new(2);
    let running = Setup { limits: SHORT, ..Setup::default() }.start(&script);
    wait_for(&running.reader(), &[0, 1], &[PID]);
    spoil(&script);
    let (pins, result) = running.wait();
    let error = result.unwrap_err();
    let BridgeError::GaveUp { attempts, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*attempts, source.to_string().as_str()), (SHORT.most_failures, last_failure));
    assert_eq!(pins.pins(), [""; 0], "with its maps taken along");
    assert_eq!(script.opened() as u32, SHORT.most_failures, "the first opening and one after each failure but the last");
}

#[test]
fn a_source_whose_devices_are_all_lost_for_good_is_given_up() {
    check_gives_up(|script| script.change(|state| state.moods = vec![Mood::Lost; 2]), "no device has answered for 400ms");
}

#[test]
fn a_source_that_is_gone_at_every_opening_is_given_up() {
    check_gives_up(|script| script.mood(1, Mood::SourceGone), "scripted end");
}

#[test]
fn a_source_that_is_not_there_is_waited_for_without_end() {
    let script = Script::new(1);
    let running = Setup { limits: SHORT, ..Setup::default() }.start(&script);
    let reader = running.reader();
    wait_for(&reader, &[0], &[PID]);
    script.change(|state| {
        state.closed = Some("no driver");
        state.moods[0] = Mood::SourceGone;
    });
    eventually("many attempts", || (script.attempts() > 1 + 4 * SHORT.most_failures as usize).then_some(()));
    wait_for(&reader, &[], &[]);
    assert_eq!(reader.state().unwrap().phase(), Phase::Waiting);
    script.change(|state| {
        state.closed = None;
        state.moods[0] = Mood::Answers;
    });
    wait_for(&reader, &[0], &[PID]);
    running.stop().1.unwrap();
}

/// The published round must not set the delays back: that would be an opening every few milliseconds.
#[test]
fn a_source_that_fails_after_each_first_round_is_opened_ever_more_rarely_and_not_given_up() {
    let script = Script::new(1);
    script.mood(0, Mood::AnswersOnce);
    let limits = Limits { first_retry: Duration::from_millis(20), longest_retry: Duration::from_secs(60), ..SHORT };
    let running = Setup { limits, ..Setup::default() }.start(&script);
    eventually("more failures than are allowed in a row", || (script.opened() > SHORT.most_failures as usize + 1).then_some(()));
    thread::sleep(Duration::from_millis(1_500));
    // 20 + 40 + … + 1280 ms, each up to a fifth less, and what six and one more rounds take.
    assert!(script.opened() <= 9, "opened {} times", script.opened());
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_was_steady_starts_with_the_first_delay_again() {
    let script = Script::new(1);
    let limits =
        Limits { first_retry: Duration::from_millis(400), longest_retry: Duration::from_secs(3_600), steady_after: INTERVAL, ..SHORT };
    let running = Setup { limits, ..Setup::default() }.start(&script);
    let reader = running.reader();
    for opened in 1..5 {
        wait_for(&reader, &[0], &[PID]);
        assert_eq!(script.opened(), opened);
        let steady = stamp(&reader) + 5 * INTERVAL.as_nanos() as u64;
        eventually("some rounds", || (stamp(&reader) > steady).then_some(()));
        script.mood(0, Mood::SourceGone);
        wait_for(&reader, &[], &[]);
        script.mood(0, Mood::Answers);
        // Without the reset the fourth delay would be 3.2 s.
        let before = std::time::Instant::now();
        wait_for(&reader, &[0], &[PID]);
        assert!(before.elapsed() < Duration::from_secs(2), "{opened}: {:?}", before.elapsed());
    }
    running.stop().1.unwrap();
}

#[test]
fn a_fallback_that_fails_is_started_anew() {
    let (real, invented) = (Script::new(1), Script::new(2));
    real.change(|state| state.closed = Some("no GPU"));
    let running = Setup { when_unavailable: fall_back_to(&invented), ..Setup::default() }.start(&real);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    invented.mood(1, Mood::SourceGone);
    eventually("another opening", || (invented.opened() > 1).then_some(()));
    invented.mood(1, Mood::Answers);
    wait_for(&reader, &[0, 1], &[PID]);
    assert_eq!(reader.state().unwrap().source(), map_reader::Source::MockFallback);
    running.stop().1.unwrap();
}

/// The maps of a bridge that was killed, as the next one finds them.
#[test]
fn what_an_earlier_bridge_left_goes_at_once_when_the_source_cannot_be_opened() {
    let script = Script::new(1);
    let running = Setup { keep_pins: true, ..Setup::default() }.start(&script);
    let reader = running.reader();
    wait_for(&reader, &[0], &[PID]);
    let (pins, result) = running.stop();
    result.unwrap();
    let left = stamp(&reader);
    script.change(|state| state.closed = Some("no GPU"));
    let running = Setup { pins, when_unavailable: WhenUnavailable::Wait, ..Setup::default() }.start(&script);
    wait_for(&reader, &[], &[]);
    assert_eq!(stamp(&reader), left);
    let (pins, result): (Bpffs, _) = running.stop();
    result.unwrap();
    assert_eq!(pins.pins(), [""; 0]);
}
