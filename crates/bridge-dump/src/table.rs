//! Columns for people: units, names, words for codes, `-` for what is not known.

use std::io::{self, Write};

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_DEVICE_PRIMARY_MULTI, GpuDeviceMetrics, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::{Freshness, Metric};

use crate::cells::{or_dash, printable};
use crate::{Capture, decode, units};

pub(crate) fn write(capture: &Capture, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(capture))?;
    let snapshot = &capture.snapshot;
    if let Ok(devices) = &snapshot.devices {
        writeln!(out)?;
        device_grid(capture, devices).write(out)?;
    }
    if let Ok(processes) = &snapshot.processes {
        writeln!(out)?;
        process_grid(capture, processes).write(out)?;
    }
    if let Ok(entries) = &snapshot.process_devices {
        writeln!(out)?;
        process_device_grid(capture, entries).write(out)?;
    }
    Ok(())
}

/// How the bridge is and how old its data, in one line.
fn headline(capture: &Capture) -> String {
    let fresh = match capture.freshness() {
        Some(Freshness::NeverPublished) => "nothing was published yet".to_owned(),
        Some(Freshness::Fresh { age }) => format!("fresh ({} old)", units::age(age)),
        Some(Freshness::Stale { age }) => format!("STALE ({} old)", units::age(age)),
        _ => "freshness unknown".to_owned(),
    };
    let Some(state) = capture.state() else { return fresh };
    let mut parts = vec![fresh, state.phase().to_string(), format!("source {}", state.source())];
    if state.source().is_invented() {
        parts.push("INVENTED DATA".to_owned());
    }
    parts.extend(state.poll_interval().map(|interval| format!("every {}", units::age(interval))));
    parts.extend(
        Some(state.driver_version()).filter(|version| !version.is_empty()).map(|version| format!("driver {}", printable(&version))),
    );
    parts.extend(capture.lost().map(|index| format!("GPU {index} LOST")));
    parts.join(" · ")
}

/// Rows of cells under headings. Texts are set left, figures right.
struct Grid {
    headings: Vec<&'static str>,
    left: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Grid {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let cells = |column: usize| self.rows.iter().map(move |row| row[column].chars().count());
        let widths: Vec<usize> =
            self.headings.iter().enumerate().map(|(column, heading)| cells(column).chain([heading.len()]).max().unwrap_or(0)).collect();
        let headings = self.headings.iter().map(|&heading| heading.to_owned()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if self.left.contains(&column) { ("", &*padding) } else { (&*padding, "") };
                line.extend([if column == 0 { "" } else { "  " }, before, cell, after]);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn percent(value: u32) -> String {
    format!("{value} %")
}

fn device_grid(capture: &Capture, devices: &[(u32, GpuDeviceMetrics)]) -> Grid {
    let row = |&(index, ref record): &(u32, GpuDeviceMetrics)| {
        let described = capture.device_state(index);
        let show = |metric, text: String| or_dash(capture.reports(index, metric).then_some(text));
        vec![
            index.to_string(),
            or_dash(capture.vendor(index).map(Into::into)),
            or_dash(described.map(|device| printable(&device.name()))),
            or_dash(described.map(|device| device.phase().to_string())),
            show(Metric::SmUtilPct, percent(record.sm_util_pct)),
            show(Metric::MemUtilPct, percent(record.mem_util_pct)),
            show(Metric::MemUsed, units::bytes(record.mem_used)),
            show(Metric::MemTotal, units::bytes(record.mem_total)),
            show(Metric::TempC, format!("{} °C", record.temp_c)),
            show(Metric::PowerMw, units::power(record.power_mw)),
            show(Metric::SmClockMhz, format!("{} MHz", record.sm_clock_mhz)),
            show(Metric::PcieTxKbps, units::rate(record.pcie_tx_kbps)),
            show(Metric::PcieRxKbps, units::rate(record.pcie_rx_kbps)),
            show(Metric::NvlinkTxKbps, units::rate(record.nvlink_tx_kbps)),
            show(Metric::NvlinkRxKbps, units::rate(record.nvlink_rx_kbps)),
            show(Metric::EccUncorrectedTotal, record.ecc_uncorrected_total.to_string()),
            show(Metric::FanSpeedPct, percent(record.fan_speed_pct)),
            show(
                Metric::ComputeMode,
                decode::compute_mode(record.compute_mode).map_or_else(|| record.compute_mode.to_string(), Into::into),
            ),
            show(Metric::ThrottleReasons, decode::throttle_reasons(record.throttle_reasons).join(",")),
            or_dash(capture.sample_age(record.timestamp_ns).map(units::age)),
        ]
    };
    Grid {
        headings: vec![
            "GPU",
            "VENDOR",
            "NAME",
            "STATE",
            "SM",
            "MEM",
            "USED",
            "TOTAL",
            "TEMP",
            "POWER",
            "CLOCK",
            "PCIE TX",
            "PCIE RX",
            "NVLINK TX",
            "NVLINK RX",
            "ECC",
            "FAN",
            "MODE",
            "THROTTLED BY",
            "AGE",
        ],
        left: &[1, 2, 3, 17, 18],
        rows: devices.iter().map(row).collect(),
    }
}

fn process_grid(capture: &Capture, processes: &[(u32, GpuPidMetricsAggregated)]) -> Grid {
    let row = |&(pid, ref record): &(u32, GpuPidMetricsAggregated)| {
        let sampled = record.timestamp_ns != 0;
        let device = match record.gpu_device_primary {
            GPU_DEVICE_PRIMARY_MULTI => format!("x{}", record.device_count),
            device => device.to_string(),
        };
        vec![
            pid.to_string(),
            device,
            units::bytes(record.used_gpu_memory_total),
            or_dash(sampled.then(|| percent(record.sm_util_pct_max))),
            or_dash(sampled.then(|| percent(record.mem_util_pct_max))),
            or_dash(capture.sample_age(record.timestamp_ns).map(units::age)),
        ]
    };
    Grid { headings: vec!["PID", "GPU", "MEMORY", "SM MAX", "MEM MAX", "AGE"], left: &[], rows: processes.iter().map(row).collect() }
}

fn process_device_grid(capture: &Capture, entries: &[(PidDeviceKey, GpuPidMetrics)]) -> Grid {
    let row = |&(key, ref record): &(PidDeviceKey, GpuPidMetrics)| {
        let sampled = |value| or_dash((record.timestamp_ns != 0).then(|| percent(value)));
        vec![
            key.pid().to_string(),
            key.device().to_string(),
            or_dash((record.mig_instance != 0).then(|| record.mig_instance.to_string())),
            units::bytes(record.used_gpu_memory),
            sampled(record.sm_util_pct),
            sampled(record.mem_util_pct),
            sampled(record.enc_util_pct),
            sampled(record.dec_util_pct),
            or_dash(capture.sample_age(record.timestamp_ns).map(units::age)),
        ]
    };
    Grid {
        headings: vec!["PID", "GPU", "MIG", "MEMORY", "SM", "MEM", "ENC", "DEC", "AGE"],
        left: &[],
        rows: entries.iter().map(row).collect(),
    }
}
