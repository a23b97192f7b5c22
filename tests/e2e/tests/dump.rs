//! `--dump`, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;

use consumers::events::{Events, Trigger};
use e2e::{Bpffs, Bridge, Exit, map_ids, write};
use gpu_types::keys::PidDeviceKey;
use gpu_types::{GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

fn dump(pins: &Bpffs) -> Exit {
    Bridge::at(pins.path()).arg("--dump").start().wait()
}

/// The contract's maps, empty, created by a consumer.
fn empty_maps() -> Bpffs {
    let pins = Bpffs::mount();
    Events::attach(pins.path(), 1, Trigger::ContextSwitch).unwrap();
    pins
}

#[test]
fn every_field_is_printed_in_its_place() {
    let pins = empty_maps();
    let meta =
        GpuMeta { schema_version: 1, n_devices: 2, last_update_boottime_ns: 3, helper_pid: 4, clock_offset_ns: -5, ..Default::default() };
    let device = GpuDeviceMetrics {
        timestamp_ns: 1,
        sm_util_pct: 2,
        mem_util_pct: 3,
        mem_total: 4,
        mem_used: 5,
        mem_reserved: 6,
        temp_c: 7,
        power_mw: 8,
        sm_clock_mhz: 9,
        mem_clock_mhz: 10,
        throttle_reasons: 11,
        pcie_tx_kbps: 12,
        pcie_rx_kbps: 13,
        enc_util_pct: 14,
        dec_util_pct: 15,
        nvlink_tx_kbps: 16,
        nvlink_rx_kbps: 17,
        ecc_corrected_total: 18,
        ecc_uncorrected_total: u64::MAX,
        fan_speed_pct: 20,
        compute_mode: 21,
    };
    let process = GpuPidMetricsAggregated {
        timestamp_ns: 1,
        used_gpu_memory_total: 268_435_456,
        sm_util_pct_max: 38,
        mem_util_pct_max: 4,
        gpu_device_primary: 255,
        device_count: 2,
        ..Default::default()
    };
    let on_device = |gpu_device: u8| GpuPidMetrics {
        timestamp_ns: 1,
        used_gpu_memory: 2,
        sm_util_pct: 3,
        mem_util_pct: 4,
        enc_util_pct: 5,
        dec_util_pct: 6,
        gpu_device,
        mig_instance: 7,
        ..Default::default()
    };
    write(&pins, "gpu_meta", 0_u32, meta);
    write(&pins, "gpu_device", 15_u32, device);
    write(&pins, "gpu_device", 2_u32, device);
    // Not in order, neither by insertion nor by bytes.
    for pid in [100_000_u32, 256, 1] {
        write(&pins, "gpu_per_pid", pid, process);
    }
    for (pid, gpu) in [(256, 1), (1, 9), (256, 0)] {
        write(&pins, "gpu_per_pid_per_device", PidDeviceKey::new(pid, gpu), on_device(u8::try_from(gpu).unwrap()));
    }

    let device = "{TimestampNs:1 SmUtilPct:2 MemUtilPct:3 MemTotal:4 MemUsed:5 MemReserved:6 TempC:7 PowerMw:8 SmClockMhz:9 \
                  MemClockMhz:10 ThrottleReasons:11 PcieTxKbps:12 PcieRxKbps:13 EncUtilPct:14 DecUtilPct:15 NvlinkTxKbps:16 \
                  NvlinkRxKbps:17 EccCorrectedTotal:18 EccUncorrectedTotal:18446744073709551615 FanSpeedPct:20 ComputeMode:21}";
    let process = "{TimestampNs:1 UsedGpuMemoryTotal:268435456 SmUtilPctMax:38 MemUtilPctMax:4 GpuDevicePrimary:255 DeviceCount:2 Pad:0}";
    let on_device = |gpu: u32| {
        format!("{{TimestampNs:1 UsedGpuMemory:2 SmUtilPct:3 MemUtilPct:4 EncUtilPct:5 DecUtilPct:6 GpuDevice:{gpu} MigInstance:7 Pad:0}}")
    };
    let expected = [
        "# gpu_meta".to_owned(),
        "  {SchemaVersion:1 N_devices:2 LastUpdateBoottimeNs:3 HelperPid:4 Reserved:0 ClockOffsetNs:-5}".to_owned(),
        String::new(),
        "# gpu_device".to_owned(),
        format!("  [device 2] {device}"),
        format!("  [device 15] {device}"),
        String::new(),
        "# gpu_per_pid".to_owned(),
        format!("  [pid 1] {process}"),
        format!("  [pid 256] {process}"),
        format!("  [pid 100000] {process}"),
        String::new(),
        "# gpu_per_pid_per_device".to_owned(),
        format!("  [pid 1 dev 9] {}", on_device(9)),
        format!("  [pid 256 dev 0] {}", on_device(0)),
        format!("  [pid 256 dev 1] {}", on_device(1)),
        String::new(),
    ];
    let exit = dump(&pins);
    assert_eq!(exit.stdout, expected.map(|line| line + "\n").concat());
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
}

#[test]
fn empty_maps_give_their_headings() {
    let exit = dump(&empty_maps());
    let meta = "  {SchemaVersion:0 N_devices:0 LastUpdateBoottimeNs:0 HelperPid:0 Reserved:0 ClockOffsetNs:0}";
    assert_eq!(exit.stdout, format!("# gpu_meta\n{meta}\n\n# gpu_device\n\n# gpu_per_pid\n\n# gpu_per_pid_per_device\n\n"));
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
}

#[test]
fn a_missing_map_is_named_and_the_others_are_printed() {
    let pins = empty_maps();
    write(&pins, "gpu_per_pid", 77_u32, GpuPidMetricsAggregated::default());
    fs::remove_file(pins.pin("gpu_device")).unwrap();
    let exit = dump(&pins);
    assert_eq!(exit.code, Some(1));
    assert!(exit.stderr.contains("gpu_device"), "{}", exit.stderr);
    assert!(exit.stdout.contains("# gpu_meta\n"), "{}", exit.stdout);
    assert!(exit.stdout.contains("  [pid 77] {"), "{}", exit.stdout);
}

#[test]
fn a_running_bridge_is_not_disturbed() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "20ms").start();
    let reader = bridge.wait_until_published(&pins);
    let ids = map_ids(&pins);
    for _ in 0..20 {
        let exit = dump(&pins);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
        assert!(exit.stdout.contains(&format!(" HelperPid:{} ", bridge.pid())), "{}", exit.stdout);
        assert!(exit.stdout.contains("  [device 1] {TimestampNs:"), "{}", exit.stdout);
    }
    assert_eq!(map_ids(&pins), ids);
    let before = reader.meta().unwrap().last_update_boottime_ns;
    bridge.wait_for("a later round", || (reader.meta().unwrap().last_update_boottime_ns > before).then_some(()));
}
