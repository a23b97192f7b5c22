//! Processes that do not run for a while: nothing of before is shown as new, and nothing is made up for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::thread;
use std::time::{Duration, Instant};

use e2e::processes::send;
use e2e::{Bpffs, Bridge, Sim};
use map_reader::{Order, Reader, boottime_now_ns};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Process, Scenario};

const FIRST_PID: u32 = 1 << 30;
const INTERVAL: Duration = Duration::from_millis(20);

/// Rounds of this machine fill the sampler's pipe in less than a second.
fn machine() -> Sim {
    let device = Device::default().utilization(71, 53).memory(80 << 30, 12 << 30, 0);
    let device = (0..400).map(|number| Process::compute(FIRST_PID + number, 5)).fold(device, Device::process);
    Sim::install(Scenario::new().devices(4, device))
}

fn rounds(reader: &Reader) -> u64 {
    reader.state().unwrap().record().rounds
}

/// Looks on from the moment at which the stopped processes go on: every new stamp must be of that very moment.
#[track_caller]
fn check_resumes(bridge: &mut Bridge, reader: &Reader, resume: impl FnOnce(&Bridge)) {
    let stamp = || reader.meta().unwrap().last_update_boottime_ns;
    let (last, before) = (stamp(), rounds(reader));
    let resumed_ns = boottime_now_ns().unwrap();
    resume(bridge);
    let resumed = Instant::now();
    let watched = Duration::from_millis(500);
    let mut new = 0;
    let mut seen = last;
    while resumed.elapsed() < watched || new < 3 {
        let now = stamp();
        let clock = boottime_now_ns().unwrap();
        assert!(now <= clock, "a stamp {} ns in the future", now - clock);
        if now != seen {
            assert!(now > seen, "time runs backwards");
            // A sampler that went on had a round in its pipe. One that was being written when the bridge was stopped keeps its old time.
            let is_new = now + 200_000_000 > resumed_ns;
            let was_under_way = new == 0 && now < last + 200_000_000;
            assert!(is_new || was_under_way, "a round from {} ms before the bridge went on", (resumed_ns - now) / 1_000_000);
            (seen, new) = (now, new + 1);
        }
        assert!(resumed.elapsed() < Duration::from_secs(20), "no new round:\n{}", bridge.log());
    }
    let most = resumed.elapsed().as_nanos() / INTERVAL.as_nanos() + 3;
    let made = u128::from(rounds(reader) - before);
    assert!(made <= most, "{made} rounds in {:?}: a burst", resumed.elapsed());
    bridge.wait_for("all devices and processes", || {
        let complete = reader.devices().unwrap().len() == 4 && reader.processes(Order::Unsorted).unwrap().len() == 400;
        complete.then_some(())
    });
}

fn start(sim: &Sim, pins: &Bpffs) -> (Bridge, Reader, u32) {
    let mut bridge = sim.bridge(pins, "20ms").start();
    let reader =
        bridge.wait_for_maps(pins, "all processes", |reader| (reader.processes(Order::Unsorted).unwrap().len() == 400).then_some(()));
    let sampler = bridge.sampler();
    (bridge, reader, sampler)
}

#[test]
fn a_stopped_daemon_goes_on_with_the_present_and_without_a_burst() {
    let (sim, pins) = (machine(), Bpffs::mount());
    let (mut bridge, reader, sampler) = start(&sim, &pins);
    bridge.signal(Signal::SIGSTOP);
    // Longer than a sampler may be stuck: that it did not run itself is no fault of the sampler's.
    thread::sleep(Duration::from_secs(11));
    check_resumes(&mut bridge, &reader, |bridge| bridge.signal(Signal::SIGCONT));
    assert_eq!(bridge.sampler(), sampler);
    assert_eq!((bridge.count_in_log("the bridge did not run for 1"), bridge.count_in_log("is gone")), (1, 0), "{}", bridge.log());
}

#[test]
fn a_stopped_daemon_and_sampler_go_on_together() {
    let (sim, pins) = (machine(), Bpffs::mount());
    let (mut bridge, reader, sampler) = start(&sim, &pins);
    bridge.signal(Signal::SIGSTOP);
    send(sampler, Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(11));
    check_resumes(&mut bridge, &reader, |bridge| {
        bridge.signal(Signal::SIGCONT);
        thread::sleep(Duration::from_millis(100));
        send(sampler, Signal::SIGCONT);
    });
    assert_eq!(bridge.sampler(), sampler);
    assert_eq!(bridge.count_in_log("is gone"), 0, "{}", bridge.log());
}

#[test]
fn a_stopped_sampler_is_no_dead_one() {
    let (sim, pins) = (machine(), Bpffs::mount());
    let (mut bridge, reader, sampler) = start(&sim, &pins);
    send(sampler, Signal::SIGSTOP);
    bridge.wait_for("empty maps", || {
        (reader.devices().unwrap().is_empty() && reader.processes(Order::Unsorted).unwrap().is_empty()).then_some(())
    });
    thread::sleep(Duration::from_secs(2));
    assert!(reader.devices().unwrap().is_empty());
    check_resumes(&mut bridge, &reader, |_| send(sampler, Signal::SIGCONT));
    assert_eq!(bridge.sampler(), sampler);
}

#[test]
fn a_stopped_daemon_without_a_sampler_process_goes_on_with_the_present() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "20ms").start();
    let reader = bridge.wait_until_published(&pins);
    let stamp = || reader.meta().unwrap().last_update_boottime_ns;
    bridge.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(3));
    let (last, before) = (stamp(), rounds(&reader));
    let resumed_ns = boottime_now_ns().unwrap();
    bridge.signal(Signal::SIGCONT);
    let resumed = Instant::now();
    // A round that was under way when it was stopped may be finished, with its own time.
    bridge.wait_for("a new round", || (stamp() > last + 1_000_000_000).then_some(()));
    assert!(stamp() > resumed_ns);
    bridge.wait_for("some rounds", || (rounds(&reader) > before + 10).then_some(()));
    let most = resumed.elapsed().as_nanos() / INTERVAL.as_nanos() + 3;
    let made = u128::from(rounds(&reader) - before);
    assert!(made <= most, "{made} rounds in {:?}", resumed.elapsed());
}
