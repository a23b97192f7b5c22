//! The open maps and their typed reads.

use std::path::{Path, PathBuf};
use std::time::Instant;

use gpu_types::bytes::Record;
use gpu_types::keys::{PidDeviceKey, SINGLE};
use gpu_types::maps::{self, MapDefinition};
use gpu_types::{
    GPU_BRIDGE_STATE_VERSION, GPU_MAX_DEVICES, GPU_SCHEMA_VERSION, GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics,
    GpuPidMetricsAggregated,
};
use libbpf_rs::MapHandle;

use crate::entries::{entries, lookup};
use crate::freshness::unknown_schema;
use crate::open::{OpenMap, open};
use crate::snapshot::settled;
use crate::{BridgeState, Consistency, Error};

/// The maps that a bridge publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Map {
    /// `gpu_meta`: freshness and the clocks' offset.
    Meta,
    /// `gpu_device`: a record for each GPU.
    Device,
    /// `gpu_per_pid`: a record for each process, over all its GPUs.
    PerPid,
    /// `gpu_per_pid_per_device`: a record for each process and GPU.
    PerPidPerDevice,
    /// `gpu_bridge_state`: what the bridge says of itself. Bridges need not have it.
    State,
}

impl Map {
    /// All maps: the contract's four in its order, then the bridge's own.
    pub const ALL: &[Self] = &[Self::Meta, Self::Device, Self::PerPid, Self::PerPidPerDevice, Self::State];
    /// The four of the contract, in its order. It fixes them, so there will be no more.
    pub const CONTRACT: [Self; 4] = [Self::Meta, Self::Device, Self::PerPid, Self::PerPidPerDevice];

    /// What the map must be.
    #[must_use]
    pub const fn definition(self) -> &'static MapDefinition {
        match self {
            Self::Meta => &maps::META,
            Self::Device => &maps::DEVICE,
            Self::PerPid => &maps::PER_PID,
            Self::PerPidPerDevice => &maps::PER_PID_PER_DEVICE,
            Self::State => &maps::STATE,
        }
    }

    /// The map's name, which is also its pin's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.definition().name
    }
}

/// In which order entries are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// As they stand in the map: no order, and another one after every restart of the bridge.
    Unsorted,
    /// By PID ascending, then by device.
    ByKey,
}

/// The maps of one pin directory, opened read-only.
///
/// It holds the maps as they were when it was opened: a bridge that unpins them and pins new ones is followed with [`Reader::reopen`].
/// Every read is a system call or a few; nothing is cached. It is `Send` and `Sync`.
///
/// Of what schema version the records are, `gpu_meta` alone says: [`Reader::meta`], what waits for rounds, and [`Reader::snapshot`] refuse records
/// of another version than this crate's. Reads of single maps look at nothing but their map.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    /// In the order of `Map::ALL`.
    maps: Vec<Result<OpenMap, Error>>,
    /// When the pins were last looked at.
    pub(crate) looked: Instant,
}

impl Reader {
    /// Opens all maps in `dir`. This itself cannot fail: each map has its own result, see [`Reader::status`].
    #[must_use]
    pub fn open(dir: impl AsRef<Path>) -> Self {
        Self::open_only(dir, Map::ALL)
    }

    /// Opens only `wanted`; reads of the others are [`Error::NotAskedFor`].
    ///
    /// ```no_run
    /// use map_reader::{Map, Reader};
    ///
    /// let reader = Reader::open_only("/sys/fs/bpf", &[Map::Meta, Map::PerPid]);
    /// match reader.process(4711)? {
    ///     Some(process) => println!("it holds {} bytes", process.used_gpu_memory_total),
    ///     None => println!("it uses no GPU"),
    /// }
    /// # Ok::<(), map_reader::Error>(())
    /// ```
    #[must_use]
    pub fn open_only(dir: impl AsRef<Path>, wanted: &[Map]) -> Self {
        let dir = dir.as_ref();
        let open = |map: &Map| match wanted.contains(map) {
            true => open(dir, map.definition()),
            false => Err(Error::NotAskedFor { map: map.name() }),
        };
        Self { dir: dir.to_owned(), maps: Map::ALL.iter().map(open).collect(), looked: Instant::now() }
    }

    /// The pin directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens anew what is not open, and what is no longer the map that is pinned: after a bridge has restarted and made new maps, or the
    /// first one has started. Whether anything changed. A map whose pin is gone is no longer open.
    pub fn reopen(&mut self) -> bool {
        self.looked = Instant::now();
        let mut changed = false;
        for (slot, map) in self.maps.iter_mut().zip(Map::ALL) {
            if matches!(slot, Err(Error::NotAskedFor { .. })) {
                continue;
            }
            let pinned = open(&self.dir, map.definition());
            changed |= match (&*slot, &pinned) {
                (Ok(held), Ok(pinned)) => held.id != pinned.id,
                (Err(_), Err(_)) => false,
                _ => true,
            };
            *slot = pinned;
        }
        changed
    }

    /// The kernel's id of the open map: the same as long as the map is the same, whatever happens to its pin.
    ///
    /// # Errors
    /// The map is not open.
    pub fn map_id(&self, map: Map) -> Result<u32, Error> {
        self.maps[map as usize].as_ref().map(|open| open.id).map_err(Clone::clone)
    }

