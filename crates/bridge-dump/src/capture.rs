//! One look at the maps: what is wanted of them, and when it was.

use std::time::Duration;

use gpu_types::GpuMeta;
use map_reader::{
    BridgeState, DevicePhase, DeviceState, Error, Freshness, Metric, Reader, Snapshot, boottime_now_ns, default_max_age, sample_age,
};

use crate::{DumpError, Selection, decode};

/// What the maps held at one moment.
#[derive(Debug, Clone)]
pub struct Capture {
    /// What is wanted of it; a map that is not wanted is [`Error::NotAskedFor`].
    pub snapshot: Snapshot,
    /// `CLOCK_BOOTTIME` after the read.
    pub boottime_ns: u64,
    /// `gpu_meta`, also where it is not wanted.
    meta: Option<GpuMeta>,
    /// The devices that are wanted; none stands for all.
    wanted: Vec<u32>,
}

impl Capture {
    /// Reads all maps and keeps what is wanted.
    ///
    /// # Errors
    /// The clock cannot be read. A map that cannot be read is an error in the snapshot.
    pub fn take(reader: &Reader, selection: &Selection) -> Result<Self, DumpError> {
        let mut snapshot = reader.snapshot();
        let boottime_ns = boottime_now_ns().map_err(DumpError::Clock)?;
        let meta = snapshot.meta.as_ref().ok().copied();
        selection.apply(&mut snapshot);
        Ok(Self { snapshot, boottime_ns, meta, wanted: selection.devices.clone() })
    }

    /// What the bridge says of itself; `None` without its map, and when that is another bridge's than `gpu_meta`.
    #[must_use]
    pub fn state(&self) -> Option<&BridgeState> {
        let state = self.snapshot.state.as_ref().ok()?;
        // Before its first round a bridge has not written gpu_meta yet.
        let of_this_bridge = |meta: GpuMeta| meta.last_update_boottime_ns == 0 || meta.helper_pid == state.record().helper_pid;
        self.meta.is_none_or(of_this_bridge).then_some(state)
    }

    /// What the bridge says of device `index`.
    #[must_use]
    pub fn device_state(&self, index: u32) -> Option<DeviceState<'_>> {
        self.state()?.device(index)
    }

    /// Whether device `index` reports `metric`; assumed where the bridge does not say.
    #[must_use]
    pub fn reports(&self, index: u32, metric: Metric) -> bool {
        self.device_state(index).is_none_or(|device| device.reports(metric))
    }

    /// The vendor's name of device `index`; `None` where the bridge does not say, or the vendor is none that this version knows.
    #[must_use]
    pub fn vendor(&self, index: u32) -> Option<&'static str> {
        self.device_state(index).and_then(|device| decode::vendor(device.record().vendor_id))
    }

    /// The devices that do not answer and whose slots are therefore empty, as far as they are wanted.
    pub fn lost(&self) -> impl Iterator<Item = u32> {
        let devices = self.state().into_iter().flat_map(BridgeState::devices);
        let lost = devices.filter(|device| device.phase() == DevicePhase::Lost).map(|device| device.index());
        lost.filter(|&index| self.wanted.is_empty() || self.wanted.contains(&index))
    }

    /// How old the newest round is, against the larger of a second and three poll intervals; `None` without `gpu_meta`.
    #[must_use]
    pub fn freshness(&self) -> Option<Freshness> {
        let max_age = default_max_age(self.state().and_then(BridgeState::poll_interval));
        self.meta.map(|meta| Freshness::of(&meta, self.boottime_ns, max_age))
    }

    /// Time since the sample with this `timestamp_ns`; `None` when there is none.
    #[must_use]
    pub fn sample_age(&self, timestamp_ns: u64) -> Option<Duration> {
        sample_age(timestamp_ns, &self.meta?, self.boottime_ns)
    }

    /// Why wanted maps of the contract are not there.
    pub fn failures(&self) -> impl Iterator<Item = &Error> {
        let Snapshot { meta, devices, processes, process_devices, .. } = &self.snapshot;
        let errors = [meta.as_ref().err(), devices.as_ref().err(), processes.as_ref().err(), process_devices.as_ref().err()];
        errors.into_iter().flatten().filter(|error| !matches!(error, Error::NotAskedFor { .. }))
    }
}
