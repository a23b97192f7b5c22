//! Calls of the driver that do not return.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::thread;
use std::time::{Duration, Instant};

use bridge::{BridgeError, Limits};
use e2e::processes::{is_alive, sleeps_uninterruptibly};
use e2e::{Bpffs, Bridge, Embedded, Freezer, Sim, eventually, processes};
use map_reader::{DevicePhase, Order, Phase, Reader};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{CostMode, Costs, Device, Effect, Fault, Process, Scenario};

const PID: u32 = 1 << 30;
const HOLD: Duration = Duration::from_millis(500);

fn machine(devices: usize) -> Sim {
    let device = Device::default().utilization(71, 53).memory(80 << 30, 12 << 30, 0);
    Sim::install(Scenario::new().devices(devices, device.process(Process::compute(PID, 5))))
}

fn stamp(reader: &Reader) -> u64 {
    reader.meta().unwrap().last_update_boottime_ns
}

fn published(reader: &Reader) -> Vec<u32> {
    reader.devices().unwrap().into_iter().map(|(index, _)| index).collect()
}

fn is_empty(reader: &Reader) -> bool {
    published(reader).is_empty()
        && reader.processes(Order::ByKey).unwrap().is_empty()
        && reader.process_devices(Order::ByKey).unwrap().is_empty()
}

#[test]
fn a_call_that_never_returns_costs_its_own_device_only() {
    let (mut sim, pins) = (machine(3), Bpffs::mount());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "three devices", |reader| (published(reader) == [0, 1, 2]).then_some(()));
    let sampler = bridge.sampler();

    sim.change(1, |device| device.hangs("nvmlDevice*"));
    let hung = Instant::now();
    // The others' rounds go on as if nothing were, while the slot is held and afterwards.
    let (mut emptied, mut last, mut longest) = (None, (stamp(&reader), Instant::now()), Duration::ZERO);
    while hung.elapsed() < 3 * HOLD {
        let now = stamp(&reader);
        if now != last.0 {
            longest = longest.max(last.1.elapsed());
            last = (now, Instant::now());
        }
        if emptied.is_none() && published(&reader) == [0, 2] {
            emptied = Some(hung.elapsed());
        }
        thread::sleep(Duration::from_millis(1));
    }
    let emptied = emptied.expect("the hanging device's slot is emptied");
    // A call was under way, or one began within an interval; then its hold; then a round.
    assert!(emptied > HOLD - Duration::from_millis(150) && emptied < HOLD + Duration::from_millis(400), "{emptied:?}");
    assert!(longest < Duration::from_millis(300), "the others waited for {longest:?}");
    let phases: Vec<_> = reader.state().unwrap().devices().map(|device| device.phase()).collect();
    assert_eq!(phases, [DevicePhase::Answering, DevicePhase::Lost, DevicePhase::Answering]);
    assert_eq!(reader.process(PID).unwrap().unwrap().device_count, 2);
    assert_eq!(reader.state().unwrap().phase(), Phase::Publishing);

    sim.heal();
    bridge.wait_for("the device's return", || (published(&reader) == [0, 1, 2]).then_some(()));
    bridge.wait_for_log("device 1 answers again");
    assert_eq!((bridge.count_in_log("device 1 has not answered"), bridge.count_in_log("answers again")), (1, 1), "{}", bridge.log());
    assert_eq!(bridge.sampler(), sampler, "nothing was started anew");
}

