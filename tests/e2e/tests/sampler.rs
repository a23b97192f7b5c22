//! The process that loads the driver's library, and the one that does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;

use e2e::processes::{children, inode, is_alive, mappers, send};
use e2e::{Bpffs, Bridge, Sim, eventually};
use map_reader::Reader;
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Process, Scenario};

fn machine() -> Sim {
    let device = Device::default().name("Simulated").utilization(71, 53).memory(80 << 30, 12 << 30, 0);
    Sim::install(Scenario::new().device(device.process(Process::compute(1, 5))))
}

fn has_mapped(pid: u32, sim: &Sim) -> bool {
    mappers(inode(&sim.library())).contains(&pid)
}

fn start(sim: &Sim, pins: &Bpffs) -> (Bridge, Reader, u32) {
    let mut bridge = sim.bridge(pins, "50ms").start();
    let reader = bridge.wait_until_published(pins);
    let sampler = bridge.sampler();
    (bridge, reader, sampler)
}

#[test]
fn only_the_sampler_loads_the_library() {
    let (sim, pins) = (machine(), Bpffs::mount());
    let (bridge, _, sampler) = start(&sim, &pins);
    assert!(has_mapped(sampler, &sim));
    assert!(!has_mapped(bridge.pid(), &sim));
}

#[test]
fn the_mock_source_needs_no_process() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").start();
    bridge.wait_until_published(&pins);
    assert_eq!(children(bridge.pid()), Vec::<u32>::new());
}

#[track_caller]
fn check_end(signal: Signal) {
    let (sim, pins) = (machine(), Bpffs::mount());
    let (bridge, _, sampler) = start(&sim, &pins);
    bridge.stop(signal);
    eventually(&format!("the sampler's end after {signal}"), || (!is_alive(sampler)).then_some(()));
}

#[test]
fn the_sampler_ends_with_a_bridge_that_is_stopped() {
    check_end(Signal::SIGTERM);
}

#[test]
fn the_sampler_ends_with_a_bridge_that_is_killed() {
    check_end(Signal::SIGKILL);
}

#[test]
fn a_sampler_that_is_killed_is_replaced() {
    let (sim, pins) = (machine(), Bpffs::mount());
    let (mut bridge, reader, sampler) = start(&sim, &pins);
    send(sampler, Signal::SIGKILL);
    let pid = bridge.pid();
    let next = bridge.wait_for("another sampler", || children(pid).into_iter().find(|child| *child != sampler));
    let stamp = reader.meta().unwrap().last_update_boottime_ns;
    bridge.wait_for("rounds of the new sampler", || (reader.meta().unwrap().last_update_boottime_ns > stamp).then_some(()));
    assert!(has_mapped(next, &sim));
    assert_eq!(reader.device(0).unwrap().unwrap().sm_util_pct, 71);
}

#[test]
fn a_bridge_that_may_idle_waits_for_the_library() {
    let (sim, pins) = (machine(), Bpffs::mount());
    let hidden = sim.folder().join("not-yet");
    fs::rename(sim.library(), &hidden).unwrap();
    let mut bridge = sim.bridge(&pins, "50ms").arg("--idle-if-no-gpu").start();
    bridge.wait_for_log("WARN");
    let published = Reader::open(pins.path()).meta().is_ok_and(|meta| meta.last_update_boottime_ns > 0);
    assert!(!published, "there is nothing to publish");
    fs::rename(&hidden, sim.library()).unwrap();
    let reader = bridge.wait_until_published(&pins);
    assert_eq!(reader.device(0).unwrap().unwrap().sm_util_pct, 71);
}
