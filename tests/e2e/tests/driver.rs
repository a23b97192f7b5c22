//! A driver that comes, goes, is replaced and fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use bridge::{BridgeError, Limits};
use e2e::processes::{children, inode, mappers};
use e2e::{Bpffs, Bridge, Embedded, Sim, eventually};
use gpu_types::keys::PidDeviceKey;
use map_reader::{Order, Phase, Reader};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Code, Device, Fault, MigInstance, Process, Scenario};

const PID: u32 = 1 << 30;

fn device() -> Device {
    Device::default().utilization(71, 53).memory(80 << 30, 12 << 30, 0)
}

fn machine(devices: usize) -> Sim {
    Sim::install(Scenario::new().devices(devices, device().process(Process::compute(PID, 5))))
}

fn published(reader: &Reader) -> Vec<u32> {
    reader.devices().unwrap().into_iter().map(|(index, _)| index).collect()
}

fn is_empty(reader: &Reader) -> bool {
    published(reader).is_empty()
        && reader.processes(Order::ByKey).unwrap().is_empty()
        && reader.process_devices(Order::ByKey).unwrap().is_empty()
}

fn stamp(reader: &Reader) -> u64 {
    reader.meta().unwrap().last_update_boottime_ns
}

fn phase(reader: &Reader) -> Phase {
    reader.state().unwrap().phase()
}

/// Empty maps, an old `gpu_meta`, and nothing that keeps a driver from being unloaded: no sampler, no mapping of the library.
#[track_caller]
fn check_waits(bridge: &mut Bridge, reader: &Reader, library: u64, expected: Phase) {
    bridge.wait_for("the phase", || (phase(reader) == expected).then_some(()));
    assert!(is_empty(reader));
    let pid = bridge.pid();
    // An attempt to open it may be under way at any one moment.
    bridge.wait_for("the sampler's end", || children(pid).is_empty().then_some(()));
    bridge.wait_for("nobody to have the library", || mappers(library).is_empty().then_some(()));
    let before = stamp(reader);
    thread::sleep(Duration::from_millis(200));
    assert_eq!((stamp(reader), is_empty(reader)), (before, true));
}

#[track_caller]
fn check_publishes(bridge: &mut Bridge, reader: &Reader, devices: &[u32]) {
    bridge.wait_for("the devices", || (published(reader) == devices).then_some(()));
    let before = stamp(reader);
    bridge.wait_for("rounds", || (stamp(reader) > before).then_some(()));
    assert_eq!(phase(reader), Phase::Publishing);
    assert_eq!(reader.processes(Order::ByKey).unwrap().len(), 1);
}

#[track_caller]
fn check_logged_once(bridge: &Bridge, texts: &[&str]) {
    for text in texts {
        assert_eq!(bridge.count_in_log(text), 1, "{text:?} in:\n{}", bridge.log());
    }
}

#[test]
fn a_library_that_comes_later_goes_and_comes_back_is_followed() {
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    let library = inode(&sim.library());
    let hidden = sim.folder().join("hidden");
    fs::rename(sim.library(), &hidden).unwrap();
    let mut bridge = sim.bridge(&pins, "50ms").arg("--idle-if-no-gpu").start();
    bridge.wait_for_log("waiting for it, nothing is published until then");
    let reader = Reader::open(pins.path());
    check_waits(&mut bridge, &reader, library, Phase::Idle);
    assert_eq!(stamp(&reader), 0);

    fs::rename(&hidden, sim.library()).unwrap();
    check_publishes(&mut bridge, &reader, &[0, 1]);
    assert_eq!(mappers(library), [bridge.sampler()]);

    // The driver is unloaded, and its library removed.
    sim.set(|scenario| scenario.fails("*", Code::DRIVER_NOT_LOADED));
    fs::rename(sim.library(), &hidden).unwrap();
    check_waits(&mut bridge, &reader, library, Phase::Waiting);
    sim.heal();
    fs::rename(&hidden, sim.library()).unwrap();
    check_publishes(&mut bridge, &reader, &[0, 1]);
    check_logged_once(&bridge, &["waiting for it, nothing is published until then", "nvml is gone: ", "publishing 2 devices of nvml"]);
    assert_eq!(bridge.count_in_log("source nvml, driver"), 2, "{}", bridge.log());
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
}

#[test]
fn without_idle_if_no_gpu_a_missing_library_or_driver_ends_the_bridge_with_the_reason() {
    let pins = Bpffs::mount();
    let mut sim = machine(1);
    sim.set(|scenario| scenario.init_fails(Code::UNKNOWN));
    let exit = sim.bridge(&pins, "50ms").start().wait();
    assert_eq!((exit.code, pins.pins()), (Some(1), vec![]), "{}", exit.stderr);
    assert!(exit.stderr.contains("unknown error (999)"), "{}", exit.stderr);
    fs::remove_file(sim.library()).unwrap();
    let exit = sim.bridge(&pins, "50ms").start().wait();
    assert_eq!((exit.code, pins.pins()), (Some(1), vec![]), "{}", exit.stderr);
    assert!(exit.stderr.contains(&sim.library().display().to_string()), "{}", exit.stderr);
}

