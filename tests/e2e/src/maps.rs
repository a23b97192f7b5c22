//! The pinned maps, as a test that is neither bridge nor consumer handles them.

use std::path::Path;

use gpu_types::bytes::Record;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::Bpffs;

/// The maps of the contract.
pub const CONTRACT_MAPS: [&str; 4] = ["gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"];

/// The kernel's id of the map pinned here; `None` when nothing is.
///
/// # Panics
/// When what is pinned cannot be asked.
#[must_use]
pub fn map_id(pin: &Path) -> Option<u32> {
    let map = pin.exists().then(|| open(pin))?;
    Some(map.info().unwrap_or_else(|error| panic!("cannot ask {}: {error}", pin.display())).info.id)
}

/// The ids of the contract's maps, in the order of [`CONTRACT_MAPS`].
#[must_use]
pub fn map_ids(pins: &Bpffs) -> [Option<u32>; 4] {
    CONTRACT_MAPS.map(|map| map_id(&pins.pin(map)))
}

/// Writes an entry.
///
/// # Panics
/// When there is no such map, or it refuses the entry.
#[track_caller]
pub fn write(pins: &Bpffs, map: &str, key: impl Record, value: impl Record) {
    let written = open(&pins.pin(map)).update(key.as_bytes(), value.as_bytes(), MapFlags::ANY);
    written.unwrap_or_else(|error| panic!("cannot write to {map}: {error}"));
}

#[track_caller]
fn open(pin: &Path) -> MapHandle {
    MapHandle::from_pinned_path(pin).unwrap_or_else(|error| panic!("cannot open {}: {error}", pin.display()))
}
