//! Bridges that come and go, and consumers that stay.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::time::Instant;

use consumers::devices::Devices;
use consumers::events::{Events, Trigger};
use consumers::state::State;
use consumers::{devices, tasks};
use e2e::{Bpffs, Bridge, WAIT, map_id, map_ids, write};
use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_BRIDGE_SOURCE_MOCK, GPU_BRIDGE_STOPPING, GpuDeviceMetrics, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::Reader;
use nix::sys::signal::Signal;

const LONG_MS: u64 = 3_600_000;
/// Above the kernel's largest process id.
const NOBODY: u32 = 1 << 30;

/// Loads every consumer, which fails on pins that are not as it was compiled.
fn load_all(pins: &Bpffs) {
    devices::read(pins.path()).unwrap();
    tasks::read(pins.path()).unwrap();
    Events::attach(pins.path(), LONG_MS, Trigger::ContextSwitch).unwrap();
}

fn start(pins: &Bpffs, keep_pins: bool) -> (Bridge, Reader) {
    let mut bridge = Bridge::builder(pins, "mock", "50ms").arg(format!("--keep-pins={keep_pins}")).start();
    let reader = bridge.wait_until_published(pins);
    (bridge, reader)
}

#[test]
fn with_keep_pins_a_restart_keeps_the_maps_and_their_consumers() {
    let pins = Bpffs::mount();
    let (bridge, _) = start(&pins, true);
    let ids = map_ids(&pins);
    let consumer = Devices::open(pins.path()).unwrap();
    load_all(&pins);
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    load_all(&pins);
    let before = consumer.read().unwrap();

    let (mut bridge, _) = start(&pins, true);
    assert_eq!(map_ids(&pins), ids);
    load_all(&pins);
    bridge.wait_for("the consumer's new data", || consumer.read().unwrap().first().filter(|device| **device != before[0]).cloned());
}

#[test]
fn without_keep_pins_a_restart_makes_new_maps_that_consumers_load_as_before() {
    let pins = Bpffs::mount();
    let (bridge, _) = start(&pins, false);
    let ids = map_ids(&pins);
    load_all(&pins);
    let old_consumer = Devices::open(pins.path()).unwrap();
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));

    let (_bridge, _) = start(&pins, false);
    let new_ids = map_ids(&pins);
    for (old, new) in ids.iter().zip(&new_ids) {
        assert!(new.is_some() && old != new, "{ids:?} {new_ids:?}");
    }
    load_all(&pins);
    assert_eq!(devices::read(pins.path()).unwrap().len(), 2);
    assert_eq!(old_consumer.read().unwrap(), [], "the old map was emptied");
}

#[test]
fn consumers_that_created_the_pins_are_adopted_and_filled() {
    let pins = Bpffs::mount();
    let consumer = Devices::open(pins.path()).unwrap();
    let _events = Events::attach(pins.path(), LONG_MS, Trigger::ContextSwitch).unwrap();
    let state = State::open(pins.path()).unwrap();
    let state_id = map_id(&pins.pin("gpu_bridge_state"));
    assert_eq!(state.read().unwrap(), (None, vec![]));
    let ids = map_ids(&pins);
    assert!(ids.iter().all(Option::is_some), "{ids:?}");
    assert_eq!(consumer.read().unwrap(), []);

    let (bridge, _) = start(&pins, false);
    assert_eq!(map_ids(&pins), ids);
    assert_eq!(consumer.read().unwrap().len(), 2);
    assert_eq!(map_id(&pins.pin("gpu_bridge_state")), state_id);
    let (bridge_line, devices) = state.read().unwrap();
    let bridge_line = bridge_line.unwrap();
    assert_eq!((bridge_line.helper_pid, bridge_line.source, bridge_line.devices), (bridge.pid(), GPU_BRIDGE_SOURCE_MOCK, 2));
    let names: Vec<(u32, &str)> = devices.iter().map(|device| (device.index, device.name.as_str())).collect();
    assert_eq!(names, [(0, "MOCK GPU model 0"), (1, "MOCK GPU model 1")]);

    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(consumer.read().unwrap(), []);
    let (bridge_line, _) = state.read().unwrap();
    assert_eq!(bridge_line.unwrap().phase, GPU_BRIDGE_STOPPING);
}

/// What another bridge left in the maps is gone when `gpu_meta` is first this bridge's.
#[track_caller]
fn check_purge(first_end: Signal) {
    let pins = Bpffs::mount();
    let (bridge, _) = start(&pins, true);
    let ids = map_ids(&pins);
    bridge.stop(first_end);
    let time = 1_700_000_000_000_000_000;
    write(&pins, "gpu_device", 7_u32, GpuDeviceMetrics { timestamp_ns: time, ..Default::default() });
    write(&pins, "gpu_per_pid", NOBODY, GpuPidMetricsAggregated { timestamp_ns: time, device_count: 1, ..Default::default() });
    write(
        &pins,
        "gpu_per_pid_per_device",
        PidDeviceKey::new(NOBODY, 7),
        GpuPidMetrics { timestamp_ns: time, gpu_device: 7, ..Default::default() },
    );

    let bridge = Bridge::builder(&pins, "mock", "50ms").start();
    let reader = Reader::open(pins.path());
    let pid = bridge.pid();
    let left = || {
        let device = reader.device(7).unwrap().is_some();
        let process = reader.process(NOBODY).unwrap().is_some();
        let process_device = reader.process_device(PidDeviceKey::new(NOBODY, 7)).unwrap().is_some();
        (device, process, process_device)
    };
    // Without a pause: what is left must be gone at the very moment at which gpu_meta is new.
    let end = Instant::now() + WAIT;
    while reader.meta().unwrap().helper_pid != pid {
        assert!(Instant::now() < end, "waited in vain for the new bridge's first round; it logged:\n{}", bridge.log());
    }
    assert_eq!(left(), (false, false, false), "after {first_end}: (device, process, process on a device) that are left");
    assert_eq!(map_ids(&pins), ids);
}

#[test]
fn what_a_killed_bridge_left_is_removed_before_the_first_round() {
    check_purge(Signal::SIGKILL);
}

#[test]
fn what_a_bridge_kept_on_purpose_is_removed_before_the_first_round() {
    check_purge(Signal::SIGTERM);
}

#[test]
fn a_second_bridge_on_the_same_pins_gives_way() {
    let pins = Bpffs::mount();
    let (mut bridge, _) = start(&pins, false);
    let ids = map_ids(&pins);
    let second = Bridge::builder(&pins, "mock", "50ms").start().wait();
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(second.stderr.contains(&bridge.pid().to_string()), "it says who is there: {}", second.stderr);
    assert_eq!(map_ids(&pins), ids);
    let stamp = || Reader::open(pins.path()).meta().unwrap().last_update_boottime_ns;
    let before = stamp();
    bridge.wait_for("the first bridge going on", || (stamp() > before).then_some(()));
}
