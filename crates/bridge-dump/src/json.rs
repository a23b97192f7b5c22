//! The JSON document. Names are those of the C structs; `schema/dump.schema.json` describes it.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GPU_DEVICE_PRIMARY_MULTI, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::{BridgeState, Consistency, DevicePhase, Error, Freshness, Metric, Phase, Source, chain};
use serde::Serialize;

use crate::{Capture, decode};

/// The version of the document's form: a member that changes its meaning or goes makes it a new one.
const FORMAT: u32 = 1;

/// How a document is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Indented,
    /// One line.
    Line,
}

pub(crate) fn write(capture: &Capture, pin_dir: &Path, form: Form, out: &mut impl Write) -> io::Result<()> {
    let document = Document::new(capture, pin_dir);
    match form {
        Form::Indented => serde_json::to_writer_pretty(&mut *out, &document),
        Form::Line => serde_json::to_writer(&mut *out, &document),
    }
    // Its only cause is the writer; the kind of error is kept.
    .map_err(io::Error::from)?;
    writeln!(out)
}

/// `Some(None)` is null: the map is wanted and cannot be read.
type Section<T> = Option<Option<T>>;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    pin_dir: String,
    boottime_ns: u64,
    consistency: &'static str,
    freshness: Option<FreshnessRecord>,
    bridge: Option<Bridge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Section<Meta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Section<Vec<Device<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Section<Vec<Process>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_devices: Section<Vec<ProcessDevice>>,
    errors: Vec<MapError>,
}

impl<'a> Document<'a> {
    fn new(capture: &'a Capture, pin_dir: &Path) -> Self {
        let snapshot = &capture.snapshot;
        Self {
            format: FORMAT,
            pin_dir: pin_dir.display().to_string(),
            boottime_ns: capture.boottime_ns,
            consistency: match snapshot.consistency {
                Consistency::Verified => "verified",
                Consistency::Unsettled => "unsettled",
                _ => "unverified",
            },
            freshness: capture.freshness().and_then(FreshnessRecord::new),
            bridge: capture.state().map(Bridge::new),
            meta: section(&snapshot.meta, Meta::new),
            devices: section(&snapshot.devices, |entries| entries.iter().map(|entry| Device::new(capture, entry)).collect()),
            processes: section(&snapshot.processes, |entries| entries.iter().map(|entry| Process::new(capture, entry)).collect()),
            process_devices: section(&snapshot.process_devices, |entries| {
                entries.iter().map(|entry| ProcessDevice::new(capture, entry)).collect()
            }),
            errors: capture.failures().map(|error| MapError { map: error.map(), message: chain(error) }).collect(),
        }
    }
}

fn section<T, U>(part: &Result<T, Error>, describe: impl FnOnce(&T) -> U) -> Section<U> {
    match part {
        Ok(content) => Some(Some(describe(content))),
        Err(Error::NotAskedFor { .. }) => None,
        Err(_) => Some(None),
    }
}

#[derive(Serialize)]
struct MapError {
    map: &'static str,
    message: String,
}

#[derive(Serialize)]
struct FreshnessRecord {
    state: &'static str,
    age_ns: Option<u64>,
}

