//! The five maps, each with what is known of its contents.

use gpu_types::bytes::Record;
use gpu_types::{GPU_BRIDGE_STOPPING, GPU_MAX_DEVICES, GpuBridgeState, GpuDeviceMetrics, GpuMeta, keys, maps};
use libbpf_rs::{MapCore, MapFlags};

use crate::PublishError;
use crate::ledger::Ledger;
use crate::pin::Pin;
use crate::read::Contents;
use crate::state::SharedState;
use crate::write::{Failed, delete, upsert};
use crate::writer::read_single;

const SLOTS: usize = GPU_MAX_DEVICES as usize;

/// `gpu_meta`.
#[derive(Debug)]
pub(crate) struct MetaMap {
    pub(crate) pin: Pin,
    /// What the map is known to hold: ours, or an earlier bridge's. None: nothing was ever published in it.
    held: Option<GpuMeta>,
}

impl MetaMap {
    pub(crate) fn new(pin: Pin) -> Self {
        let held = read_single::<GpuMeta>(&pin.map).filter(|meta| meta.last_update_boottime_ns != 0);
        Self { pin, held }
    }

    pub(crate) fn held(&self) -> Option<GpuMeta> {
        self.held
    }

    pub(crate) fn write(&mut self, meta: &GpuMeta) -> Result<(), PublishError> {
        let result = self.pin.map.update(keys::SINGLE.as_bytes(), meta.as_bytes(), MapFlags::ANY);
        result.map_err(|source| entries(&self.pin, "write", Failed { failed: 1, attempted: 1, source }))?;
        self.held = Some(*meta);
        Ok(())
    }
}

/// `gpu_device`.
#[derive(Debug)]
pub(crate) struct DeviceMap {
    pub(crate) pin: Pin,
    /// What the map is known to hold.
    written: Option<[GpuDeviceMetrics; SLOTS]>,
}

impl DeviceMap {
    const KEYS: [u32; SLOTS] = {
        let mut keys = [0; SLOTS];
        let mut index = 0;
        while index < SLOTS {
            keys[index] = index as u32;
            index += 1;
        }
        keys
    };

    pub(crate) fn new(pin: Pin) -> Self {
        Self { pin, written: None }
    }

    /// Writes the slots from the first to the last that the map is not known to hold.
    pub(crate) fn write(&mut self, slots: &[GpuDeviceMetrics; SLOTS]) -> Result<(), PublishError> {
        let differs = |index: &usize| self.written.is_none_or(|written| written[*index] != slots[*index]);
        let (Some(first), Some(last)) = ((0..SLOTS).find(differs), (0..SLOTS).rfind(differs)) else { return Ok(()) };
        self.written = None;
        let written = upsert(&self.pin.map, &Self::KEYS[first..=last], &slots[first..=last]);
        written.map_err(|failed| entries(&self.pin, "write", failed))?;
        self.written = Some(*slots);
        Ok(())
    }

    /// Empties all slots.
    pub(crate) fn clear(&mut self) -> Result<(), PublishError> {
        self.write(&[GpuDeviceMetrics::default(); SLOTS])
    }

    /// Others may have written there: the next write is not left out.
    pub(crate) fn forget(&mut self) {
        self.written = None;
    }
}

/// One of the two per-process maps.
#[derive(Debug)]
pub(crate) struct ProcessMap<K, V> {
    pub(crate) pin: Pin,
    ledger: Ledger<K, V>,
    contents: Contents<K, V>,
}

impl<K: Record + Ord + Default, V: Record + PartialEq + Default> ProcessMap<K, V> {
    /// Whatever the map holds will go with the first round that does not contain it.
    pub(crate) fn new(pin: Pin) -> Self {
        let mut map = Self { pin, ledger: Ledger::new(), contents: Contents::new() };
        map.read();
        map
    }

    /// Takes what the map holds for what is known of it.
    pub(crate) fn read(&mut self) {
        self.ledger.found(|held| self.contents.read(&self.pin.map, held));
    }

    /// Plans `round` and writes what is new or changed. Where that does not fit beside what departed, the departed go first: a full LRU map would
    /// make room with a living entry.
    pub(crate) fn upsert(&mut self, round: &[(K, V)]) -> Result<(), PublishError> {
        self.ledger.plan(round);
        let room = if self.ledger.peak() > maps::PID_PUBLISH_LIMIT as usize { self.delete() } else { Ok(()) };
        let (keys, values) = self.ledger.upserts();
        let written = upsert(&self.pin.map, keys, values);
        room.and(written.map_err(|failed| entries(&self.pin, "write", failed)))
    }

    /// Deletes what departed, as far as that has not been done.
    pub(crate) fn delete(&mut self) -> Result<(), PublishError> {
        let deleted = delete(&self.pin.map, self.ledger.departed());
        deleted.map_err(|failed| entries(&self.pin, "delete", failed))?;
        self.ledger.departed_are_gone();
        Ok(())
    }

    /// Remembers how `round` went. Returns how many entries were written and deleted.
    pub(crate) fn conclude(&mut self, round: &[(K, V)], complete: bool) -> (usize, usize) {
        if complete {
            self.ledger.settle(round);
        } else {
            self.ledger.doubt();
        }
        self.ledger.counts()
    }

    /// Rewrites every entry of known value as `without_sample` makes it; the others are deleted.
    pub(crate) fn rewrite(&mut self, without_sample: impl Fn(V) -> V) -> Result<(), PublishError> {
        let round: Vec<(K, V)> = self.ledger.known().map(|(key, value)| (key, without_sample(value))).collect();
        let written = self.upsert(&round);
        let result = written.and(self.delete());
        self.conclude(&round, result.is_ok());
        result
    }

    /// Deletes every entry that is known of.
    pub(crate) fn clear(&mut self) -> Result<(), PublishError> {
        self.ledger.plan(&[]);
        let deleted = self.delete();
        self.conclude(&[], deleted.is_ok());
        deleted
    }
}

/// `gpu_bridge_state`.
#[derive(Debug)]
pub(crate) struct StateMap {
    pub(crate) pin: Pin,
    pub(crate) shared: SharedState,
}

impl StateMap {
    pub(crate) fn new(pin: Pin, helper_pid: u32) -> Result<Self, PublishError> {
        match SharedState::open(&pin.map, helper_pid) {
            Ok(shared) => Ok(Self { pin, shared }),
            Err(errno) => {
                let source = libbpf_rs::Error::from(std::io::Error::from(errno));
                Err(PublishError::map("map the memory of", pin.definition.name, pin.path, source))
            }
        }
    }

    /// Goes on in the map of `pin`. To those who hold the old one it says that the bridge has stopped.
    pub(crate) fn move_to(&mut self, pin: Pin) -> Result<(), PublishError> {
        let state: GpuBridgeState = *self.shared.current();
        let mut moved = Self::new(pin, state.helper_pid)?;
        moved.shared.update(|new| *new = state);
        self.shared.update(|old| old.phase = GPU_BRIDGE_STOPPING);
        *self = moved;
        Ok(())
    }
}

fn entries(pin: &Pin, action: &'static str, failed: Failed) -> PublishError {
    let Failed { failed, attempted, source } = failed;
    PublishError::Entries { action, map: pin.definition.name, failed, attempted, source }
}