#[test]
fn a_replaced_library_is_in_use_and_the_old_one_in_nobodys() {
    let (mut sim, pins) = (machine(1), Bpffs::mount());
    sim.load_driver("570.1.2");
    sim.install_library("570.1.2");
    let old = inode(&sim.library());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_until_published(&pins);
    assert_eq!((reader.state().unwrap().driver_version().as_ref(), mappers(old)), ("570.1.2", vec![bridge.sampler()]));

    // The module first: until the library follows, the old one does not fit and that is said, once.
    sim.load_driver("590.44.01");
    check_waits(&mut bridge, &reader, old, Phase::Waiting);
    bridge.wait_for_log("driver/library version mismatch");
    sim.install_library("590.44.01");
    let new = inode(&sim.library());
    assert_ne!(old, new);
    check_publishes(&mut bridge, &reader, &[0]);
    assert_eq!(reader.state().unwrap().driver_version(), "590.44.01");
    assert_eq!((mappers(old), mappers(new)), (vec![], vec![bridge.sampler()]));
    check_logged_once(&bridge, &["nvml is gone: "]);
}

#[test]
fn on_request_the_driver_is_let_go_and_the_one_that_replaced_it_is_taken_up() {
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    sim.load_driver("570.1.2");
    sim.install_library("570.1.2");
    let old = inode(&sim.library());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_until_published(&pins);

    bridge.signal(Signal::SIGUSR1);
    check_waits(&mut bridge, &reader, old, Phase::Waiting);
    sim.load_driver("590.44.01");
    sim.install_library("590.44.01");
    // Longer than the first delays after which a source that was not let go would have been tried.
    let loads = sim.stats().loads();
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(sim.stats().loads(), loads, "nothing is opened until it is asked for");
    assert_eq!(phase(&reader), Phase::Waiting);

    bridge.signal(Signal::SIGUSR2);
    let asked = Instant::now();
    check_publishes(&mut bridge, &reader, &[0, 1]);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert_eq!(reader.state().unwrap().driver_version(), "590.44.01");
    assert_eq!(mappers(old), [0; 0]);
    check_logged_once(&bridge, &["is let go on request", "is taken up again on request"]);
    // While it is let go the end is as usual.
    bridge.signal(Signal::SIGUSR1);
    check_waits(&mut bridge, &reader, inode(&sim.library()), Phase::Waiting);
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), [""; 0]);
}

/// Calls answer that there is no driver under the library any more, opening it too; and after a while all is well again.
#[track_caller]
fn check_code(code: Code) {
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_until_published(&pins);
    sim.set(|scenario| scenario.fails("*", code));
    check_waits(&mut bridge, &reader, inode(&sim.library()), Phase::Waiting);
    // At least one attempt meets the same.
    bridge.wait_for_log("nvml cannot be opened: ");
    sim.heal();
    check_publishes(&mut bridge, &reader, &[0, 1]);
    check_logged_once(&bridge, &["nvml is gone: ", "nvml cannot be opened: ", "publishing 2 devices of nvml"]);
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
}

#[test]
fn a_library_that_is_no_longer_initialised_is_opened_anew() {
    check_code(Code::UNINITIALIZED);
}

#[test]
fn a_driver_that_is_not_loaded_is_waited_for() {
    check_code(Code::DRIVER_NOT_LOADED);
}

#[test]
fn a_driver_of_another_version_is_waited_for() {
    check_code(Code::LIB_RM_VERSION_MISMATCH);
}

/// After a few attempts in a row the bridge ends, so that its supervisor makes its container anew.
#[track_caller]
fn check_gives_up(spoil: impl FnOnce(&mut Sim), reason: &str) {
    let limits = Limits {
        first_retry: Duration::from_millis(20),
        longest_retry: Duration::from_millis(100),
        most_failures: 4,
        stuck: Duration::from_millis(600),
        ..Limits::default()
    };
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    let bridge = Embedded::start(&sim, &pins, Duration::from_millis(20), limits);
    let reader = eventually("two devices", || {
        let reader = Reader::open(pins.path());
        reader.devices().is_ok_and(|devices| devices.len() == 2).then_some(reader)
    });
    spoil(&mut sim);
    let error = bridge.wait().unwrap_err();
    let BridgeError::GaveUp { attempts, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*attempts, limits.most_failures);
    assert!(source.to_string().contains(reason), "{source}");
    assert!(is_empty(&reader));
    assert_eq!(pins.pins(), [""; 0]);
    assert_eq!(mappers(inode(&sim.library())), [0; 0]);
}

