//! The maps as `bpftool` sees them: it knows nothing but what the kernel and the BTF tell it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::path::Path;
use std::process::Command;

use e2e::{Bpffs, Bridge};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn bpftool(verb: &str, pin: &Path) -> Value {
    let output = Command::new("bpftool").args(["-j", "map", verb, "pinned"]).arg(pin).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run bpftool, install it: {error}"));
    assert!(output.status.success(), "bpftool map {verb} {}: {}", pin.display(), String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A bridge's last data, standing still.
fn published() -> Bpffs {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "50ms").arg("--keep-pins").start();
    bridge.wait_until_published(&pins);
    let exit = bridge.stop(Signal::SIGTERM);
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    pins
}

#[test]
fn names_types_and_sizes_are_the_contracts() {
    let pins = published();
    let check = |map: &str, name: &str, kind: &str, key: u32, value: u32, entries: u32| {
        let shown = bpftool("show", &pins.pin(map));
        let attributes = ["name", "type", "bytes_key", "bytes_value", "max_entries", "flags"].map(|field| shown[field].clone());
        assert_eq!(attributes, [json!(name), json!(kind), json!(key), json!(value), json!(entries), json!(0)], "{map}: {shown}");
        assert!(shown["btf_id"].as_u64().is_some_and(|id| id > 0), "{map} has no BTF: {shown}");
    };
    check("gpu_meta", "gpu_meta", "array", 4, 32, 1);
    check("gpu_device", "gpu_device", "array", 4, 128, 16);
    check("gpu_per_pid", "gpu_per_pid", "lru_hash", 4, 32, 4096);
    // The kernel cuts names at 15 characters.
    check("gpu_per_pid_per_device", "gpu_per_pid_per", "lru_hash", 8, 40, 4096);
}

#[test]
fn fields_are_decoded_with_their_names() {
    let pins = published();
    let reader = map_reader::Reader::open(pins.path());
    let dump = |map: &str| -> Vec<Value> {
        let entries = bpftool("dump", &pins.pin(map));
        entries.as_array().unwrap().iter().map(|entry| entry["formatted"].clone()).collect()
    };

    let meta = reader.meta().unwrap();
    let expected = json!({"key": 0, "value": {
        "schema_version": 1,
        "n_devices": 2,
        "last_update_boottime_ns": meta.last_update_boottime_ns,
        "helper_pid": meta.helper_pid,
        "_reserved": 0,
        "clock_offset_ns": meta.clock_offset_ns,
    }});
    assert_eq!(dump("gpu_meta"), [expected]);

    let devices = dump("gpu_device");
    assert_eq!(devices.len(), 16);
    let device = reader.device(1).unwrap().unwrap();
    let expected = json!({"key": 1, "value": {
        "timestamp_ns": device.timestamp_ns,
        "sm_util_pct": device.sm_util_pct,
        "mem_util_pct": device.mem_util_pct,
        "mem_total": device.mem_total,
        "mem_used": device.mem_used,
        "mem_reserved": device.mem_reserved,
        "temp_c": device.temp_c,
        "power_mw": device.power_mw,
        "sm_clock_mhz": device.sm_clock_mhz,
        "mem_clock_mhz": device.mem_clock_mhz,
        "throttle_reasons": device.throttle_reasons,
        "pcie_tx_kbps": device.pcie_tx_kbps,
        "pcie_rx_kbps": device.pcie_rx_kbps,
        "enc_util_pct": device.enc_util_pct,
        "dec_util_pct": device.dec_util_pct,
        "nvlink_tx_kbps": device.nvlink_tx_kbps,
        "nvlink_rx_kbps": device.nvlink_rx_kbps,
        "ecc_corrected_total": device.ecc_corrected_total,
        "ecc_uncorrected_total": device.ecc_uncorrected_total,
        "fan_speed_pct": device.fan_speed_pct,
        "compute_mode": device.compute_mode,
    }});
    assert_eq!(devices[1], expected);
    assert_eq!(devices[2]["value"]["timestamp_ns"], 0);

    let processes = reader.processes(map_reader::Order::ByKey).unwrap();
    let (pid, process) = processes[0];
    let expected = json!({"key": pid, "value": {
        "timestamp_ns": process.timestamp_ns,
        "used_gpu_memory_total": process.used_gpu_memory_total,
        "sm_util_pct_max": process.sm_util_pct_max,
        "mem_util_pct_max": process.mem_util_pct_max,
        "gpu_device_primary": process.gpu_device_primary,
        "device_count": process.device_count,
        "_pad": 0,
    }});
    let dumped = dump("gpu_per_pid");
    assert_eq!(dumped.len(), processes.len());
    assert!(dumped.contains(&expected), "{dumped:?}");

    let process_devices = reader.process_devices(map_reader::Order::ByKey).unwrap();
    let (key, process) = process_devices[0];
    let expected = json!({"key": u64::from(key), "value": {
        "timestamp_ns": process.timestamp_ns,
        "used_gpu_memory": process.used_gpu_memory,
        "sm_util_pct": process.sm_util_pct,
        "mem_util_pct": process.mem_util_pct,
        "enc_util_pct": process.enc_util_pct,
        "dec_util_pct": process.dec_util_pct,
        "gpu_device": process.gpu_device,
        "mig_instance": 0,
        "_pad": 0,
    }});
    let dumped = dump("gpu_per_pid_per_device");
    assert_eq!(dumped.len(), process_devices.len());
    assert!(dumped.contains(&expected), "{dumped:?}");
}
