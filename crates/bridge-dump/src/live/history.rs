//! What each device reported in the rounds that were seen.

use std::collections::{HashMap, VecDeque};

use bridge_dump::Capture;
use gpu_types::GpuDeviceMetrics;
use map_reader::Metric;

/// More than the widest history drawn.
const KEPT: usize = 256;

/// The figures of one device at one time; `None` where it does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) sm_pct: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_total_bytes: Option<u64>,
    pub(super) temp_c: Option<u64>,
    pub(super) power_mw: Option<u64>,
    pub(super) pcie_kbps: Option<u64>,
    pub(super) nvlink_kbps: Option<u64>,
}

impl Figures {
    pub(super) fn of(capture: &Capture, index: u32, record: &GpuDeviceMetrics) -> Self {
        let reported = |metric, value: u64| capture.reports(index, metric).then_some(value);
        let both = |tx: Option<u64>, rx: Option<u64>| match (tx, rx) {
            (None, None) => None,
            (tx, rx) => Some(tx.unwrap_or(0).saturating_add(rx.unwrap_or(0))),
        };
        Self {
            sm_pct: reported(Metric::SmUtilPct, record.sm_util_pct.into()),
            memory_bytes: reported(Metric::MemUsed, record.mem_used),
            memory_total_bytes: reported(Metric::MemTotal, record.mem_total),
            temp_c: reported(Metric::TempC, record.temp_c.into()),
            power_mw: reported(Metric::PowerMw, record.power_mw.into()),
            pcie_kbps: both(reported(Metric::PcieTxKbps, record.pcie_tx_kbps), reported(Metric::PcieRxKbps, record.pcie_rx_kbps)),
            nvlink_kbps: both(reported(Metric::NvlinkTxKbps, record.nvlink_tx_kbps), reported(Metric::NvlinkRxKbps, record.nvlink_rx_kbps)),
        }
    }
}

/// The histories of all devices.
#[derive(Debug, Default)]
pub(super) struct Histories {
    stamp_ns: u64,
    devices: HashMap<u32, VecDeque<Figures>>,
}

impl Histories {
    /// Takes a capture in, unless it is of the same round as the one before.
    pub(super) fn push(&mut self, capture: &Capture) {
        let snapshot = &capture.snapshot;
        let (Ok(meta), Ok(devices)) = (&snapshot.meta, &snapshot.devices) else { return };
        if std::mem::replace(&mut self.stamp_ns, meta.last_update_boottime_ns) == meta.last_update_boottime_ns {
            return;
        }
        for (index, record) in devices {
            self.devices.entry(*index).or_default();
            if let Some(history) = self.devices.get_mut(index) {
                history.push_back(Figures::of(capture, *index, record));
            }
        }
        for (index, history) in &mut self.devices {
            // A device that is not there leaves a gap.
            if !devices.iter().any(|(present, _)| present == index) {
                history.push_back(Figures::default());
            }
            if history.len() > KEPT {
                history.pop_front();
            }
        }
    }

    /// One figure of device `index`, the newest last.
    pub(super) fn of(
        &self,
        index: u32,
        figure: impl Fn(&Figures) -> Option<u64> + Copy,
    ) -> impl DoubleEndedIterator<Item = Option<u64>> + Clone {
        self.devices.get(&index).into_iter().flatten().map(figure)
    }
}