    /// Whether `map` is open, and if not, why.
    ///
    /// # Errors
    /// What opening it failed with.
    pub fn status(&self, map: Map) -> Result<(), Error> {
        self.handle(map).map(drop)
    }

    /// The `gpu_meta` record: all zeros when nothing was published since the map was created.
    ///
    /// # Errors
    /// The map is not open, the kernel refused the read, or the bridge writes records of another schema version ([`Error::UnknownVersion`]): then
    /// no record in any of the maps may be interpreted.
    pub fn meta(&self) -> Result<GpuMeta, Error> {
        // An array always has its entries.
        let meta: GpuMeta = self.lookup(Map::Meta, SINGLE)?.unwrap_or_default();
        match unknown_schema(&meta) {
            None => Ok(meta),
            Some(found) => Err(Error::UnknownVersion { map: Map::Meta.name(), expected: GPU_SCHEMA_VERSION, found }),
        }
    }

    /// The record of device `index`; `None` when the slot is empty, whether for want of such a device or of an answer from it.
    ///
    /// # Errors
    /// The map is not open, or the kernel refused the read.
    pub fn device(&self, index: u32) -> Result<Option<GpuDeviceMetrics>, Error> {
        let slot: Option<GpuDeviceMetrics> = self.lookup(Map::Device, index)?;
        Ok(slot.filter(|record| record.timestamp_ns != 0))
    }

    /// The records of all devices by index, empty slots (`timestamp_ns` 0) left out.
    ///
    /// # Errors
    /// The map is not open, or the kernel refused a read.
    pub fn devices(&self) -> Result<Vec<(u32, GpuDeviceMetrics)>, Error> {
        self.status(Map::Device)?;
        let mut devices = Vec::new();
        for index in 0..GPU_MAX_DEVICES {
            devices.extend(self.device(index)?.map(|record| (index, record)));
        }
        Ok(devices)
    }

    /// The record of host process `pid` (its tgid) over all its GPUs; `None` when it uses none.
    ///
    /// # Errors
    /// The map is not open, or the kernel refused the read.
    pub fn process(&self, pid: u32) -> Result<Option<GpuPidMetricsAggregated>, Error> {
        self.lookup(Map::PerPid, pid)
    }

    /// The records of all processes over all their GPUs, with the host PID.
    ///
    /// # Errors
    /// The map is not open, the kernel refused the read, or the entries did not hold still for it.
    pub fn processes(&self, order: Order) -> Result<Vec<(u32, GpuPidMetricsAggregated)>, Error> {
        self.entries(Map::PerPid, order)
    }

    /// The record of one process on one GPU; `None` when it does not use it.
    ///
    /// # Errors
    /// The map is not open, or the kernel refused the read.
    pub fn process_device(&self, key: PidDeviceKey) -> Result<Option<GpuPidMetrics>, Error> {
        self.lookup(Map::PerPidPerDevice, key)
    }

    /// The records of all processes on each of their GPUs.
    ///
    /// # Errors
    /// The map is not open, the kernel refused the read, or the entries did not hold still for it.
    pub fn process_devices(&self, order: Order) -> Result<Vec<(PidDeviceKey, GpuPidMetrics)>, Error> {
        self.entries(Map::PerPidPerDevice, order)
    }

    /// What the bridge says of itself, read between rounds if that can be had in a few attempts: see [`BridgeState::is_consistent`].
    ///
    /// # Errors
    /// The map is not open ([`Error::is_absent`] when there is none), was never written, is of an unknown version, or the kernel refused the
    /// read.
    pub fn state(&self) -> Result<BridgeState, Error> {
        let (record, consistency) = settled(|| self.sequence(), || self.state_record());
        Ok(BridgeState::new(record?, consistency == Consistency::Verified))
    }

    pub(crate) fn state_record(&self) -> Result<GpuBridgeState, Error> {
        let record: GpuBridgeState = self.lookup(Map::State, SINGLE)?.unwrap_or_default();
        match record.version {
            GPU_BRIDGE_STATE_VERSION => Ok(record),
            0 => Err(Error::NeverWritten { map: Map::State.name() }),
            found => Err(Error::UnknownVersion { map: Map::State.name(), expected: GPU_BRIDGE_STATE_VERSION, found }),
        }
    }

    /// The bridge's sequence counter; `None` when there is none to go by.
    pub(crate) fn sequence(&self) -> Option<u64> {
        self.state_record().ok().map(|record| record.sequence)
    }

    fn handle(&self, map: Map) -> Result<&MapHandle, Error> {
        self.maps[map as usize].as_ref().map(|open| &open.handle).map_err(Clone::clone)
    }

    fn lookup<K: Record, V: Record + Default>(&self, map: Map, key: K) -> Result<Option<V>, Error> {
        lookup(self.handle(map)?, map.name(), key)
    }

    fn entries<K: Record + Ord, V: Record>(&self, map: Map, order: Order) -> Result<Vec<(K, V)>, Error> {
        let mut entries = entries::<K, V>(self.handle(map)?, map.definition())?;
        if order == Order::ByKey {
            entries.sort_unstable_by_key(|(key, _)| *key);
        }
        Ok(entries)
    }
}
