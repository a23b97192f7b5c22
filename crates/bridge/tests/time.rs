//! Clocks that are set, that stand still while the machine sleeps, that are slow to read; seen by a consumer that looks as fast as it can.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bridge::clock::{Clock, SystemClock};
use common::{INTERVAL, Mood, Script, Setup, stamp, wait_for};
use gpu_types::GpuMeta;
use libbpf_rs::MapHandle;
use map_reader::{Order, Reader, to_boottime_ns};
use test_support::{Bpffs, eventually};

const PID: u32 = 4_000_001;
const HOUR_NS: i64 = 3_600_000_000_000;

/// The machine's clocks, shifted.
#[derive(Debug, Default)]
struct ShiftedClock {
    realtime_ns: AtomicI64,
    boottime_ns: AtomicU64,
    /// What a read takes.
    read_us: AtomicU64,
    /// Steps so far: the boottime since when the offset is what.
    steps: Mutex<Vec<(u64, i64)>>,
}

impl ShiftedClock {
    fn new() -> Arc<Self> {
        let clock = Self::default();
        clock.step(0);
        Arc::new(clock)
    }

    /// Sets the wall clock.
    fn step(&self, ns: i64) {
        // A round may be published with the new offset as soon as there is one: whoever looks it up waits until it is noted.
        let mut steps = self.steps.lock().unwrap();
        self.realtime_ns.fetch_add(ns, Ordering::SeqCst);
        let now = self.now();
        steps.push((now.boottime_ns, now.clock_offset_ns));
    }

    /// The machine sleeps: both clocks of the contract go on, the one that the loop waits by does not.
    fn suspend(&self, ns: i64) {
        self.boottime_ns.fetch_add(ns as u64, Ordering::SeqCst);
    }

    /// Whether the offset was in force at some time from a boottime on.
    fn had_offset_since(&self, boottime_ns: u64, offset_ns: i64) -> bool {
        let steps = self.steps.lock().unwrap();
        let first = steps.iter().rposition(|(since, _)| *since <= boottime_ns).unwrap();
        steps[first..].iter().any(|(_, offset)| offset.abs_diff(offset_ns) < 10_000_000)
    }

    fn read(&self) {
        let us = self.read_us.load(Ordering::Relaxed);
        if us > 0 {
            thread::sleep(Duration::from_micros(us));
        }
    }
}

impl Clock for ShiftedClock {
    fn realtime_ns(&self) -> u64 {
        self.read();
        let asleep = self.boottime_ns.load(Ordering::SeqCst);
        (SystemClock.realtime_ns() + asleep).saturating_add_signed(self.realtime_ns.load(Ordering::SeqCst))
    }

    fn boottime_ns(&self) -> u64 {
        self.read();
        SystemClock.boottime_ns() + self.boottime_ns.load(Ordering::SeqCst)
    }
}

fn shared(clock: &Arc<ShiftedClock>) -> Arc<dyn Clock> {
    Arc::<ShiftedClock>::clone(clock)
}

/// A consumer that checks what it may rely on at every moment.
struct Consumer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    offsets: Vec<i64>,
    /// Looks that found the first device's slot empty.
    empty: usize,
}

