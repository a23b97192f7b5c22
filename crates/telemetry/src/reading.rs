//! What one device reports.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Stamp;

/// Everything that is known of one device. A lane keeps one and has its device's answers written into it, so a field holds its newest
/// answer until the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The device's own figures.
    pub metrics: Metrics,
    /// When the source sampled the utilization in [`Metrics`], if it says so.
    pub sampled: Option<Stamp>,
    /// The processes that use the device, each PID at most once per MIG instance.
    pub processes: Vec<Process>,
    /// How often new utilization samples of processes have been seen to appear.
    pub process_sample_period: Option<Duration>,
    /// Calls that failed since the source was opened, each kind once: for people to look at, not for deciding anything.
    pub failures: Vec<Failures>,
}

impl Reading {
    /// Becomes a copy of `other` in the memory that it already has. Whether its processes, by far the most of it, were others before.
    pub fn copy_from(&mut self, other: &Self) -> bool {
        self.copy_all_but_processes_from(other);
        let is_change = self.processes != other.processes;
        if is_change {
            self.processes.clear();
            self.processes.extend_from_slice(&other.processes);
        }
        is_change
    }

    /// The same when the processes are known to be equal.
    pub fn copy_all_but_processes_from(&mut self, other: &Self) {
        let Self { metrics, sampled, processes: _, process_sample_period, failures } = self;
        *metrics = other.metrics;
        *sampled = other.sampled;
        *process_sample_period = other.process_sample_period;
        failures.clone_from(&other.failures);
    }
}

/// A device's own figures. `None`: the source does not report it, which is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Share of time in which a kernel ran, 0–100.
    pub sm_util_pct: Option<u32>,
    /// Share of time in which device memory was read or written, 0–100.
    pub mem_util_pct: Option<u32>,
    /// Device memory.
    pub memory: Option<Memory>,
    /// Core temperature in °C.
    pub temp_c: Option<u32>,
    /// Power drawn, in milliwatts.
    pub power_mw: Option<u32>,
    /// SM clock in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Memory clock in MHz.
    pub mem_clock_mhz: Option<u32>,
    /// NVML's clocks-event-reasons bit mask, unknown bits kept.
    pub throttle_reasons: Option<u64>,
    /// PCIe bytes sent, in kB/s.
    pub pcie_tx_kbps: Option<u64>,
    /// PCIe bytes received, in kB/s.
    pub pcie_rx_kbps: Option<u64>,
    /// Encoder utilization, 0–100.
    pub enc_util_pct: Option<u32>,
    /// Decoder utilization, 0–100.
    pub dec_util_pct: Option<u32>,
    /// NVLink data sent over all links, in kB/s.
    pub nvlink_tx_kbps: Option<u64>,
    /// NVLink data received over all links, in kB/s.
    pub nvlink_rx_kbps: Option<u64>,
    /// Corrected ECC errors since boot.
    pub ecc_corrected_total: Option<u64>,
    /// Uncorrected ECC errors since boot.
    pub ecc_uncorrected_total: Option<u64>,
    /// Fan speed, 0–100.
    pub fan_speed_pct: Option<u32>,
    /// NVML's `nvmlComputeMode_t`.
    pub compute_mode: Option<u32>,
}

/// How often one kind of call failed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The source's name for the call.
    pub call: String,
    /// Since the source was opened.
    pub count: u64,
}

impl Clone for Failures {
    fn clone(&self) -> Self {
        Self { call: self.call.clone(), count: self.count }
    }

    /// In the memory that it already has, unlike a derived one.
    fn clone_from(&mut self, other: &Self) {
        self.call.clone_from(&other.call);
        self.count = other.count;
    }
}

impl Metrics {
    /// These, and `other`'s where one is absent.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            sm_util_pct: self.sm_util_pct.or(other.sm_util_pct),
            mem_util_pct: self.mem_util_pct.or(other.mem_util_pct),
            memory: self.memory.or(other.memory),
            temp_c: self.temp_c.or(other.temp_c),
            power_mw: self.power_mw.or(other.power_mw),
            sm_clock_mhz: self.sm_clock_mhz.or(other.sm_clock_mhz),
            mem_clock_mhz: self.mem_clock_mhz.or(other.mem_clock_mhz),
            throttle_reasons: self.throttle_reasons.or(other.throttle_reasons),
            pcie_tx_kbps: self.pcie_tx_kbps.or(other.pcie_tx_kbps),
            pcie_rx_kbps: self.pcie_rx_kbps.or(other.pcie_rx_kbps),
            enc_util_pct: self.enc_util_pct.or(other.enc_util_pct),
            dec_util_pct: self.dec_util_pct.or(other.dec_util_pct),
            nvlink_tx_kbps: self.nvlink_tx_kbps.or(other.nvlink_tx_kbps),
            nvlink_rx_kbps: self.nvlink_rx_kbps.or(other.nvlink_rx_kbps),
            ecc_corrected_total: self.ecc_corrected_total.or(other.ecc_corrected_total),
            ecc_uncorrected_total: self.ecc_uncorrected_total.or(other.ecc_uncorrected_total),
            fan_speed_pct: self.fan_speed_pct.or(other.fan_speed_pct),
            compute_mode: self.compute_mode.or(other.compute_mode),
        }
    }
}

/// Device memory in bytes; free = total − used − reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// In use, without what is reserved.
    pub used_bytes: u64,
    /// Held by driver and firmware.
    pub reserved_bytes: u64,
}

/// A process on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Host PID (tgid); never 0.
    pub pid: u32,
    /// The MIG GPU instance in which it runs.
    pub mig_instance: Option<u8>,
    /// Device memory that it holds, in bytes.
    pub used_memory_bytes: Option<u64>,
    /// Its newest utilization sample, however old; who publishes it decides how long it counts.
    pub utilization: Option<ProcessUtilization>,
}

/// A process's utilization sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUtilization {
    /// When the source took the sample.
    pub sampled: Stamp,
    /// Share of time in which its kernels ran, 0–100.
    pub sm_pct: u32,
    /// Share of time in which it read or wrote device memory, 0–100.
    pub mem_pct: u32,
    /// Encoder, 0–100.
    pub enc_pct: u32,
    /// Decoder, 0–100.
    pub dec_pct: u32,
}
