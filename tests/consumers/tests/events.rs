//! Events carry exactly what the maps say, and come only while the maps are fresh.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::{Duration, Instant};

use common::{Record, boottime, device, meta, open, process, process_device, process_device_key, write, write_meta};
use consumers::events::{Cause, Event, Events, Trigger};
use e2e::{Bpffs, Workload, eventually};
use libbpf_rs::MapCore;

const GETPPID: Trigger = Trigger::SystemCall(nix::libc::SYS_getppid);
const LONG_MS: u64 = 3_600_000;
/// Events of a system call that has returned are in the ring buffer already.
const NOW: Duration = Duration::ZERO;

/// Has the workload make `count` system calls and returns the events of them.
fn events_of(workload: &mut Workload, count: u32, events: &mut Events) -> Vec<Event> {
    workload.getppid(count);
    events.poll(NOW).unwrap()
}

fn fresh(pins: &Bpffs) {
    write_meta(pins.path(), &meta(boottime(), 0));
}

#[test]
fn an_event_carries_exactly_the_numbers_of_its_process_and_device() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let mut workload = Workload::start("train");

    // A clock offset as real as 1.7e18 and a sample two seconds old at the newest round.
    let offset = 1_700_000_000_000_000_000_i64;
    let round = boottime();
    let sampled = round.saturating_sub(Duration::from_secs(2));
    let sampled_realtime = offset.unsigned_abs() + u64::try_from(sampled.as_nanos()).unwrap();
    write(pins.path(), "gpu_device", 5_u32, &device(sampled_realtime, 71));
    write(pins.path(), "gpu_device", 6_u32, &device(sampled_realtime, 99));
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(sampled_realtime, 402_653_184, 49, 17, 5, 1));
    write_meta(pins.path(), &meta(round, offset));

    let before = boottime();
    let received = events_of(&mut workload, 3, &mut events);
    let after = boottime();
    assert_eq!(received.len(), 3, "one event for each system call: {received:?}");
    for event in &received {
        let at = Duration::from_nanos(event.boottime_ns);
        assert!(before <= at && at <= after, "{before:?} {at:?} {after:?}");
        let expected = Event {
            boottime_ns: event.boottime_ns,
            tgid: workload.pid(),
            tid: workload.pid(),
            comm: "train".to_owned(),
            cause: Cause::SystemCall,
            gpu_memory_bytes: 402_653_184,
            sm_util_pct: 49,
            mem_util_pct: 17,
            device_sm_util_pct: 71,
            device: Some(5),
            device_count: 1,
            sample_age: Some(at - sampled),
        };
        assert_eq!(*event, expected);
    }
    assert!(received.is_sorted_by_key(|event| event.boottime_ns));
    assert_eq!(events.dropped().unwrap(), 0);
}

#[test]
fn a_process_on_several_devices_is_shown_with_the_busiest_of_its_own() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let mut workload = Workload::start("train");
    for (index, utilization) in [(0_u32, 20), (1, 90), (9, 60)] {
        write(pins.path(), "gpu_device", index, &device(1, utilization));
    }
    for index in [0_u8, 9] {
        let key = process_device_key(workload.pid(), index.into());
        write(pins.path(), "gpu_per_pid_per_device", key, &process_device(1 << 30, index));
    }
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(0, 2 << 30, 5, 6, 0xFF, 2));
    fresh(&pins);

    let received = events_of(&mut workload, 1, &mut events);
    let [event] = &received[..] else { panic!("one event: {received:?}") };
    assert_eq!((event.device, event.device_count, event.device_sm_util_pct), (None, 2, 60));
    assert_eq!(event.sample_age, None, "no utilization sample has been seen");
}

#[test]
fn processes_without_an_entry_make_no_events() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let (mut known, mut unknown) = (Workload::start("known"), Workload::start("unknown"));
    write(pins.path(), "gpu_per_pid", known.pid(), &process(1, 1, 1, 1, 0, 1));
    fresh(&pins);
    assert_eq!(events_of(&mut unknown, 1000, &mut events), []);
    assert_eq!(events_of(&mut known, 10, &mut events).len(), 10);

    open(pins.path(), "gpu_per_pid").delete(&known.pid().to_le_bytes()).unwrap();
    assert_eq!(events_of(&mut known, 1000, &mut events), [], "its entry was deleted");
}

