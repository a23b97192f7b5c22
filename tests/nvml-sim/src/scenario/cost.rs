//! What calls cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    abi,
    symbols::{Symbol, matching},
};

/// How a call spends its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostMode {
    /// Asleep, without disturbing other threads. The last 100 µs are spun, because a sleep is late by about half of that.
    #[default]
    Sleep,
    /// On the CPU.
    Spin,
    /// As [`CostMode::Sleep`], holding a lock that every call takes, as drivers do.
    OneLock,
}

/// What calls cost, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// How it is spent.
    pub mode: CostMode,
    /// A call that is not named below.
    pub other_us: u64,
    /// By symbol; with a `*` at its end, all that begin so. An exact name goes before a pattern.
    pub calls: BTreeMap<String, u64>,
    /// A field value that is neither named below nor unsupported; on top of the call.
    pub other_field_us: u64,
    /// By field id.
    pub fields: BTreeMap<u32, u64>,
    /// A field value that is not supported, named or not.
    pub unsupported_field_us: u64,
}

impl Costs {
    /// The costs that were measured and published for an RTX 5090 with driver 610. Where a range was published, its middle. For what was
    /// not measured: MPS and detailed lists as the compute list, utilization of all processes as the older call, the sample buffer and
    /// NVLink's counters as PCIe's counters.
    pub fn published(mode: CostMode) -> Self {
        let calls = [
            ("nvmlInit*", 4_000),
            ("nvmlDeviceGetHandleByIndex*", 6_000),
            ("nvmlDeviceGetMemoryInfo*", 3),
            ("nvmlDeviceGetComputeRunningProcesses*", 200),
            ("nvmlDeviceGetGraphicsRunningProcesses*", 130),
            ("nvmlDeviceGetMPSComputeRunningProcesses*", 200),
            ("nvmlDeviceGetRunningProcessDetailList", 200),
            ("nvmlDeviceGetFanSpeed*", 400),
            ("nvmlDeviceGetProcessUtilization", 1_700),
            ("nvmlDeviceGetProcessesUtilizationInfo", 1_700),
            ("nvmlDeviceGetPcieThroughput", 21_000),
            ("nvmlDeviceGetTotalEnergyConsumption", 3_000),
            ("nvmlDeviceGetSamples", 300),
        ];
        let fields = [
            (abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 300),
            (abi::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 300),
            (abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 300),
            (abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 300),
            (abi::NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 300),
            (abi::NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 300),
            (abi::NVML_FI_DEV_POWER_AVERAGE, 3_000),
            (abi::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 3_000),
        ];
        Self {
            mode,
            other_us: 1,
            calls: calls.into_iter().map(|(call, us)| (call.to_owned(), us)).collect(),
            other_field_us: 1,
            fields: fields.into_iter().collect(),
            unsupported_field_us: 1_200,
        }
    }

    /// The same with another cost for a call.
    #[must_use]
    pub fn call(mut self, call: &str, us: u64) -> Self {
        self.calls.insert(call.to_owned(), us);
        self
    }

    /// What a call costs in microseconds, where a device has costs of its own: each under the symbol's name, or under the longest pattern
    /// that it matches.
    pub(crate) fn of_call(&self, symbol: Symbol, own: &BTreeMap<String, u64>) -> u64 {
        find(own, symbol).or_else(|| find(&self.calls, symbol)).unwrap_or(self.other_us)
    }

    /// What a field value costs in microseconds, on top of its call.
    pub(crate) fn of_field(&self, id: u32, is_supported: bool) -> u64 {
        if is_supported { self.fields.get(&id).copied().unwrap_or(self.other_field_us) } else { self.unsupported_field_us }
    }
}

fn find(costs: &BTreeMap<String, u64>, symbol: Symbol) -> Option<u64> {
    let named = costs.get(symbol.name());
    named.or_else(|| costs.iter().filter(|(call, _)| matching(call, symbol)).max_by_key(|(call, _)| call.len()).map(|(_, us)| us)).copied()
}