impl Consumer {
    /// One that has looked once.
    fn start(pins: &Bpffs, clock: &Arc<ShiftedClock>) -> Self {
        let (looked, first_look) = mpsc::channel();
        let (reader, clock, stop) = (Reader::open(pins.path()), Arc::clone(clock), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            let mut last = GpuMeta::default();
            while !stopped.load(Ordering::Relaxed) {
                let Ok(meta) = reader.meta() else { continue };
                let device = reader.device(0).unwrap().map(|device| device.timestamp_ns);
                let process = reader.process(PID).unwrap().map(|process| process.timestamp_ns);
                let on_devices = reader.process_devices(Order::Unsorted).unwrap().into_iter().map(|(_, record)| record.timestamp_ns);
                let times: Vec<u64> = device.into_iter().chain(process).chain(on_devices).filter(|&time| time > 0).collect();
                let after = reader.meta().unwrap();
                let now = SystemClock.boottime_ns() + clock.boottime_ns.load(Ordering::SeqCst);
                assert!(after.last_update_boottime_ns <= now, "a stamp {} ns ahead", after.last_update_boottime_ns - now);
                assert!(after.last_update_boottime_ns >= last.last_update_boottime_ns, "time runs backwards");
                if meta.clock_offset_ns == after.clock_offset_ns && meta.last_update_boottime_ns > 0 {
                    for time in times {
                        let boottime = to_boottime_ns(time, meta.clock_offset_ns).unwrap();
                        assert!(boottime <= now, "a record {} ns in the future, with {meta:?}", boottime - now);
                    }
                }
                if after.last_update_boottime_ns > last.last_update_boottime_ns {
                    let right = clock.had_offset_since(after.last_update_boottime_ns, after.clock_offset_ns);
                    assert!(right, "a round that began after the clock was set has the offset from before: {after:?}");
                }
                if seen.offsets.last().is_none_or(|offset| offset.abs_diff(after.clock_offset_ns) > 500_000_000) {
                    seen.offsets.push(after.clock_offset_ns);
                }
                seen.empty += usize::from(device.is_none());
                last = after;
                // Only the first is waited for.
                let _: Result<(), mpsc::SendError<()>> = looked.send(());
            }
            seen
        });
        first_look.recv().unwrap();
        Self { stop, thread }
    }

    fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn wait_for_rounds(reader: &Reader, rounds: u32) {
    let wanted = stamp(reader) + u64::from(rounds) * INTERVAL.as_nanos() as u64;
    eventually("some rounds", || (stamp(reader) > wanted).then_some(()));
}

#[test]
fn hours_in_both_directions_put_no_record_into_the_consumers_future() {
    let (clock, script) = (ShiftedClock::new(), Script::new(2));
    let running = Setup { clock: shared(&clock), ..Setup::default() }.start(&script);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    let consumer = Consumer::start(&running.pins, &clock);
    let steps = [5, -7, 1, 24, -48, -1, 26].map(|hours| hours * HOUR_NS).into_iter().chain([1_000_000_000, -1_000_000_000]);
    for step in steps {
        wait_for_rounds(&reader, 5);
        clock.step(step);
    }
    wait_for_rounds(&reader, 5);
    wait_for(&reader, &[0, 1], &[PID]);
    let process = reader.process(PID).unwrap().unwrap();
    assert_eq!((process.device_count, process.sm_util_pct_max), (2, 10), "the sample from before the last steps counts still");
    let seen = consumer.stop();
    assert_eq!(seen.offsets.len(), 10, "every step was seen, and each once: {:?}", seen.offsets);
    running.stop().1.unwrap();
}

#[test]
fn a_clock_that_was_set_between_two_bridges_puts_no_record_into_the_consumers_future() {
    for hours in [5, -5] {
        let (clock, script) = (ShiftedClock::new(), Script::new(1));
        let running = Setup { clock: shared(&clock), keep_pins: true, ..Setup::default() }.start(&script);
        let reader = running.reader();
        wait_for(&reader, &[0], &[PID]);
        let (pins, result) = running.stop();
        result.unwrap();
        let consumer = Consumer::start(&pins, &clock);
        clock.step(hours * HOUR_NS);
        let running = Setup { pins, clock: shared(&clock), ..Setup::default() }.start(&script);
        wait_for_rounds(&reader, 5);
        wait_for(&reader, &[0], &[PID]);
        let seen = consumer.stop();
        assert_eq!(seen.offsets.len(), 2, "{hours} h: {:?}", seen.offsets);
        running.stop().1.unwrap();
    }
}