#[test]
fn the_gate_is_closed_unless_meta_is_fresh_and_of_the_known_version() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), 20_000, GETPPID).unwrap();
    let mut workload = Workload::start("train");
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(1, 1, 1, 1, 0, 1));
    let second = Duration::from_secs(1);
    let mut check = |case: &str, record: &Record, expected: usize| {
        write_meta(pins.path(), record);
        assert_eq!(events_of(&mut workload, 2, &mut events).len(), expected, "{case}");
    };

    check("never written", &meta(Duration::ZERO, 0), 0);
    check("just written", &meta(boottime(), 0), 2);
    check("inside the threshold", &meta(boottime() - 10 * second, 0), 2);
    check("older than the threshold", &meta(boottime() - 20 * second, 0), 0);
    check("newer than the event", &meta(boottime() + second, 0), 2);
    check("another schema version", &meta(boottime(), 0).u32(0, 2), 0);
}

#[test]
fn the_gate_closes_by_itself_when_nobody_writes_any_more() {
    let threshold = Duration::from_millis(300);
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), 300, GETPPID).unwrap();
    let mut workload = Workload::start("train");
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(1, 1, 1, 1, 0, 1));
    let written = boottime();
    write_meta(pins.path(), &meta(written, 0));

    let mut seen = events_of(&mut workload, 1, &mut events);
    eventually("a system call without an event", || {
        let received = events_of(&mut workload, 1, &mut events);
        let closed = received.is_empty().then_some(());
        seen.extend(received);
        closed
    });
    assert!(boottime() >= written + threshold, "it closed early");
    for event in &seen {
        assert!(Duration::from_nanos(event.boottime_ns) <= written + threshold, "it closed late: {event:?}");
    }
    assert_eq!(events_of(&mut workload, 100, &mut events), [], "it stays closed");
    fresh(&pins);
    assert_eq!(events_of(&mut workload, 1, &mut events).len(), 1, "it opens again");
}

#[test]
fn context_switches_of_a_known_process_make_events() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, Trigger::ContextSwitch).unwrap();
    let mut workload = Workload::start("train");
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(1, 7, 8, 9, 0, 1));
    fresh(&pins);

    // Each order is waited for, and so is each answer: at least one switch an order.
    for _ in 0..5 {
        workload.getppid(1);
    }
    let mut received = Vec::new();
    eventually("five context switches", || {
        received.extend(events.poll(Duration::from_millis(10)).unwrap());
        (received.len() >= 5).then_some(())
    });
    for event in &received {
        assert_eq!((event.tgid, event.cause, event.gpu_memory_bytes), (workload.pid(), Cause::ContextSwitch, 7));
    }
}

#[test]
fn events_that_do_not_fit_into_the_ring_buffer_are_counted() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let mut workload = Workload::start("train");
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(1, 1, 1, 1, 0, 1));
    fresh(&pins);
    let received = events_of(&mut workload, 10_000, &mut events);
    let dropped = events.dropped().unwrap();
    assert!(dropped > 0);
    assert_eq!(u64::try_from(received.len()).unwrap() + dropped, 10_000);
}

#[test]
fn a_wait_without_events_ends_in_time() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let start = Instant::now();
    assert_eq!(events.poll(Duration::from_millis(50)).unwrap(), []);
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[test]
fn attaching_creates_the_four_pins_as_the_contract_has_them() {
    let pins = Bpffs::mount();
    let _events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    assert_eq!(pins.pins(), ["gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"]);
    let attributes = |name| {
        let info = open(pins.path(), name).info().unwrap().info;
        (info.type_, info.key_size, info.value_size, info.max_entries, info.map_flags)
    };
    let (array, lru_hash) = (2, 9);
    assert_eq!(attributes("gpu_meta"), (array, 4, 32, 1, 0));
    assert_eq!(attributes("gpu_device"), (array, 4, 128, 16, 0));
    assert_eq!(attributes("gpu_per_pid"), (lru_hash, 4, 32, 4096, 0));
    assert_eq!(attributes("gpu_per_pid_per_device"), (lru_hash, 8, 40, 4096, 0));
}

#[test]
fn consumers_that_come_later_share_the_maps() {
    let pins = Bpffs::mount();
    let _first = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let ids = || ["gpu_meta", "gpu_device", "gpu_per_pid"].map(|name| open(pins.path(), name).info().unwrap().info.id);
    let before = ids();
    let _second = Events::attach(pins.path(), LONG_MS, Trigger::ContextSwitch).unwrap();
    consumers::devices::read(pins.path()).unwrap();
    consumers::tasks::read(pins.path()).unwrap();
    assert_eq!(ids(), before);
}