/// Everything hangs, and the maps say so.
#[track_caller]
fn check_all_hang(mut sim: Sim, hang: impl FnOnce(&mut Sim)) {
    let pins = Bpffs::mount();
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "two devices", |reader| (published(reader) == [0, 1]).then_some(()));
    hang(&mut sim);
    bridge.wait_for("empty maps", || is_empty(&reader).then_some(()));
    bridge.wait_for("the state", || (reader.state().unwrap().phase() == Phase::Waiting).then_some(()));
    let stopped = stamp(&reader);
    thread::sleep(HOLD);
    assert_eq!(stamp(&reader), stopped, "gpu_meta stands still");
    let phases: Vec<_> = reader.state().unwrap().devices().map(|device| device.phase()).collect();
    assert_eq!(phases, [DevicePhase::Lost; 2]);

    sim.heal();
    bridge.wait_for("both devices", || (published(&reader) == [0, 1]).then_some(()));
    assert_eq!(reader.state().unwrap().phase(), Phase::Publishing);
    assert_eq!(bridge.count_in_log("no device has answered for"), 1, "{}", bridge.log());
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
}

#[test]
fn when_every_call_hangs_gpu_meta_stops_and_the_state_says_so() {
    check_all_hang(machine(2), |sim| sim.set(|scenario| scenario.fault(Fault::hang("nvmlDevice*"))));
}

#[test]
fn one_call_that_hangs_with_the_drivers_lock_is_every_call() {
    let mut sim = machine(2);
    sim.set(|scenario| scenario.costs(Costs { mode: CostMode::OneLock, ..Costs::default() }));
    check_all_hang(sim, |sim| sim.change(0, |device| device.hangs("nvmlDevice*")));
}

/// Short, and long enough for a sampler to start on a busy machine.
fn limits() -> Limits {
    Limits {
        first_retry: Duration::from_millis(50),
        longest_retry: Duration::from_millis(200),
        most_failures: 6,
        open: Duration::from_secs(2),
        stuck: Duration::from_secs(1),
        ..Limits::default()
    }
}

#[test]
fn a_sampler_that_is_stuck_is_ended_and_started_anew() {
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    let bridge = Embedded::start(&sim, &pins, Duration::from_millis(20), limits());
    let reader = eventually("two devices", || {
        let reader = Reader::open(pins.path());
        (reader.devices().is_ok_and(|devices| devices.len() == 2)).then_some(reader)
    });
    let stuck = sim.stats().last_pid();
    // Not even a new scenario ends that, and whoever is started anew answers.
    let for_ever = Effect::Hang { spin: false, for_ever: true };
    sim.set(|scenario| scenario.fault(Fault::new("nvmlDeviceGet*", for_ever)));
    eventually("empty maps", || is_empty(&reader).then_some(()));
    sim.heal();
    eventually("the end of the stuck sampler", || (!is_alive(stuck)).then_some(()));
    eventually("two devices again", || (published(&reader) == [0, 1]).then_some(()));
    assert_ne!(sim.stats().last_pid(), stuck);
    bridge.stop().unwrap();
}

#[test]
fn samplers_that_cannot_be_ended_are_abandoned_three_times_at_most() {
    let (sim, pins, freezer) = (machine(1), Bpffs::mount(), Freezer::mount());
    let stats = freezer.path().join("stats");
    sim.keep_stats_in(&stats);
    let bridge = Embedded::start(&sim, &pins, Duration::from_millis(20), limits());
    let reader = eventually("a device", || {
        let reader = Reader::open(pins.path());
        (reader.devices().is_ok_and(|devices| devices.len() == 1)).then_some(reader)
    });
    let me = std::process::id();
    let stuck = || processes::children(me).into_iter().filter(|child| sleeps_uninterruptibly(*child)).collect::<Vec<_>>();
    freezer.freeze();
    eventually("empty maps", || is_empty(&reader).then_some(()));
    let error = bridge.wait().unwrap_err();
    let BridgeError::GaveUp { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().starts_with("3 earlier sampler processes hang in the driver"), "{source}");
    let abandoned = stuck();
    assert_eq!(abandoned.len(), 3);
    assert_eq!(pins.pins(), [""; 0]);
    freezer.thaw();
    eventually("their end", || abandoned.iter().all(|pid| !is_alive(*pid)).then_some(()));
}