#[test]
fn unknown_errors_from_everything_end_the_bridge_after_some_attempts() {
    check_gives_up(|sim| sim.set(|scenario| scenario.fails("*", Code::UNKNOWN)), "unknown error (999)");
}

#[test]
fn unknown_errors_from_every_device_end_the_bridge_after_some_attempts() {
    let spoil = |sim: &mut Sim| sim.set(|scenario| Scenario::new().devices(scenario.devices.len(), device().lost(Code::UNKNOWN)));
    check_gives_up(spoil, "none of 2 GPUs can be reached: GPU 0: unknown error (999)");
}

#[test]
fn a_crash_in_the_library_is_the_samplers_alone() {
    let (mut sim, pins) = (machine(2), Bpffs::mount());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "both devices", |reader| (published(reader) == [0, 1]).then_some(()));
    let before = sim.stats().loads();
    sim.set(|scenario| scenario.fault(Fault::crash("nvmlDeviceGetUtilizationRates")));
    bridge.wait_for_log("signal: 11 (SIGSEGV)");
    let crashed = Instant::now();
    // The last round stands for the hold, and not longer.
    let last = stamp(&reader);
    bridge.wait_for("empty maps", || is_empty(&reader).then_some(()));
    let held = crashed.elapsed();
    assert!(held > Duration::from_millis(250) && held < Duration::from_millis(900), "{held:?}");
    assert_eq!((stamp(&reader), phase(&reader)), (last, Phase::Waiting));
    // It crashes at every start: after 1, 2 and 4 s, each up to a fifth less.
    thread::sleep(Duration::from_millis(4_500).saturating_sub(crashed.elapsed()));
    let starts = sim.stats().loads() - before;
    assert!((2..=3).contains(&starts), "{starts} new samplers in 4.5 s:\n{}", bridge.log());
    sim.heal();
    check_publishes(&mut bridge, &reader, &[0, 1]);
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
}

#[test]
fn a_killed_samplers_devices_follow_their_hold_until_the_next_one_publishes() {
    let (sim, pins) = (machine(2), Bpffs::mount());
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "both devices", |reader| (published(reader) == [0, 1]).then_some(()));
    e2e::processes::send(bridge.sampler(), Signal::SIGKILL);
    let killed = Instant::now();
    thread::sleep(Duration::from_millis(150));
    let (last, shown) = (stamp(&reader), published(&reader));
    assert!(killed.elapsed() > Duration::from_millis(400) || shown == [0, 1], "its last round stands");
    bridge.wait_for("empty maps", || is_empty(&reader).then_some(()));
    let held = killed.elapsed();
    assert!(held > Duration::from_millis(400) && held < Duration::from_millis(900), "{held:?}");
    assert_eq!(stamp(&reader), last);
    check_publishes(&mut bridge, &reader, &[0, 1]);
    check_logged_once(&bridge, &["the sampler process ended: signal: 9 (SIGKILL)", "no device has answered", "publishing 2 devices"]);
}

#[test]
fn a_new_mig_layout_is_followed() {
    let instance =
        |gpu_instance: u32| MigInstance { gpu_instance, uuid: format!("MIG-{gpu_instance}").as_str().into(), ..MigInstance::default() };
    let layout = |instances: &[u32]| {
        let process = |(number, instance): (u32, &u32)| Process::compute(PID + number, 5).in_instance(*instance, 0);
        let device = (0..).zip(instances).map(process).fold(device(), Device::process);
        let numbered = (0..).zip(instances).map(|(index, &gpu_instance)| MigInstance { index, ..instance(gpu_instance) });
        device.with_mig(numbered.collect())
    };
    let pins = Bpffs::mount();
    let mut sim = Sim::install(Scenario::new().device(layout(&[1, 2])));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_until_published(&pins);
    let seen = || {
        let processes = reader.process_devices(Order::ByKey).unwrap();
        processes.iter().map(|(key, record)| (key.pid() - PID, record.mig_instance)).collect::<Vec<_>>()
    };
    bridge.wait_for("the first layout", || (seen() == [(0, 1), (1, 2)]).then_some(()));
    sim.set(|scenario| Scenario { devices: vec![layout(&[5])], ..scenario });
    bridge.wait_for("the second layout", || (seen() == [(0, 5)]).then_some(()));
    assert!(reader.process_device(PidDeviceKey::new(PID + 1, 0)).unwrap().is_none());
    sim.set(|scenario| Scenario { devices: vec![device().process(Process::compute(PID, 5))], ..scenario });
    bridge.wait_for("no MIG", || (seen() == [(0, 0)]).then_some(()));
}
