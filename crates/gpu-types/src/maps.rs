//! What the maps are: names, types, sizes, room. A pin that differs in any of it is not ours.

mod difference;

pub use difference::{Attribute, Difference, MapShape};

use crate::keys::PidDeviceKey;
use crate::{GPU_BRIDGE_PID_ENTRIES, GPU_MAX_DEVICES, GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

/// Freshness and clock offset: key 0, value [`GpuMeta`]. Written last in every round.
pub const GPU_META: &str = "gpu_meta";
/// Device index to [`GpuDeviceMetrics`].
pub const GPU_DEVICE: &str = "gpu_device";
/// Host PID to [`GpuPidMetricsAggregated`].
pub const GPU_PER_PID: &str = "gpu_per_pid";
/// [`PidDeviceKey`] to [`GpuPidMetrics`].
pub const GPU_PER_PID_PER_DEVICE: &str = "gpu_per_pid_per_device";
/// The bridge's own state: key 0, value [`GpuBridgeState`]. Additive; no consumer of the other four needs it.
pub const GPU_BRIDGE_STATE: &str = "gpu_bridge_state";

/// `max_entries` of the two per-process maps.
pub const PID_CAPACITY: u32 = GPU_BRIDGE_PID_ENTRIES;

/// The most entries that a bridge publishes in a per-process map. An LRU update takes a free node before it finds the old one, and the kernel parks
/// 128 free nodes at the CPU that writes: beyond this number, rewriting a full map evicts live entries.
pub const PID_PUBLISH_LIMIT: u32 = PID_CAPACITY - 128;

/// `BPF_F_MMAPABLE` of `linux/bpf.h`: the map can be mapped into memory.
pub const BPF_F_MMAPABLE: u32 = 1 << 10;

/// The kinds of map in use. The contract fixes them, so matches may be exhaustive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// `BPF_MAP_TYPE_ARRAY`: every key from 0 to `max_entries - 1` is always there.
    Array,
    /// `BPF_MAP_TYPE_LRU_HASH`: a full map drops the entries that were not used for the longest time.
    LruHash,
}

impl MapKind {
    /// The number of the kind in the kernel's `enum bpf_map_type`.
    pub const fn bpf_type(self) -> u32 {
        match self {
            Self::Array => 2,
            Self::LruHash => 9,
        }
    }
}

/// One map, as it must be when it is created and when it is adopted. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapDefinition {
    /// Its name, and the file name of its pin.
    pub name: &'static str,
    /// Its type.
    pub kind: MapKind,
    /// The size of a key.
    pub key_size: u32,
    /// The size of a value.
    pub value_size: u32,
    /// How many entries fit.
    pub max_entries: u32,
    /// `map_flags`.
    pub flags: u32,
}

/// All maps: the contract's four, in the order in which the contract lists them, then the bridge's own.
pub const MAPS: &[MapDefinition] = &[META, DEVICE, PER_PID, PER_PID_PER_DEVICE, STATE];

/// The definition of `gpu_meta`.
pub const META: MapDefinition = define::<u32, GpuMeta>(GPU_META, MapKind::Array, 1, 0);
/// The definition of `gpu_device`.
pub const DEVICE: MapDefinition = define::<u32, GpuDeviceMetrics>(GPU_DEVICE, MapKind::Array, GPU_MAX_DEVICES, 0);
/// The definition of `gpu_per_pid`.
pub const PER_PID: MapDefinition = define::<u32, GpuPidMetricsAggregated>(GPU_PER_PID, MapKind::LruHash, PID_CAPACITY, 0);
/// The definition of `gpu_per_pid_per_device`.
pub const PER_PID_PER_DEVICE: MapDefinition =
    define::<PidDeviceKey, GpuPidMetrics>(GPU_PER_PID_PER_DEVICE, MapKind::LruHash, PID_CAPACITY, 0);
/// The definition of `gpu_bridge_state`.
pub const STATE: MapDefinition = define::<u32, GpuBridgeState>(GPU_BRIDGE_STATE, MapKind::Array, 1, BPF_F_MMAPABLE);

const fn define<K, V>(name: &'static str, kind: MapKind, max_entries: u32, flags: u32) -> MapDefinition {
    MapDefinition { name, kind, key_size: size_of::<K>() as u32, value_size: size_of::<V>() as u32, max_entries, flags }
}