/// Within a second of the signal the bridge is gone and everything that looks alive with it, and another one can start at once.
#[track_caller]
fn check_end(mut bridge: Bridge, pins: &Bpffs, reader: &Reader) {
    // It must not make use of a moment in which nothing hangs.
    bridge.wait_for("the hang", || is_empty(reader).then_some(()));
    let exit = bridge.stop(Signal::SIGTERM);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(exit.took <= Duration::from_secs(1), "it took {:?}:\n{}", exit.took, exit.stderr);
    assert_eq!(pins.pins(), [""; 0]);
    assert!(is_empty(reader));
    let mut successor = Bridge::builder(pins, "mock", "50ms").start();
    successor.wait_until_published(pins);
    assert_eq!(successor.stop(Signal::SIGTERM).code, Some(0));
}

#[track_caller]
fn check_end_while_hanging(effect: Effect) {
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "two devices", |reader| (published(reader) == [0, 1]).then_some(()));
    let sampler = bridge.sampler();
    sim.set(|scenario| scenario.fault(Fault::new("*", effect)));
    check_end(bridge, &pins, &reader);
    eventually("the sampler's end", || (!is_alive(sampler)).then_some(()));
}

#[test]
fn a_call_that_sleeps_does_not_delay_the_end() {
    check_end_while_hanging(Effect::Hang { spin: false, for_ever: true });
}

#[test]
fn a_call_that_spins_does_not_delay_the_end() {
    check_end_while_hanging(Effect::Hang { spin: true, for_ever: true });
}

#[test]
fn a_driver_that_hangs_while_it_is_opened_does_not_delay_the_end_nor_keep_what_was_left() {
    let (mut sim, pins) = (machine(1), Bpffs::mount());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "a device", |reader| (published(reader) == [0]).then_some(()));
    bridge.stop(Signal::SIGKILL);
    assert!(!is_empty(&reader), "left by the kill");
    let left = stamp(&reader);
    sim.set(|scenario| scenario.fault(Fault::new("nvmlInit*", Effect::Hang { spin: false, for_ever: true })));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    bridge.wait_for("the state", || (reader.state().unwrap().record().helper_pid == bridge_pid(&reader, left)).then_some(()));
    check_end(bridge, &pins, &reader);
    assert_eq!(stamp(&reader), left);
}

#[test]
fn a_driver_that_hangs_while_it_is_opened_is_told_long_before_it_is_given_up() {
    let (mut sim, pins) = (machine(1), Bpffs::mount());
    sim.set(|scenario| scenario.fault(Fault::new("nvmlInit*", Effect::Hang { spin: false, for_ever: true })));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let started = Instant::now();
    bridge.wait_for_log("nvml has been opening for more than 5s and does not answer yet; it is given up after 60s");
    assert!(started.elapsed() >= Duration::from_secs(5), "after {:?}", started.elapsed());
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(bridge.count_in_log("has been opening"), 1, "{}", bridge.log());
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
}

/// The process that the state names, once it is not the one of `gpu_meta` any more.
fn bridge_pid(reader: &Reader, left: u64) -> u32 {
    let meta = reader.meta().unwrap();
    assert_eq!(meta.last_update_boottime_ns, left, "nothing was published");
    let named = reader.state().unwrap().record().helper_pid;
    if named == meta.helper_pid { 0 } else { named }
}

#[test]
fn a_thread_in_uninterruptible_sleep_does_not_delay_the_end() {
    let (sim, pins, freezer) = (machine(2), Bpffs::mount(), Freezer::mount());
    sim.keep_stats_in(&freezer.path().join("stats"));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "two devices", |reader| (published(reader) == [0, 1]).then_some(()));
    let sampler = bridge.sampler();
    freezer.freeze();
    bridge.wait_for("a thread that sleeps", || sleeps_uninterruptibly(sampler).then_some(()));
    check_end(bridge, &pins, &reader);
    assert!(is_alive(sampler), "it was not ended by anything: it cannot be");
    freezer.thaw();
    eventually("the sampler's end", || (!is_alive(sampler)).then_some(()));
}
