//! How a bridge ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::time::Duration;

use consumers::devices::Devices;
use e2e::{Bpffs, Bridge, CONTRACT_MAPS, map_ids};
use map_reader::Order;
use nix::sys::signal::Signal;

/// A stopped bridge is gone within one second; the rest is the test machine's.
const PROMPTLY: Duration = Duration::from_secs(3);

#[track_caller]
fn check_clean_end(signal: Signal) {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").start();
    let reader = bridge.wait_until_published(&pins);
    let devices = Devices::open(pins.path()).unwrap();
    assert_eq!(devices.read().unwrap().len(), 2);
    assert!(!reader.processes(Order::ByKey).unwrap().is_empty());

    let exit = bridge.stop(signal);
    assert_eq!(exit.code, Some(0), "{signal}: {}", exit.stderr);
    assert!(exit.took < PROMPTLY, "{signal}: it took {:?}", exit.took);
    assert_eq!(exit.stdout, "", "stdout is data");
    assert_eq!(pins.pins(), Vec::<String>::new(), "{signal}: pins are left");

    // Whoever holds the maps sees nothing that looks alive.
    assert_eq!(devices.read().unwrap(), [], "{signal}");
    assert_eq!(reader.devices().unwrap(), [], "{signal}");
    assert_eq!(reader.processes(Order::ByKey).unwrap(), [], "{signal}");
    assert_eq!(reader.process_devices(Order::ByKey).unwrap(), [], "{signal}");
    let meta = reader.meta().unwrap();
    assert!(meta.last_update_boottime_ns > 0, "{signal}: gpu_meta is left as it is, to grow stale");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(reader.meta().unwrap(), meta, "{signal}: nobody writes any more");
}

#[test]
fn sigterm_empties_and_unpins_the_maps() {
    check_clean_end(Signal::SIGTERM);
}

#[test]
fn sigint_empties_and_unpins_the_maps() {
    check_clean_end(Signal::SIGINT);
}

#[test]
fn with_keep_pins_the_data_stays() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").arg("--keep-pins").start();
    let reader = bridge.wait_until_published(&pins);
    let ids = map_ids(&pins);
    let exit = bridge.stop(Signal::SIGTERM);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(map_ids(&pins), ids);
    assert_eq!(reader.devices().unwrap().len(), 2);
    assert!(!reader.processes(Order::ByKey).unwrap().is_empty());
}

#[test]
fn pins_that_are_not_the_bridges_are_left() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").start();
    bridge.wait_until_published(&pins);
    let mut foreign = libbpf_rs::MapHandle::from_pinned_path(pins.pin("gpu_device")).unwrap();
    foreign.pin(pins.pin("somebody_elses")).unwrap();
    let exit = bridge.stop(Signal::SIGTERM);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(pins.pins(), ["somebody_elses"]);
    for map in CONTRACT_MAPS {
        assert!(!pins.pin(map).exists());
    }
}
