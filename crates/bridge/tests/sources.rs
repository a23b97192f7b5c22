//! Several sources at once: each has a life of its own, and what becomes of one is nothing to the others.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use bridge::{BridgeError, Limits, WhenUnavailable};
use common::{INTERVAL, Mood, Running, Script, Setup, fall_back_to, seen, stamp, wait_for};
use map_reader::{DevicePhase, Order, Phase, Reader, Source, boottime_now_ns};
use test_support::{Bpffs, WAIT, eventually};

/// On every device of the first source, and of the second.
const FIRST: u32 = 4_000_001;
const SECOND: u32 = 4_000_002;
/// On those that take the place of the second's.
const THIRD: u32 = 4_000_003;

/// Tried again soon, and given up soon.
const SHORT: Limits = Limits {
    first_retry: Duration::from_millis(20),
    longest_retry: Duration::from_millis(40),
    steady_after: Duration::from_secs(60),
    most_failures: 4,
    open: Duration::from_secs(60),
    slow_open: Duration::from_secs(5),
    stuck: Duration::from_secs(10),
    report: Duration::from_secs(600),
};

fn script(devices: usize, tag: &'static str, pid: u32) -> Script {
    let script = Script::new(devices);
    script.change(|state| {
        state.tag = tag;
        state.processes = vec![(pid, 1 << 20)];
    });
    script
}

/// Sources of two devices and of one.
fn scripts() -> (Script, Script) {
    (script(2, "A", FIRST), script(1, "B", SECOND))
}

fn start(setup: Setup, first: &Script, second: &Script) -> Running {
    setup.start_all(&[("a", first), ("b", second)])
}

fn quick() -> Setup {
    Setup { limits: SHORT, ..Setup::default() }
}

fn wait_for_phase(reader: &Reader, phase: Phase) {
    eventually(&format!("phase {phase:?}"), || reader.state().is_ok_and(|state| state.phase() == phase).then_some(()));
}

/// The ids of the described devices, in index order.
fn ids(reader: &Reader) -> Vec<String> {
    reader.state().unwrap().devices().map(|device| device.uuid().into_owned()).collect()
}

/// Which process is on which device.
fn placed(reader: &Reader) -> Vec<(u32, u32)> {
    reader.process_devices(Order::ByKey).unwrap().into_iter().map(|(key, _)| (key.pid(), key.device())).collect()
}

#[track_caller]
fn wait_for_places(reader: &Reader, places: &[(u32, u32)]) {
    eventually(&format!("{places:?}"), || (placed(reader) == places).then_some(()));
}

/// Rounds go on, with everything of these devices at every look. Where none has come for long, this machine has no time for the bridge, whatever it
/// does.
#[track_caller]
fn check_undisturbed(reader: &Reader, devices: &[u32], look: impl Fn()) {
    let (began, before) = (Instant::now(), stamp(reader));
    while stamp(reader) < before + 10 * INTERVAL.as_nanos() as u64 {
        assert!(began.elapsed() < WAIT, "no rounds");
        let is_fresh = boottime_now_ns().unwrap() < stamp(reader) + 200_000_000;
        let now = seen(reader).devices;
        if is_fresh {
            assert!(devices.iter().all(|device| now.contains(device)), "{now:?}");
            look();
        }
    }
}

#[test]
fn the_sources_are_one_picture_with_one_round_a_tick() {
    let (first, second) = scripts();
    first.change(|state| state.driver_version = Some("550.90.07"));
    second.change(|state| state.driver_version = Some("amdgpu (6.12.1)"));
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    wait_for_places(&reader, &[(FIRST, 0), (FIRST, 1), (SECOND, 2)]);
    assert_eq!(reader.meta().unwrap().n_devices, 3);
    let state = reader.state().unwrap();
    assert_eq!((state.phase(), state.source()), (Phase::Publishing, Source::Real));
    assert_eq!(ids(&reader), ["A-0", "A-1", "B-0"]);
    assert_eq!(state.driver_version(), "550.90.07; amdgpu (6.12.1)");

    let (began, rounds) = (Instant::now(), || reader.state().unwrap().record().rounds);
    let before = rounds();
    eventually("twenty rounds", || (rounds() >= before + 20).then_some(()));
    let (counted, ticks) = (u128::from(rounds() - before), began.elapsed().as_nanos() / INTERVAL.as_nanos());
    assert!(counted <= ticks + 2, "{counted} rounds in {ticks} ticks");
    let (pins, result): (Bpffs, _) = running.stop();
    result.unwrap();
    assert_eq!(pins.pins(), [""; 0]);
    wait_for(&reader, &[], &[]);
}

