//! The mock source, from the command line to the maps.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;
use std::time::Duration;

use e2e::{Bpffs, Bridge, eventually};
use gpu_types::GpuPidMetricsAggregated;
use gpu_types::keys::PidDeviceKey;
use map_reader::{Order, Phase, Reader, Source};
use nix::time::{ClockId, clock_gettime};

const MIB: u64 = 1 << 20;

/// The mock processes: pid, device, memory. Those whose PID a real process has are passed over.
fn mock_processes() -> Vec<(u32, u32, u64)> {
    (0..6)
        .map(|i: u32| (100_000 + i, i / 3, (256 + u64::from(i % 3) * 128) * MIB))
        .filter(|(pid, ..)| !fs::exists(format!("/proc/{pid}")).unwrap())
        .collect()
}

fn clock_offset_ns() -> i128 {
    let read = |clock| i128::try_from(Duration::from(clock_gettime(clock).unwrap()).as_nanos()).unwrap();
    read(ClockId::CLOCK_REALTIME) - read(ClockId::CLOCK_BOOTTIME)
}

#[test]
fn the_four_maps_hold_what_the_contract_says_of_the_mock_source() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").start();
    let reader = bridge.wait_until_published(&pins);

    let meta = reader.meta().unwrap();
    assert_eq!((meta.schema_version, meta.n_devices, meta.helper_pid, meta._reserved), (1, 2, bridge.pid(), 0));
    assert!(meta.last_update_boottime_ns <= map_reader::boottime_now_ns().unwrap());
    let off_by = (i128::from(meta.clock_offset_ns) - clock_offset_ns()).abs();
    assert!(off_by < 5_000_000, "the clock offset is off by {off_by} ns");

    let devices = reader.devices().unwrap();
    assert_eq!(devices.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1]);
    for (index, device) in &devices {
        assert!(device.timestamp_ns > 0);
        assert_eq!((device.mem_total, device.mem_reserved), (80 << 30, 512 * MIB), "device {index}");
        assert!(device.mem_used > 0 && device.mem_used + device.mem_reserved <= device.mem_total);
        for percent in [device.sm_util_pct, device.mem_util_pct, device.enc_util_pct, device.dec_util_pct, device.fan_speed_pct] {
            assert!(percent <= 100, "device {index}: {device:?}");
        }
        assert!(device.sm_util_pct > 0 && device.power_mw > 0 && device.temp_c > 0 && device.sm_clock_mhz > 0 && device.pcie_rx_kbps > 0);
    }

    let processes = eventually("the mock processes and no others, in both maps", || {
        let expected = mock_processes();
        let processes = reader.processes(Order::ByKey).unwrap();
        let process_devices = reader.process_devices(Order::ByKey).unwrap();
        let keys: Vec<PidDeviceKey> = expected.iter().map(|(pid, device, _)| PidDeviceKey::new(*pid, *device)).collect();
        let complete = processes.iter().map(|(pid, _)| *pid).eq(expected.iter().map(|(pid, ..)| *pid))
            && process_devices.iter().map(|(key, _)| *key).eq(keys);
        complete.then_some((expected, processes, process_devices))
    });
    let (expected, processes, process_devices) = processes;
    assert!(!expected.is_empty(), "all mock PIDs are taken on this machine");
    for (((pid, device, memory), (_, process)), (_, on_device)) in expected.iter().zip(&processes).zip(&process_devices) {
        assert!(process.timestamp_ns > 0);
        let seen = GpuPidMetricsAggregated {
            used_gpu_memory_total: *memory,
            gpu_device_primary: u8::try_from(*device).unwrap(),
            device_count: 1,
            timestamp_ns: process.timestamp_ns,
            sm_util_pct_max: process.sm_util_pct_max,
            mem_util_pct_max: process.mem_util_pct_max,
            ..Default::default()
        };
        assert_eq!(*process, seen, "process {pid}");
        assert!(process.sm_util_pct_max <= 100 && process.mem_util_pct_max <= 100);
        assert_eq!((on_device.used_gpu_memory, u32::from(on_device.gpu_device), on_device.mig_instance), (*memory, *device, 0));
    }
}

#[test]
fn the_bridge_says_what_it_is_and_does() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").start();
    let reader = bridge.wait_until_published(&pins);
    let state = bridge.wait_for("its state", || reader.state().ok().filter(|state| state.phase() == Phase::Publishing));
    assert_eq!((state.source(), state.poll_interval()), (Source::Mock, Some(Duration::from_millis(50))));
    assert_eq!(state.record().helper_pid, bridge.pid());
    let names: Vec<String> = state.devices().map(|device| device.name().into_owned()).collect();
    assert_eq!(names, ["MOCK GPU model 0", "MOCK GPU model 1"]);
}

#[test]
fn rounds_come_at_the_poll_interval_and_figures_move() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "100ms").start();
    let reader = bridge.wait_until_published(&pins);
    let stamp = |reader: &Reader| reader.meta().unwrap().last_update_boottime_ns;

    let used = reader.device(0).unwrap().unwrap().mem_used;
    let mut stamps = vec![stamp(&reader)];
    while stamps.len() <= 10 {
        let newest = eventually("the next round", || Some(stamp(&reader)).filter(|newest| newest != stamps.last().unwrap()));
        stamps.push(newest);
    }
    assert!(stamps.is_sorted(), "time runs backwards: {stamps:?}");
    // Late on a busy machine, but never early; the first stamp may be that of a late round.
    let took = Duration::from_nanos(stamps[10] - stamps[1]);
    assert!(took >= Duration::from_millis(800), "nine intervals took {took:?}");
    assert_ne!(reader.device(0).unwrap().unwrap().mem_used, used, "memory climbs");
}

#[test]
fn without_a_library_auto_falls_back_to_invented_data_and_says_so() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "auto", "100ms").arg("--nvml-library-path=/nonexistent/libnvidia-ml.so.1").start();
    let reader = bridge.wait_until_published(&pins);
    assert_eq!(reader.meta().unwrap().n_devices, 2);
    let warning = bridge.wait_for_log("mock");
    assert!(warning.contains("WARN"), "{warning}");
}

#[test]
fn without_a_library_real_fails_and_names_it() {
    let pins = Bpffs::mount();
    let path = "/nonexistent/libnvidia-ml.so.1";
    let exit = Bridge::builder(&pins, "real", "100ms").arg(format!("--nvml-library-path={path}")).start().wait();
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains(path), "{}", exit.stderr);
    assert_eq!(pins.pins(), Vec::<String>::new(), "nothing is left behind");
}
