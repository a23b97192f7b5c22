//! The text form: one section a map, records with all their fields. Scripts read it, so not a byte of it changes.

use std::io::{self, Write};

use gpu_types::{GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::{Map, Snapshot};

/// Writes a section for each map of `snapshot` that could be read.
pub(crate) fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    if let Ok(record) = &snapshot.meta {
        heading(out, Map::Meta)?;
        write!(out, "  ")?;
        meta(out, record)?;
        writeln!(out)?;
    }
    if let Ok(devices) = &snapshot.devices {
        heading(out, Map::Device)?;
        for (index, record) in devices {
            write!(out, "  [device {index}] ")?;
            device(out, record)?;
        }
        writeln!(out)?;
    }
    if let Ok(processes) = &snapshot.processes {
        heading(out, Map::PerPid)?;
        for (pid, record) in processes {
            write!(out, "  [pid {pid}] ")?;
            process(out, record)?;
        }
        writeln!(out)?;
    }
    if let Ok(process_devices) = &snapshot.process_devices {
        heading(out, Map::PerPidPerDevice)?;
        for (key, record) in process_devices {
            write!(out, "  [pid {} dev {}] ", key.pid(), key.device())?;
            process_device(out, record)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn heading(out: &mut impl Write, map: Map) -> io::Result<()> {
    writeln!(out, "# {}", map.name())
}

/// Writes `{Name:value Name:value …}` and ends the line.
macro_rules! fields {
    ($out:expr, $record:expr, $first:literal $first_field:ident $(, $name:literal $field:ident)* $(,)?) => {
        writeln!(
            $out,
            concat!("{{", $first, ":{}", $(" ", $name, ":{}",)* "}}"),
            $record.$first_field $(, $record.$field)*
        )
    };
}

fn meta(out: &mut impl Write, record: &GpuMeta) -> io::Result<()> {
    fields!(
        out,
        record,
        "SchemaVersion" schema_version,
        "N_devices" n_devices,
        "LastUpdateBoottimeNs" last_update_boottime_ns,
        "HelperPid" helper_pid,
        "Reserved" _reserved,
        "ClockOffsetNs" clock_offset_ns,
    )
}

fn device(out: &mut impl Write, record: &GpuDeviceMetrics) -> io::Result<()> {
    fields!(
        out,
        record,
        "TimestampNs" timestamp_ns,
        "SmUtilPct" sm_util_pct,
        "MemUtilPct" mem_util_pct,
        "MemTotal" mem_total,
        "MemUsed" mem_used,
        "MemReserved" mem_reserved,
        "TempC" temp_c,
        "PowerMw" power_mw,
        "SmClockMhz" sm_clock_mhz,
        "MemClockMhz" mem_clock_mhz,
        "ThrottleReasons" throttle_reasons,
        "PcieTxKbps" pcie_tx_kbps,
        "PcieRxKbps" pcie_rx_kbps,
        "EncUtilPct" enc_util_pct,
        "DecUtilPct" dec_util_pct,
        "NvlinkTxKbps" nvlink_tx_kbps,
        "NvlinkRxKbps" nvlink_rx_kbps,
        "EccCorrectedTotal" ecc_corrected_total,
        "EccUncorrectedTotal" ecc_uncorrected_total,
        "FanSpeedPct" fan_speed_pct,
        "ComputeMode" compute_mode,
    )
}

fn process(out: &mut impl Write, record: &GpuPidMetricsAggregated) -> io::Result<()> {
    fields!(
        out,
        record,
        "TimestampNs" timestamp_ns,
        "UsedGpuMemoryTotal" used_gpu_memory_total,
        "SmUtilPctMax" sm_util_pct_max,
        "MemUtilPctMax" mem_util_pct_max,
        "GpuDevicePrimary" gpu_device_primary,
        "DeviceCount" device_count,
        "Pad" _pad,
    )
}

fn process_device(out: &mut impl Write, record: &GpuPidMetrics) -> io::Result<()> {
    fields!(
        out,
        record,
        "TimestampNs" timestamp_ns,
        "UsedGpuMemory" used_gpu_memory,
        "SmUtilPct" sm_util_pct,
        "MemUtilPct" mem_util_pct,
        "EncUtilPct" enc_util_pct,
        "DecUtilPct" dec_util_pct,
        "GpuDevice" gpu_device,
        "MigInstance" mig_instance,
        "Pad" _pad,
    )
}

#[cfg(test)]
mod tests {
    use gpu_types::keys::PidDeviceKey;
    use map_reader::Error;

    use super::*;

    /// Maps without entries, and then as `change` makes it.
    fn snapshot(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.meta = Ok(GpuMeta::default());
        snapshot.devices = Ok(Vec::new());
        snapshot.processes = Ok(Vec::new());
        snapshot.process_devices = Ok(Vec::new());
        change(&mut snapshot);
        snapshot
    }

    #[track_caller]
    fn check(snapshot: &Snapshot, expected: &str) {
        let mut out = Vec::new();
        write(snapshot, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn every_field_of_every_record_is_printed_under_its_name() {
        let meta = GpuMeta {
            schema_version: 1,
            n_devices: 2,
            last_update_boottime_ns: 123_456_789_012,
            helper_pid: 4711,
            _reserved: 0,
            clock_offset_ns: 1_700_000_000_000_000_001,
        };
        let device = GpuDeviceMetrics {
            timestamp_ns: 1_700_000_123_000_000_002,
            sm_util_pct: 71,
            mem_util_pct: 53,
            mem_total: 85_899_345_920,
            mem_used: 1_207_959_552,
            mem_reserved: 536_870_912,
            temp_c: 61,
            power_mw: 312_345,
            sm_clock_mhz: 1410,
            mem_clock_mhz: 1593,
            throttle_reasons: 4,
            pcie_tx_kbps: 1_000_001,
            pcie_rx_kbps: 1_000_002,
            enc_util_pct: 3,
            dec_util_pct: 5,
            nvlink_tx_kbps: 2_000_001,
            nvlink_rx_kbps: 2_000_002,
            ecc_corrected_total: 7,
            ecc_uncorrected_total: 8,
            fan_speed_pct: 30,
            compute_mode: 1,
        };
        let process = GpuPidMetricsAggregated {
            timestamp_ns: 1_700_000_123_000_000_003,
            used_gpu_memory_total: 268_435_456,
            sm_util_pct_max: 38,
            mem_util_pct_max: 21,
            gpu_device_primary: 0,
            device_count: 1,
            ..Default::default()
        };
        let process_device = GpuPidMetrics {
            timestamp_ns: 1_700_000_123_000_000_004,
            used_gpu_memory: 402_653_184,
            sm_util_pct: 49,
            mem_util_pct: 22,
            enc_util_pct: 1,
            dec_util_pct: 2,
            gpu_device: 0,
            mig_instance: 6,
            ..Default::default()
        };
        let snapshot = snapshot(|snapshot| {
            snapshot.meta = Ok(meta);
            snapshot.devices = Ok(vec![(0, device), (3, GpuDeviceMetrics { timestamp_ns: 9, ..Default::default() })]);
            let multiple = GpuPidMetricsAggregated { gpu_device_primary: 255, device_count: 2, ..process };
            snapshot.processes = Ok(vec![(100_000, process), (4_294_967_294, multiple)]);
            snapshot.process_devices = Ok(vec![(PidDeviceKey::new(100_001, 0), process_device)]);
        });
        check(
            &snapshot,
            "\
# gpu_meta
  {SchemaVersion:1 N_devices:2 LastUpdateBoottimeNs:123456789012 HelperPid:4711 Reserved:0 ClockOffsetNs:1700000000000000001}

# gpu_device
  [device 0] {TimestampNs:1700000123000000002 SmUtilPct:71 MemUtilPct:53 MemTotal:85899345920 MemUsed:1207959552 MemReserved:536870912 \
TempC:61 PowerMw:312345 SmClockMhz:1410 MemClockMhz:1593 ThrottleReasons:4 PcieTxKbps:1000001 PcieRxKbps:1000002 EncUtilPct:3 \
DecUtilPct:5 NvlinkTxKbps:2000001 NvlinkRxKbps:2000002 EccCorrectedTotal:7 EccUncorrectedTotal:8 FanSpeedPct:30 ComputeMode:1}
  [device 3] {TimestampNs:9 SmUtilPct:0 MemUtilPct:0 MemTotal:0 MemUsed:0 MemReserved:0 \
TempC:0 PowerMw:0 SmClockMhz:0 MemClockMhz:0 ThrottleReasons:0 PcieTxKbps:0 PcieRxKbps:0 EncUtilPct:0 \
DecUtilPct:0 NvlinkTxKbps:0 NvlinkRxKbps:0 EccCorrectedTotal:0 EccUncorrectedTotal:0 FanSpeedPct:0 ComputeMode:0}

# gpu_per_pid
  [pid 100000] {TimestampNs:1700000123000000003 UsedGpuMemoryTotal:268435456 SmUtilPctMax:38 MemUtilPctMax:21 GpuDevicePrimary:0 \
DeviceCount:1 Pad:0}
  [pid 4294967294] {TimestampNs:1700000123000000003 UsedGpuMemoryTotal:268435456 SmUtilPctMax:38 MemUtilPctMax:21 GpuDevicePrimary:255 \
DeviceCount:2 Pad:0}

# gpu_per_pid_per_device
  [pid 100001 dev 0] {TimestampNs:1700000123000000004 UsedGpuMemory:402653184 SmUtilPct:49 MemUtilPct:22 EncUtilPct:1 DecUtilPct:2 \
GpuDevice:0 MigInstance:6 Pad:0}

",
        );
    }

    #[test]
    fn maps_without_entries_have_a_heading_and_a_blank_line() {
        check(
            &snapshot(|_| {}),
            "\
# gpu_meta
  {SchemaVersion:0 N_devices:0 LastUpdateBoottimeNs:0 HelperPid:0 Reserved:0 ClockOffsetNs:0}

# gpu_device

# gpu_per_pid

# gpu_per_pid_per_device

",
        );
    }

    #[test]
    fn a_map_that_cannot_be_read_has_no_section() {
        let snapshot = snapshot(|snapshot| {
            snapshot.meta = Err(Error::NotAskedFor { map: "gpu_meta" });
            snapshot.processes = Err(Error::NotAskedFor { map: "gpu_per_pid" });
        });
        check(&snapshot, "# gpu_device\n\n# gpu_per_pid_per_device\n\n");
    }

    #[test]
    fn values_that_make_no_sense_are_printed_as_they_are() {
        let meta = GpuMeta {
            schema_version: u32::MAX,
            n_devices: u32::MAX,
            last_update_boottime_ns: u64::MAX,
            helper_pid: u32::MAX,
            _reserved: u32::MAX,
            clock_offset_ns: i64::MIN,
        };
        let process_device = GpuPidMetrics { gpu_device: u8::MAX, mig_instance: u8::MAX, _pad: u16::MAX, ..Default::default() };
        let snapshot = snapshot(|snapshot| {
            snapshot.meta = Ok(meta);
            snapshot.process_devices = Ok(vec![(PidDeviceKey::from(u64::MAX), process_device)]);
        });
        check(
            &snapshot,
            "\
# gpu_meta
  {SchemaVersion:4294967295 N_devices:4294967295 LastUpdateBoottimeNs:18446744073709551615 HelperPid:4294967295 Reserved:4294967295 \
ClockOffsetNs:-9223372036854775808}

# gpu_device

# gpu_per_pid

# gpu_per_pid_per_device
  [pid 4294967295 dev 4294967295] {TimestampNs:0 UsedGpuMemory:0 SmUtilPct:0 MemUtilPct:0 EncUtilPct:0 DecUtilPct:0 \
GpuDevice:255 MigInstance:255 Pad:65535}

",
        );
    }
}