#[test]
fn a_source_that_hangs_costs_its_own_devices_only() {
    let (first, second) = scripts();
    for (hanging, devices, pid, lost) in [(&second, &[0, 1][..], FIRST, 2), (&first, &[2], SECOND, 0)] {
        let running = start(quick(), &first, &second);
        let reader = running.reader();
        wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
        hanging.change(|state| state.moods.fill(Mood::Hangs));
        check_undisturbed(&reader, devices, || ());
        wait_for(&reader, devices, &[pid]);
        check_undisturbed(&reader, devices, || {
            assert_eq!(reader.state().unwrap().phase(), Phase::Publishing);
        });
        eventually("its devices are lost", || (reader.state().unwrap().device(lost)?.phase() == DevicePhase::Lost).then_some(()));
        hanging.change(|state| state.moods.fill(Mood::Answers));
        wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
        running.stop().1.unwrap();
    }
}

#[test]
fn a_source_that_is_always_late_is_published_and_holds_up_nobody() {
    let (first, second) = scripts();
    second.mood(0, Mood::AnswersLate);
    // After so long one that has no news is given up.
    let limits = Limits { stuck: Duration::from_millis(1_500), ..SHORT };
    let running = start(Setup { limits, ..Setup::default() }, &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    let began = Instant::now();
    while began.elapsed() < 2 * limits.stuck {
        check_undisturbed(&reader, &[0, 1], || ());
    }
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    assert_eq!((first.opened(), second.opened()), (1, 1));
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_is_gone_is_waited_for_while_the_others_go_on() {
    let (first, second) = scripts();
    for (gone, devices, pid) in [(&second, &[0, 1][..], FIRST), (&first, &[2], SECOND)] {
        let running = start(quick(), &first, &second);
        let reader = running.reader();
        wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
        gone.change(|state| {
            state.moods.fill(Mood::SourceGone);
            state.closed = Some("the driver is being replaced");
        });
        wait_for(&reader, devices, &[pid]);
        check_undisturbed(&reader, devices, || {
            assert_eq!(reader.state().unwrap().phase(), Phase::Publishing);
        });
        assert_eq!(ids(&reader), ["A-0", "A-1", "B-0"], "the indices are kept");
        gone.change(|state| {
            state.moods.fill(Mood::Answers);
            state.closed = None;
        });
        wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
        wait_for_places(&reader, &[(FIRST, 0), (FIRST, 1), (SECOND, 2)]);
        running.stop().1.unwrap();
    }
}

/// After the first change it would be tried again so late that a test would end.
const SLOW: Limits = Limits { first_retry: Duration::from_millis(100), longest_retry: WAIT, ..SHORT };

/// A source that has been open for long enough has `devices` devices from now on, of that tag and with that process.
fn exchange(script: &Script, devices: usize, tag: &'static str, pid: u32) {
    thread::sleep(6 * SLOW.first_retry);
    let before = script.opened();
    // What is open says so; what is opened then answers.
    script.change(|state| {
        (state.tag, state.processes) = (tag, vec![(pid, 1 << 20)]);
        state.moods = vec![Mood::SourceGone; devices.max(state.moods.len())];
        state.devices_when_opened = Some(devices);
    });
    eventually("it is opened anew", || (script.opened() > before).then_some(()));
}

#[test]
fn a_source_whose_devices_are_others_is_opened_anew_at_once_and_those_that_stay_stand() {
    for is_alone in [false, true] {
        let (first, second) = scripts();
        second.change(|state| state.is_reopened_at_once = true);
        let sources = [("a", &first), ("b", &second)];
        let sources = if is_alone { &sources[1..] } else { &sources };
        let running = Setup { limits: SLOW, ..Setup::default() }.start_all(sources);
        let reader = running.reader();
        let base = if is_alone { 0 } else { 2 };
        eventually("the devices of all", || [0, base].iter().all(|index| seen(&reader).devices.contains(index)).then_some(()));
        let (stop, is_stopped) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::Relaxed);
        thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut looks = 0_u64;
                while !stop.load(is_stopped) {
                    // Else this machine has no time for the bridge.
                    let is_fresh = boottime_now_ns().unwrap() < stamp(&reader) + 300_000_000;
                    let now = seen(&reader).devices;
                    assert!(!is_fresh || (now.contains(&base) && (is_alone || now.contains(&0))), "{now:?}");
                    looks += u64::from(is_fresh);
                }
                looks
            });
            // One comes, and goes again.
            for devices in [2, 1] {
                exchange(&second, devices, "B", SECOND);
                let expected: Vec<_> = (0..base + devices as u32).collect();
                eventually("the devices that it has now", || (looks.is_finished() || seen(&reader).devices == expected).then_some(()));
            }
            stop.store(true, is_stopped);
            assert!(looks.join().unwrap() > 100);
        });
        running.stop().1.unwrap();
    }
}

