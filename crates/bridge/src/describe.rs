//! `gpu_bridge_state`'s account of sources and devices: a pure function of what is open and of the rounds.

use std::time::Duration;

use gpu_types::{GpuBridgeDevice, GpuBridgeState};
use telemetry::{Identity, Now};

use crate::{
    records::{News, Part, is_held, metrics_present},
    sampler::Opened,
};

/// A source that is, or was, open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'static str,
    /// Where its indices begin.
    pub(crate) first_index: u32,
    pub(crate) opened: &'a Opened,
    pub(crate) is_open: bool,
    /// It has just been opened, or its indices have moved.
    pub(crate) is_new: bool,
}

impl Listed<'_> {
    /// `, driver 550.90.07`, where there is a driver.
    pub(crate) fn driver(&self) -> String {
        self.opened.info.driver_version.as_ref().map(|version| format!(", driver {version}")).unwrap_or_default()
    }

    /// Its devices with the indices that they are published under.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (u32, &Identity)> {
        self.opened.devices.iter().map(|device| (self.first_index.saturating_add(device.index), device))
    }
}

/// Name, UUID and PCI address, as far as they are known.
pub(crate) fn in_words(identity: &Identity) -> String {
    let parts = [identity.name.as_str(), identity.uuid.as_str(), identity.pci_bus_id.as_str()];
    let known: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    known.join(" ")
}