impl FreshnessRecord {
    /// None where it cannot be told.
    fn new(freshness: Freshness) -> Option<Self> {
        let (state, age) = match freshness {
            Freshness::NeverPublished => ("never_published", None),
            Freshness::Fresh { age } => ("fresh", Some(age)),
            Freshness::Stale { age } => ("stale", Some(age)),
            _ => return None,
        };
        Some(Self { state, age_ns: age.map(nanoseconds) })
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
struct Bridge {
    phase: &'static str,
    source: &'static str,
    invented: bool,
    helper_pid: u32,
    poll_interval_ns: Option<u64>,
    started_boottime_ns: u64,
    rounds: u64,
    late_ticks: u64,
    skipped_ticks: u64,
    processes_left_out: u32,
    driver_version: Option<String>,
    bridge_version: Option<String>,
}

impl Bridge {
    fn new(state: &BridgeState) -> Self {
        let record = state.record();
        Self {
            phase: match state.phase() {
                Phase::Starting => "starting",
                Phase::Publishing => "publishing",
                Phase::Waiting => "waiting",
                Phase::Idle => "idle",
                Phase::Stopping => "stopping",
                _ => "unknown",
            },
            source: match state.source() {
                Source::None => "none",
                Source::Real => "real",
                Source::Mock => "mock",
                Source::MockFallback => "mock_fallback",
                _ => "unknown",
            },
            invented: state.source().is_invented(),
            helper_pid: record.helper_pid,
            poll_interval_ns: state.poll_interval().map(nanoseconds),
            started_boottime_ns: record.started_boottime_ns,
            rounds: record.rounds,
            late_ticks: record.late_ticks,
            skipped_ticks: record.skipped_ticks,
            processes_left_out: record.processes_left_out,
            driver_version: known(state.driver_version()),
            bridge_version: known(state.bridge_version()),
        }
    }
}

fn known(text: impl Into<String>) -> Option<String> {
    Some(text.into()).filter(|text| !text.is_empty())
}

#[derive(Serialize)]
struct Meta {
    schema_version: u32,
    n_devices: u32,
    last_update_boottime_ns: u64,
    helper_pid: u32,
    clock_offset_ns: i64,
}

impl Meta {
    fn new(record: &GpuMeta) -> Self {
        let GpuMeta { schema_version, n_devices, last_update_boottime_ns, helper_pid, _reserved: _, clock_offset_ns } = *record;
        Self { schema_version, n_devices, last_update_boottime_ns, helper_pid, clock_offset_ns }
    }
}

/// A code and what it stands for.
#[derive(Serialize)]
struct Coded<T, N> {
    code: T,
    #[serde(flatten)]
    named: N,
}

#[derive(Serialize)]
struct Names {
    names: Vec<String>,
}

#[derive(Serialize)]
struct Name {
    name: Option<&'static str>,
}

#[derive(Serialize)]
struct Device<'a> {
    index: u32,
    uuid: Option<String>,
    pci_bus_id: Option<String>,
    name: Option<String>,
    vendor_id: Option<u32>,
    vendor: Option<&'static str>,
    state: Option<&'a str>,
    timestamp_ns: u64,
    sample_age_ns: Option<u64>,
    sm_util_pct: Option<u32>,
    mem_util_pct: Option<u32>,
    mem_total: Option<u64>,
    mem_used: Option<u64>,
    mem_reserved: Option<u64>,
    temp_c: Option<u32>,
    power_mw: Option<u32>,
    sm_clock_mhz: Option<u32>,
    mem_clock_mhz: Option<u32>,
    throttle_reasons: Option<Coded<u64, Names>>,
    pcie_tx_kbps: Option<u64>,
    pcie_rx_kbps: Option<u64>,
    enc_util_pct: Option<u32>,
    dec_util_pct: Option<u32>,
    nvlink_tx_kbps: Option<u64>,
    nvlink_rx_kbps: Option<u64>,
    ecc_corrected_total: Option<u64>,
    ecc_uncorrected_total: Option<u64>,
    fan_speed_pct: Option<u32>,
    compute_mode: Option<Coded<u32, Name>>,
}

impl Device<'_> {
    fn new(capture: &Capture, &(index, ref record): &(u32, GpuDeviceMetrics)) -> Self {
        let reported = Reported { capture, index };
        let described = capture.device_state(index);
        let vendor_id = described.map(|device| device.record().vendor_id).filter(|&id| id != 0);
        Self {
            index,
            uuid: described.and_then(|device| known(device.uuid())),
            pci_bus_id: described.and_then(|device| known(device.pci_bus_id())),
            name: described.and_then(|device| known(device.name())),
            vendor_id,
            vendor: vendor_id.and_then(decode::vendor),
            state: described.map(|device| match device.phase() {
                DevicePhase::Absent => "absent",
                DevicePhase::Answering => "answering",
                DevicePhase::Late => "late",
                DevicePhase::Lost => "lost",
                _ => "unknown",
            }),
            timestamp_ns: record.timestamp_ns,
            sample_age_ns: capture.sample_age(record.timestamp_ns).map(nanoseconds),
            sm_util_pct: reported.value(Metric::SmUtilPct, record.sm_util_pct),
            mem_util_pct: reported.value(Metric::MemUtilPct, record.mem_util_pct),
            mem_total: reported.value(Metric::MemTotal, record.mem_total),
            mem_used: reported.value(Metric::MemUsed, record.mem_used),
            mem_reserved: reported.value(Metric::MemReserved, record.mem_reserved),
            temp_c: reported.value(Metric::TempC, record.temp_c),
            power_mw: reported.value(Metric::PowerMw, record.power_mw),
            sm_clock_mhz: reported.value(Metric::SmClockMhz, record.sm_clock_mhz),
            mem_clock_mhz: reported.value(Metric::MemClockMhz, record.mem_clock_mhz),
            throttle_reasons: reported
                .value(Metric::ThrottleReasons, record.throttle_reasons)
                .map(|code| Coded { code, named: Names { names: decode::throttle_reasons(code) } }),
            pcie_tx_kbps: reported.value(Metric::PcieTxKbps, record.pcie_tx_kbps),
            pcie_rx_kbps: reported.value(Metric::PcieRxKbps, record.pcie_rx_kbps),
            enc_util_pct: reported.value(Metric::EncUtilPct, record.enc_util_pct),
            dec_util_pct: reported.value(Metric::DecUtilPct, record.dec_util_pct),
            nvlink_tx_kbps: reported.value(Metric::NvlinkTxKbps, record.nvlink_tx_kbps),
            nvlink_rx_kbps: reported.value(Metric::NvlinkRxKbps, record.nvlink_rx_kbps),
            ecc_corrected_total: reported.value(Metric::EccCorrectedTotal, record.ecc_corrected_total),
            ecc_uncorrected_total: reported.value(Metric::EccUncorrectedTotal, record.ecc_uncorrected_total),
            fan_speed_pct: reported.value(Metric::FanSpeedPct, record.fan_speed_pct),
            compute_mode: reported
                .value(Metric::ComputeMode, record.compute_mode)
                .map(|code| Coded { code, named: Name { name: decode::compute_mode(code) } }),
        }
    }
}