#[test]
fn what_stands_of_a_device_goes_before_another_has_its_index() {
    let (first, second) = scripts();
    second.change(|state| state.is_reopened_at_once = true);
    let running = Setup { limits: SLOW, ..Setup::default() }.start_all(&[("a", &first), ("b", &second)]);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    thread::scope(|scope| {
        let exchanged = scope.spawn(|| exchange(&second, 1, "C", THIRD));
        // Between two looks at the same description, each process is on a device of its own.
        let begun = Instant::now();
        while !exchanged.is_finished() || ids(&reader)[2] != "C-0" || !placed(&reader).contains(&(THIRD, 2)) {
            assert!(begun.elapsed() < WAIT, "{:?} {:?}", ids(&reader), placed(&reader));
            let before = reader.state().unwrap();
            let places = placed(&reader);
            if before != reader.state().unwrap() {
                continue;
            }
            for (pid, device) in places.into_iter().filter(|(_, device)| *device == 2) {
                let id = before.device(device).map(|device| device.uuid().into_owned()).unwrap_or_default();
                assert!(id.starts_with(if pid == SECOND { "B" } else { "C" }), "{pid} on {device}, which is {id:?}");
            }
        }
    });
    running.stop().1.unwrap();
}

#[test]
fn a_source_whose_devices_change_all_the_time_is_opened_ever_less_often() {
    let (first, second) = scripts();
    second.change(|state| {
        state.is_reopened_at_once = true;
        state.moods.fill(Mood::AnswersOnce);
    });
    let limits = Limits { most_failures: 1_000, longest_retry: Duration::from_secs(30), ..SLOW };
    let running = Setup { limits, ..Setup::default() }.start_all(&[("a", &first), ("b", &second)]);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[FIRST]);
    let begun = Instant::now();
    eventually("some openings", || (second.opened() >= 4).then_some(()));
    // 100, 200 and 400 ms, each up to a fifth shorter.
    assert!(begun.elapsed() > Duration::from_millis(400), "{:?}", begun.elapsed());
    check_undisturbed(&reader, &[0, 1], || ());
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_has_nothing_left_is_gone() {
    let (first, second) = scripts();
    second.change(|state| state.is_reopened_at_once = true);
    let running = Setup { limits: SLOW, ..Setup::default() }.start_all(&[("a", &first), ("b", &second)]);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    thread::sleep(6 * SLOW.first_retry);
    second.change(|state| {
        state.missing = Some("the last card went");
        state.moods.fill(Mood::SourceGone);
    });
    let began = Instant::now();
    wait_for(&reader, &[0, 1], &[FIRST]);
    assert!(began.elapsed() < Duration::from_millis(400), "before its hold is over: {:?}", began.elapsed());
    second.change(|state| {
        state.missing = None;
        state.moods.fill(Mood::Answers);
    });
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    running.stop().1.unwrap();
}

#[test]
fn when_all_are_gone_the_maps_are_empty_and_gpu_meta_stops() {
    let (first, second) = scripts();
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    for script in [&first, &second] {
        script.change(|state| {
            state.moods.fill(Mood::SourceGone);
            state.closed = Some("gone for good");
        });
    }
    wait_for(&reader, &[], &[]);
    wait_for_phase(&reader, Phase::Waiting);
    let stopped = stamp(&reader);
    thread::sleep(10 * INTERVAL);
    assert_eq!(stamp(&reader), stopped);
    running.stop().1.unwrap();
}

