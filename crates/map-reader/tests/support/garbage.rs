//! Maps of the right make that hold anything at all.

use gpu_types::bytes::Record;
use gpu_types::keys::PidDeviceKey;
use gpu_types::{
    GPU_BRIDGE_STATE_VERSION, GPU_MAX_DEVICES, GPU_SCHEMA_VERSION, GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics,
    GpuPidMetricsAggregated,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::pins::{Maps, put};

/// How bytes come to be what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Zeros,
    Ones,
    /// Numbers at which arithmetic turns over.
    Bounds,
    /// Bytes that are no UTF-8, no terminating zero.
    NoText,
    /// What a terminal would obey.
    Escapes,
    Noise,
}

impl Form {
    pub const ALL: [Self; 6] = [Self::Zeros, Self::Ones, Self::Bounds, Self::NoText, Self::Escapes, Self::Noise];
}

/// The bytes of one map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub form: Form,
    pub seed: u64,
}

/// The bytes of all maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbage {
    /// `gpu_meta`, `gpu_device`, `gpu_per_pid`, `gpu_per_pid_per_device`, `gpu_bridge_state`.
    pub parts: [Part; 5],
    /// In each of the two maps of processes, at most.
    pub entries: u8,
    /// `gpu_meta` is said to be of the schema that readers know, so that they look at the rest.
    pub known_schema: bool,
    /// `gpu_bridge_state` is said to be of the version that readers know, so that they look at the rest.
    pub known_version: bool,
    /// It is said to be of the same bridge as `gpu_meta`.
    pub same_bridge: bool,
    /// Its sequence counter is odd, for ever.
    pub odd: bool,
}

const BOUNDS: [u64; 12] = [
    0,
    1,
    100,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1_700_000_000_000_000_000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }
}

impl Part {
    fn fill(&self, bytes: &mut [u8]) {
        let mut numbers = Numbers(self.seed);
        for word in bytes.chunks_mut(8) {
            let number = match self.form {
                Form::Zeros => 0,
                Form::Ones => u64::MAX,
                Form::Bounds => BOUNDS[(numbers.next() % BOUNDS.len() as u64) as usize],
                Form::NoText => numbers.next() | 0x8080_8080_8080_8080,
                Form::Escapes => u64::from_le_bytes(*b"\x1b[2J\n\x07\r\x9b"),
                Form::Noise => numbers.next(),
            };
            word.copy_from_slice(&number.to_le_bytes()[..word.len()]);
        }
    }

    fn record<T: Record + Default>(&self) -> T {
        self.records(1)[0]
    }

    fn records<T: Record + Default>(&self, count: usize) -> Vec<T> {
        let mut records = vec![T::default(); count];
        self.fill(T::slice_as_bytes_mut(&mut records));
        records
    }
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    pub meta: GpuMeta,
    pub devices: Vec<GpuDeviceMetrics>,
    pub processes: Vec<(u32, GpuPidMetricsAggregated)>,
    pub process_devices: Vec<(PidDeviceKey, GpuPidMetrics)>,
    pub state: GpuBridgeState,
}

impl Garbage {
    /// Some garbage or other.
    pub fn of(seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let part = |number: u64| Part { form: Form::ALL[(number % Form::ALL.len() as u64) as usize], seed: number };
        let parts = [(); 5].map(|()| part(numbers.next()));
        let bits = numbers.next();
        let bit = |number: u32| bits & (1 << number) != 0;
        Self {
            parts,
            entries: (bits >> 32) as u8 % 9,
            known_schema: bit(5) || bit(6),
            known_version: bit(0),
            same_bridge: bit(1),
            odd: bit(2) && bit(3) && bit(4),
        }
    }

    /// Puts it into the maps in place of what is there.
    pub fn write(&self, maps: &Maps) -> Written {
        let [meta, devices, processes, process_devices, state] = &self.parts;
        let mut meta: GpuMeta = meta.record();
        if self.known_schema {
            meta.schema_version = GPU_SCHEMA_VERSION;
        }
        put(&maps.meta, 0_u32, meta);

        let devices: Vec<GpuDeviceMetrics> = devices.records(GPU_MAX_DEVICES as usize);
        (0..).zip(&devices).for_each(|(index, device): (u32, _)| put(&maps.device, index, *device));

        let processes = replace(&maps.per_pid, processes, self.entries);
        let process_devices = replace(&maps.per_pid_per_device, process_devices, self.entries);

        let mut state: GpuBridgeState = state.record();
        state.sequence = state.sequence & !1 | u64::from(self.odd);
        if self.known_version {
            state.version = GPU_BRIDGE_STATE_VERSION;
        }
        if self.same_bridge {
            state.helper_pid = meta.helper_pid;
        }
        put(&maps.state, 0_u32, state);
        Written { meta, devices, processes, process_devices, state }
    }
}

impl Written {
    /// Whether the records are of the schema that readers know, or nobody has said yet of which they are.
    pub fn is_of_known_schema(&self) -> bool {
        let GpuMeta { schema_version, last_update_boottime_ns, .. } = self.meta;
        schema_version == GPU_SCHEMA_VERSION || (schema_version == 0 && last_update_boottime_ns == 0)
    }
}

/// Empties a map and puts entries into it; returns them by key.
fn replace<K: Record + Ord + Default, V: Record + Default>(map: &MapHandle, part: &Part, entries: u8) -> Vec<(K, V)> {
    let old: Vec<Vec<u8>> = map.keys().collect();
    for key in old {
        map.delete(&key).expect("deleting an entry");
    }
    let keys: Vec<K> = part.records(entries.into());
    let values: Vec<V> = Part { seed: !part.seed, ..*part }.records(entries.into());
    let mut written = std::collections::BTreeMap::new();
    for (key, value) in keys.into_iter().zip(values) {
        map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).expect("updating a map");
        written.insert(key, value);
    }
    written.into_iter().collect()
}