struct Reported<'a> {
    capture: &'a Capture,
    index: u32,
}

impl Reported<'_> {
    fn value<T>(&self, metric: Metric, value: T) -> Option<T> {
        self.capture.reports(self.index, metric).then_some(value)
    }
}

/// `timestamp_ns` and figures of a sample; null as long as there was none.
#[derive(Serialize)]
struct Process {
    pid: u32,
    used_gpu_memory_total: u64,
    timestamp_ns: Option<u64>,
    sample_age_ns: Option<u64>,
    sm_util_pct_max: Option<u32>,
    mem_util_pct_max: Option<u32>,
    /// Null: several.
    gpu_device_primary: Option<u8>,
    device_count: u8,
}

impl Process {
    fn new(capture: &Capture, &(pid, ref record): &(u32, GpuPidMetricsAggregated)) -> Self {
        let sampled = record.timestamp_ns != 0;
        Self {
            pid,
            used_gpu_memory_total: record.used_gpu_memory_total,
            timestamp_ns: sampled.then_some(record.timestamp_ns),
            sample_age_ns: capture.sample_age(record.timestamp_ns).map(nanoseconds),
            sm_util_pct_max: sampled.then_some(record.sm_util_pct_max),
            mem_util_pct_max: sampled.then_some(record.mem_util_pct_max),
            gpu_device_primary: Some(record.gpu_device_primary).filter(|&device| device != GPU_DEVICE_PRIMARY_MULTI),
            device_count: record.device_count,
        }
    }
}

#[derive(Serialize)]
struct ProcessDevice {
    pid: u32,
    gpu_device: u32,
    mig_instance: u8,
    used_gpu_memory: u64,
    timestamp_ns: Option<u64>,
    sample_age_ns: Option<u64>,
    sm_util_pct: Option<u32>,
    mem_util_pct: Option<u32>,
    enc_util_pct: Option<u32>,
    dec_util_pct: Option<u32>,
}

impl ProcessDevice {
    fn new(capture: &Capture, &(key, ref record): &(PidDeviceKey, GpuPidMetrics)) -> Self {
        let sampled = record.timestamp_ns != 0;
        Self {
            pid: key.pid(),
            gpu_device: key.device(),
            mig_instance: record.mig_instance,
            used_gpu_memory: record.used_gpu_memory,
            timestamp_ns: sampled.then_some(record.timestamp_ns),
            sample_age_ns: capture.sample_age(record.timestamp_ns).map(nanoseconds),
            sm_util_pct: sampled.then_some(record.sm_util_pct),
            mem_util_pct: sampled.then_some(record.mem_util_pct),
            enc_util_pct: sampled.then_some(record.enc_util_pct),
            dec_util_pct: sampled.then_some(record.dec_util_pct),
        }
    }
}