#[test]
fn what_a_sampler_that_died_said_last_stands_for_its_hold_and_the_others_go_on() {
    let (first, second) = scripts();
    let limits = Limits { first_retry: Duration::from_secs(2), longest_retry: Duration::from_secs(2), ..SHORT };
    let running = start(Setup { limits, ..Setup::default() }, &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    let died = Instant::now();
    second.change(|state| state.deaths = 1);
    // The hold is 500 ms, counted from its last news.
    check_undisturbed(&reader, &[0, 1], || assert!(died.elapsed() > Duration::from_millis(300) || seen(&reader).devices.contains(&2)));
    wait_for(&reader, &[0, 1], &[FIRST]);
    assert!(died.elapsed() > Duration::from_millis(300), "{:?}", died.elapsed());
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    assert_eq!((first.opened(), second.opened()), (1, 2));
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_never_opens_is_tried_again_and_again_beside_the_others() {
    let (first, second) = scripts();
    for (closed, open, devices, pid) in [(&second, &first, &[0, 1][..], FIRST), (&first, &second, &[0], SECOND)] {
        closed.change(|state| state.closed = Some("no such GPU"));
        let running = start(quick(), &first, &second);
        let reader = running.reader();
        wait_for(&reader, devices, &[pid]);
        let (attempts, opened) = (closed.attempts(), open.opened());
        eventually("more attempts", || (closed.attempts() > attempts + 3).then_some(()));
        assert_eq!((seen(&reader).devices.as_slice(), open.opened()), (devices, opened));
        running.stop().1.unwrap();
        closed.change(|state| state.closed = None);
    }
}

#[test]
fn what_is_plainly_missing_is_not_even_tried() {
    let (first, second) = scripts();
    second.change(|state| state.missing = Some("no such card"));
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[FIRST]);
    thread::sleep(10 * INTERVAL);
    assert_eq!(second.attempts(), 0);
    second.change(|state| state.missing = None);
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_comes_later_has_the_others_make_room_once() {
    let (first, second) = scripts();
    first.change(|state| state.closed = Some("no driver yet"));
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0], &[SECOND]);
    assert_eq!(ids(&reader), ["B-0"]);
    first.change(|state| state.closed = None);
    wait_for_places(&reader, &[(FIRST, 0), (FIRST, 1), (SECOND, 2)]);
    assert_eq!((ids(&reader), second.opened()), (["A-0", "A-1", "B-0"].map(str::to_owned).to_vec(), 1));

    // Fewer devices than before: what was reserved stays.
    let reopen = |devices| {
        first.change(|state| state.moods.fill(Mood::SourceGone));
        eventually("the source is gone", || (first.open_devices() == 0).then_some(()));
        first.change(|state| state.moods = vec![Mood::Answers; devices]);
    };
    first.change(|state| state.closed = Some("the driver is being replaced"));
    reopen(1);
    wait_for(&reader, &[2], &[SECOND]);
    first.change(|state| state.closed = None);
    wait_for_places(&reader, &[(FIRST, 0), (SECOND, 2)]);
    assert_eq!(ids(&reader), ["A-0", "", "B-0"]);
    // And more.
    reopen(3);
    wait_for_places(&reader, &[(FIRST, 0), (FIRST, 1), (FIRST, 2), (SECOND, 3)]);
    assert_eq!(ids(&reader), ["A-0", "A-1", "A-2", "B-0"]);
    running.stop().1.unwrap();
}

/// A consumer that looks up what it found under an index must not be given another GPU's figures.
#[test]
fn nobody_takes_one_device_for_another_while_they_move() {
    let (first, second) = scripts();
    first.change(|state| state.closed = Some("no driver yet"));
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0], &[SECOND]);
    first.change(|state| state.closed = None);
    loop {
        let before = reader.state().unwrap();
        let places = placed(&reader);
        let after = reader.state().unwrap();
        if before != after {
            continue;
        }
        for (pid, device) in &places {
            let id = before.device(*device).map(|device| device.uuid().into_owned()).unwrap_or_default();
            assert!(id.starts_with(if *pid == FIRST { "A" } else { "B" }), "{pid} on {device}, which is {id:?}");
        }
        if places.len() == 3 {
            break;
        }
    }
    running.stop().1.unwrap();
}

#[test]
fn devices_without_a_slot_are_left_out() {
    let (first, second) = (script(15, "A", FIRST), script(3, "B", SECOND));
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &(0..16).collect::<Vec<_>>(), &[FIRST, SECOND]);
    eventually("one of three", || placed(&reader).contains(&(SECOND, 15)).then_some(()));
    assert_eq!(placed(&reader).iter().filter(|(pid, _)| *pid == SECOND).count(), 1);
    assert_eq!((reader.meta().unwrap().n_devices, ids(&reader).len()), (16, 16));
    running.stop().1.unwrap();
}