/// Puts down which device is which. A source that is gone keeps its indices, and its devices are lost.
pub(crate) fn list(state: &mut GpuBridgeState, sources: &[Listed<'_>]) {
    let before = state.devices;
    state.devices = [GpuBridgeDevice::default(); gpu_types::GPU_MAX_DEVICES as usize];
    state.n_devices = 0;
    for source in sources {
        for (index, identity) in source.devices() {
            let Some(slot) = state.devices.get_mut(index as usize) else { continue };
            let (before, uuid, pci_bus_id) = (&before[index as usize], text(&identity.uuid), text(&identity.pci_bus_id));
            // While a source is opened anew, records of the devices that it had stand, and so does what they report.
            if may_be_same(&before.uuid, &uuid) && may_be_same(&before.pci_bus_id, &pci_bus_id) {
                *slot = *before;
            }
            slot.uuid = uuid;
            slot.pci_bus_id = pci_bus_id;
            slot.name = text(&identity.name);
            slot.vendor_id = identity.vendor_id;
            if !source.is_open {
                slot.phase = gpu_types::GPU_BRIDGE_DEVICE_LOST;
            }
            state.n_devices = state.n_devices.max(index + 1);
        }
    }
    let mut open = sources.iter().filter(|source| source.is_open).peekable();
    if open.peek().is_some() {
        let versions: Vec<&str> = open.filter_map(|source| source.opened.info.driver_version.as_deref()).collect();
        state.driver_version = text(&versions.join("; "));
    }
}

/// Whether two texts that a device is known by may be the same one's. One that is empty, or ends where it begins, is not known.
pub(crate) fn may_be_same(before: &[u8], now: &[u8]) -> bool {
    let is_known = |text: &[u8]| !matches!(text, [] | [0, ..]);
    before == now || !is_known(before) || !is_known(now)
}

/// Puts down how the devices are. Returns whether one is late.
pub(crate) fn note_devices(state: &mut GpuBridgeState, parts: &[Part<'_>], now: Now, hold: Duration) -> bool {
    let mut late = false;
    for part in parts {
        for (index, device) in part.devices() {
            let Some(slot) = state.devices.get_mut(index as usize) else { continue };
            slot.phase = if part.news == News::InTime && device.answered_boottime_ns >= part.round.started_boottime_ns {
                gpu_types::GPU_BRIDGE_DEVICE_ANSWERING
            } else if is_held(device, now, hold) {
                late = true;
                gpu_types::GPU_BRIDGE_DEVICE_LATE
            } else {
                gpu_types::GPU_BRIDGE_DEVICE_LOST
            };
            slot.metrics_present = metrics_present(&device.reading.metrics);
        }
    }
    late
}

/// Of the devices that there are, those with an index in `indices` are lost.
pub(crate) fn lose(state: &mut GpuBridgeState, indices: std::ops::Range<u32>) {
    for (index, device) in (0..).zip(&mut state.devices) {
        if indices.contains(&index) && device.phase != gpu_types::GPU_BRIDGE_DEVICE_ABSENT {
            device.phase = gpu_types::GPU_BRIDGE_DEVICE_LOST;
        }
    }
}

/// A NUL-terminated text for a C array, cut where it does not fit.
pub(crate) fn text<const N: usize>(value: &str) -> [u8; N] {
    let mut array = [0; N];
    let end = floor_char_boundary(value, N - 1);
    array[..end].copy_from_slice(&value.as_bytes()[..end]);
    array
}

fn floor_char_boundary(value: &str, limit: usize) -> usize {
    (0..=limit.min(value.len())).rev().find(|&end| value.is_char_boundary(end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use telemetry::SourceInfo;

    use super::*;

    fn opened(driver: Option<&str>, vendor_id: u32, devices: u32) -> Opened {
        let identity = |index| Identity { index, uuid: format!("{vendor_id:x}-{index}"), vendor_id, ..Identity::default() };
        let info = SourceInfo { driver_version: driver.map(str::to_owned), ..SourceInfo::default() };
        Opened { info, devices: (0..devices).map(identity).collect() }
    }

    fn listed(first_index: u32, opened: &Opened, is_open: bool, is_new: bool) -> Listed<'_> {
        Listed { name: "any", first_index, opened, is_open, is_new }
    }

    fn vendors(state: &GpuBridgeState) -> Vec<u32> {
        state.devices[..state.n_devices as usize].iter().map(|device| device.vendor_id).collect()
    }

    #[test]
    fn all_open_sources_are_listed_with_their_drivers() {
        let (nvidia, others) = (opened(Some("550.90.07"), 0x10de, 2), opened(Some("amdgpu (6.12.1)"), 0x1002, 1));
        let mut state = GpuBridgeState::default();
        list(&mut state, &[listed(0, &nvidia, true, true)]);
        assert_eq!((vendors(&state), state.driver_version), (vec![0x10de; 2], text("550.90.07")));
        // A gap: the first source had three devices once.
        list(&mut state, &[listed(0, &nvidia, true, false), listed(3, &others, true, true)]);
        assert_eq!((vendors(&state), state.driver_version), (vec![0x10de, 0x10de, 0, 0x1002], text("550.90.07; amdgpu (6.12.1)")));
        // Beyond the slots.
        list(&mut state, &[listed(15, &nvidia, true, true)]);
        assert_eq!((state.n_devices, state.devices[15].vendor_id), (16, 0x10de));
    }

    #[test]
    fn who_is_not_new_keeps_its_devices_phases_and_who_is_gone_has_lost_them() {
        let (first, second) = (opened(Some("1"), 1, 1), opened(Some("2"), 2, 1));
        let mut state = GpuBridgeState::default();
        list(&mut state, &[listed(0, &first, true, true), listed(1, &second, true, true)]);
        state.devices[0].phase = gpu_types::GPU_BRIDGE_DEVICE_ANSWERING;
        state.devices[1].phase = gpu_types::GPU_BRIDGE_DEVICE_ANSWERING;
        list(&mut state, &[listed(0, &first, false, false), listed(1, &second, true, false)]);
        assert_eq!(
            [0, 1].map(|index: usize| state.devices[index].phase),
            [gpu_types::GPU_BRIDGE_DEVICE_LOST, gpu_types::GPU_BRIDGE_DEVICE_ANSWERING]
        );
        assert_eq!((vendors(&state), state.driver_version), (vec![1, 2], text("2")));
        list(&mut state, &[listed(0, &first, false, false), listed(1, &second, false, false)]);
        assert_eq!(state.driver_version, text("2"), "as it was");
    }

    #[test]
    fn a_device_that_is_opened_anew_keeps_its_phase_and_metrics_and_another_in_its_place_does_not() {
        let first = opened(Some("1"), 1, 2);
        let mut second = first.clone();
        second.devices[1].uuid = "another".to_owned();
        let mut state = GpuBridgeState::default();
        list(&mut state, &[listed(0, &first, true, true)]);
        for device in &mut state.devices[..2] {
            (device.phase, device.metrics_present) = (gpu_types::GPU_BRIDGE_DEVICE_ANSWERING, 7);
        }
        list(&mut state, &[listed(0, &second, true, true)]);
        let told = [0, 1].map(|index: usize| (state.devices[index].phase, state.devices[index].metrics_present));
        assert_eq!(told, [(gpu_types::GPU_BRIDGE_DEVICE_ANSWERING, 7), (gpu_types::GPU_BRIDGE_DEVICE_ABSENT, 0)]);
    }

    #[test]
    fn a_text_that_does_not_fit_is_cut_between_characters_and_terminated() {
        assert_eq!(text::<4>("ab"), *b"ab\0\0");
        assert_eq!(text::<4>("abcdef"), *b"abc\0");
        assert_eq!(text::<4>("abé"), *b"ab\0\0");
    }
}
