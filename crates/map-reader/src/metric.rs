//! Which metrics a device reports: what tells 0 from nothing.

use crate::DeviceState;

/// A field of `gpu_device`'s record that a device reports or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of gpu_device_metrics, by their names")]
#[repr(u32)]
#[non_exhaustive]
pub enum Metric {
    // The position in the record is the bit in `metrics_present`; 0 is timestamp_ns.
    SmUtilPct = 1,
    MemUtilPct,
    MemTotal,
    MemUsed,
    MemReserved,
    TempC,
    PowerMw,
    SmClockMhz,
    MemClockMhz,
    ThrottleReasons,
    PcieTxKbps,
    PcieRxKbps,
    EncUtilPct,
    DecUtilPct,
    NvlinkTxKbps,
    NvlinkRxKbps,
    EccCorrectedTotal,
    EccUncorrectedTotal,
    FanSpeedPct,
    ComputeMode,
}

impl DeviceState<'_> {
    /// Whether the device reports `metric`: if not, the 0 in its record means nothing. A bridge that does not say is taken to report all.
    ///
    /// ```no_run
    /// use map_reader::{Metric, Reader};
    ///
    /// let reader = Reader::open("/sys/fs/bpf");
    /// let state = reader.state()?;
    /// for (index, record) in reader.devices()? {
    ///     let known = state.device(index).is_none_or(|device| device.reports(Metric::FanSpeedPct));
    ///     match known {
    ///         true => println!("GPU {index}: fan at {} %", record.fan_speed_pct),
    ///         false => println!("GPU {index}: no fan"),
    ///     }
    /// }
    /// # Ok::<(), map_reader::Error>(())
    /// ```
    #[must_use]
    pub fn reports(&self, metric: Metric) -> bool {
        match self.record().metrics_present {
            // A bridge sets bit 0, the time, with the first answer.
            0 => true,
            present => present & (1 << metric as u32) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use gpu_types::{GpuBridgeState, GpuDeviceMetrics};

    use super::*;
    use crate::BridgeState;

    #[track_caller]
    fn check(metrics_present: u64, metric: Metric, expected: bool) {
        let mut record = GpuBridgeState { n_devices: 1, ..Default::default() };
        record.devices[0].metrics_present = metrics_present;
        let state = BridgeState::new(record, true);
        assert_eq!(state.devices().next().unwrap().reports(metric), expected);
    }

    #[test]
    fn a_bit_stands_for_the_field_in_its_place() {
        assert!(offset_of!(GpuDeviceMetrics, sm_util_pct) < offset_of!(GpuDeviceMetrics, mem_util_pct));
        check(1 | 1 << 1, Metric::SmUtilPct, true);
        check(1 | 1 << 1, Metric::MemUtilPct, false);
        check(1 | 1 << 6, Metric::TempC, true);
        check(1 | 1 << 20, Metric::ComputeMode, true);
        check(1, Metric::ComputeMode, false);
    }

    #[test]
    fn a_bridge_that_does_not_say_is_believed_in_everything() {
        check(0, Metric::FanSpeedPct, true);
    }
}
