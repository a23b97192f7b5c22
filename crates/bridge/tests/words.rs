//! What is said where there are several sources: whose devices are meant, each change once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::time::Duration;

use bridge::Limits;
use common::{INTERVAL, Mood, Script, Setup, log_lines::LINES, wait_for};
use log::Level::{Info, Warn};
use test_support::eventually;

const PID: u32 = 4_000_001;

#[test]
fn sources_are_told_apart_and_every_change_is_said_once() {
    LINES.collect();
    let limits = Limits {
        first_retry: INTERVAL,
        longest_retry: INTERVAL,
        most_failures: 3,
        report: Duration::from_millis(200),
        stuck: Duration::from_secs(60),
        ..Limits::default()
    };
    let (first, second) = (Script::new(1), Script::new(2));
    first.change(|state| state.closed = Some("no driver today"));
    let running = Setup { limits, ..Setup::default() }.start_all(&[("a", &first), ("b", &second)]);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    eventually("some attempts", || (first.attempts() > 3).then_some(()));
    assert_eq!(LINES.count(Info, "a cannot be opened: no driver today; it is tried again from time to time"), 1);
    eventually("a summary of the only source", || {
        (LINES.count(Info, " in the source's calls, none failed; now 2 devices") > 0).then_some(())
    });

    first.change(|state| state.closed = None);
    wait_for(&reader, &[0, 1, 2], &[PID]);
    assert_eq!(LINES.count(Warn, "the devices of b move from index 0 on to 1 on, to make room for those of a"), 1);
    eventually("a summary of both", || LINES.all().iter().any(|(_, line)| line.contains("; a: ") && line.contains("; b: ")).then_some(()));

    second.mood(1, Mood::Hangs);
    wait_for(&reader, &[0, 1], &[PID]);
    eventually("the silent device", || {
        (LINES.count(Warn, "device 2 of b has not answered for 500ms: its slot is empty") == 1).then_some(())
    });
    second.mood(0, Mood::Hangs);
    wait_for(&reader, &[0], &[PID]);
    eventually("the silent source", || (LINES.count(Warn, "no device of b has answered for ") == 1).then_some(()));
    second.change(|state| state.moods.fill(Mood::Answers));
    wait_for(&reader, &[0, 1, 2], &[PID]);

    first.change(|state| {
        (state.closed, state.is_broken) = (Some("broken"), true);
        state.moods.fill(Mood::SourceGone);
    });
    wait_for(&reader, &[1, 2], &[PID]);
    let attempts = first.attempts();
    eventually("many failures", || (first.attempts() > attempts + 5).then_some(()));
    for words in [
        "a is gone: scripted end; waiting for it, its slots are empty until then; the others go on",
        "a cannot be opened: broken",
        "a failed 3 times in a row; it is tried again rarely, since others are published",
    ] {
        assert_eq!(LINES.count(Warn, words), 1, "{words}");
    }
    assert_eq!(LINES.count(Info, "gpu-ebpf-bridge 0.0.0: source scripted"), 2, "a line for each opening");
    running.stop().1.unwrap();
}