/// The moment between the two halves of a step, held fast: `gpu_meta` cannot be written, so the old offset stays.
#[track_caller]
fn check_nothing_of_the_new_time_is_written_before_the_new_offset(between_two_bridges: bool) {
    let (clock, script) = (ShiftedClock::new(), Script::new(1));
    let running = Setup { clock: shared(&clock), keep_pins: true, ..Setup::default() }.start(&script);
    let reader = running.reader();
    wait_for(&reader, &[0], &[PID]);
    let mut running = Some(running);
    let pins = between_two_bridges.then(|| running.take().unwrap().stop().0);
    let path = pins.as_ref().map_or_else(|| running.as_ref().unwrap().pins.path(), Bpffs::path).to_owned();
    MapHandle::from_pinned_path(path.join("gpu_meta")).unwrap().freeze().unwrap();
    clock.step(5 * HOUR_NS);
    let running = running.unwrap_or_else(|| Setup { pins: pins.unwrap(), clock: shared(&clock), ..Setup::default() }.start(&script));
    let times = || (reader.device(0).unwrap().map(|device| device.timestamp_ns), reader.process(PID).unwrap().unwrap().timestamp_ns);
    eventually("the time before the step to be gone", || (times() == (None, 0)).then_some(()));
    for _ in 0..20 {
        thread::sleep(INTERVAL / 2);
        assert_eq!(times(), (None, 0));
        assert!(reader.process_devices(Order::Unsorted).unwrap().iter().all(|(_, process)| process.timestamp_ns == 0));
    }
    running.stop().1.unwrap();
}

#[test]
fn while_the_new_offset_cannot_be_written_no_record_has_the_new_time() {
    check_nothing_of_the_new_time_is_written_before_the_new_offset(false);
}

#[test]
fn while_the_new_offset_cannot_be_written_a_new_bridge_writes_no_record_of_the_new_time() {
    check_nothing_of_the_new_time_is_written_before_the_new_offset(true);
}

#[test]
fn after_a_sleep_of_the_machine_nothing_from_before_it_is_fresh() {
    let (clock, script) = (ShiftedClock::new(), Script::new(2));
    let running = Setup { clock: shared(&clock), ..Setup::default() }.start(&script);
    let reader = running.reader();
    wait_for(&reader, &[0, 1], &[PID]);
    let consumer = Consumer::start(&running.pins, &clock);
    wait_for_rounds(&reader, 5);
    // It hangs from now on, and the machine falls asleep before that is noticed.
    script.mood(1, Mood::Hangs);
    clock.suspend(3 * HOUR_NS);
    let woken = clock.boottime_ns();
    let first = eventually("a round after the sleep", || {
        let snapshot = reader.snapshot();
        (snapshot.meta.as_ref().unwrap().last_update_boottime_ns >= woken).then_some(snapshot)
    });
    let devices: Vec<_> = first.devices.unwrap().into_iter().map(|(index, _)| index).collect();
    assert_eq!(devices, [0], "what the hanging device said is three hours old");
    script.mood(1, Mood::Answers);
    wait_for(&reader, &[0, 1], &[PID]);
    let seen = consumer.stop();
    assert_eq!(seen.offsets.len(), 1, "that was no step of the wall clock: {:?}", seen.offsets);
    running.stop().1.unwrap();
}

#[test]
fn a_clock_that_is_slow_to_read_is_no_clock_that_is_set() {
    let (clock, script) = (ShiftedClock::new(), Script::new(1));
    let running = Setup { clock: shared(&clock), ..Setup::default() }.start(&script);
    let reader = running.reader();
    wait_for(&reader, &[0], &[PID]);
    clock.read_us.store(500, Ordering::Relaxed);
    let consumer = Consumer::start(&running.pins, &clock);
    let rounds = || reader.state().unwrap().record().rounds;
    let before = rounds();
    eventually("some rounds", || (rounds() > before + 30).then_some(()));
    let seen = consumer.stop();
    assert_eq!((seen.offsets.len(), seen.empty), (1, 0), "{seen:?}");
    running.stop().1.unwrap();
}