#[test]
fn devices_without_a_slot_do_not_keep_gpu_meta_fresh() {
    let (first, second) = (script(16, "A", FIRST), script(1, "B", SECOND));
    let running = start(Setup::default(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &(0..16).collect::<Vec<_>>(), &[FIRST]);
    (0..16).for_each(|device| first.mood(device, Mood::Lost));
    wait_for(&reader, &[], &[]);
    let stopped = stamp(&reader);
    thread::sleep(10 * INTERVAL);
    assert_eq!(stamp(&reader), stopped);
    first.change(|state| state.moods.fill(Mood::Answers));
    wait_for(&reader, &(0..16).collect::<Vec<_>>(), &[FIRST]);
    assert_eq!(second.opened(), 1, "it has answered all the while");
    running.stop().1.unwrap();
}

#[test]
fn a_source_that_fails_again_and_again_ends_the_bridge_only_when_it_is_alone() {
    let (first, second) = scripts();
    second.change(|state| {
        state.closed = Some("it does not work");
        state.is_broken = true;
    });
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[FIRST]);
    eventually("more failures than are allowed", || (second.attempts() > 2 * SHORT.most_failures as usize).then_some(()));
    wait_for(&reader, &[0, 1], &[FIRST]);
    first.change(|state| {
        state.moods.fill(Mood::SourceGone);
        state.closed = Some("gone");
    });
    let (pins, result) = running.wait();
    let error = result.unwrap_err();
    let BridgeError::GaveUp { name, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*name, source.to_string().as_str()), ("b", "it does not work"));
    assert_eq!(pins.pins(), [""; 0]);
}

#[test]
fn a_bridge_that_may_not_wait_ends_when_none_opens_and_says_what_each_lacks() {
    let (first, second) = scripts();
    first.change(|state| state.closed = Some("no such library"));
    second.change(|state| state.missing = Some("no such card"));
    let (pins, result) = start(quick(), &first, &second).wait();
    assert_eq!(result.unwrap_err().to_string(), "cannot open any source: a: no such library; b: no such card");
    assert_eq!(pins.pins(), [""; 0]);

    let none = Setup::default().start_all(&[]).wait().1.unwrap_err();
    assert!(matches!(none, BridgeError::Sources { count: 0 }), "{none:?}");
}

#[test]
fn a_bridge_is_idle_only_when_no_source_is_there() {
    for (is_broken, phase) in [(false, Phase::Idle), (true, Phase::Waiting)] {
        let (first, second) = scripts();
        for script in [&first, &second] {
            script.change(|state| state.closed = Some("not today"));
        }
        second.change(|state| state.is_broken = is_broken);
        let running = start(Setup { when_unavailable: WhenUnavailable::Wait, ..Setup::default() }, &first, &second);
        let reader = running.reader();
        wait_for_phase(&reader, phase);
        first.change(|state| state.closed = None);
        wait_for(&reader, &[0, 1], &[FIRST]);
        wait_for_phase(&reader, Phase::Publishing);
        running.stop().1.unwrap();
    }
}

#[test]
fn the_first_source_that_opens_ends_the_fallback() {
    let (first, second) = scripts();
    let invented = script(4, "MOCK", 77);
    for script in [&first, &second] {
        script.change(|state| state.closed = Some("not today"));
    }
    let running = start(Setup { when_unavailable: fall_back_to(&invented), ..quick() }, &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2, 3], &[77]);
    assert_eq!(reader.state().unwrap().source(), Source::MockFallback);
    second.change(|state| state.closed = None);
    wait_for(&reader, &[0], &[SECOND]);
    assert_eq!((reader.state().unwrap().source(), ids(&reader)), (Source::Real, vec!["B-0".to_owned()]));
    first.change(|state| state.closed = None);
    wait_for_places(&reader, &[(FIRST, 0), (FIRST, 1), (SECOND, 2)]);
    assert_eq!(invented.open_devices(), 0);
    running.stop().1.unwrap();
}

#[test]
fn all_sources_are_let_go_and_taken_up_on_request() {
    let (first, second) = scripts();
    let running = start(quick(), &first, &second);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    running.control().release();
    wait_for(&reader, &[], &[]);
    wait_for_phase(&reader, Phase::Waiting);
    eventually("no device is open", || (first.open_devices() + second.open_devices() == 0).then_some(()));
    let stopped = stamp(&reader);
    thread::sleep(10 * INTERVAL);
    assert_eq!((stamp(&reader), first.opened(), second.opened()), (stopped, 1, 1));
    running.control().take_up();
    wait_for(&reader, &[0, 1, 2], &[FIRST, SECOND]);
    running.stop().1.unwrap();
}
