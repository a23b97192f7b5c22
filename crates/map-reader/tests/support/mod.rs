//! A BPF file system of the test's own, and maps in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_types::bytes::Record;
use gpu_types::maps::{DEVICE, META, MapDefinition, PER_PID, PER_PID_PER_DEVICE, STATE};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use test_support::Bpffs;

/// A BPF file system of the test's own.
pub struct PinDir(Bpffs);

impl PinDir {
    /// An empty one that anybody may look into.
    #[track_caller]
    pub fn empty() -> Self {
        Self(Bpffs::mount())
    }

    /// One with all maps of the contract and the bridge's own.
    #[track_caller]
    pub fn full() -> (Self, Maps) {
        let pins = Self::empty();
        let [meta, device, per_pid, per_pid_per_device, state] =
            [META, DEVICE, PER_PID, PER_PID_PER_DEVICE, STATE].map(|definition| pins.create(&definition));
        (pins, Maps { meta, device, per_pid, per_pid_per_device, state })
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn pin(&self, name: &str) -> PathBuf {
        self.0.pin(name)
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.pin(name)).expect("removing a pin");
    }

    /// Creates and pins a map.
    #[track_caller]
    pub fn create(&self, definition: &MapDefinition) -> MapHandle {
        self.create_as(MapType::from(definition.kind.bpf_type()), definition)
    }

    /// Creates and pins a map of another type than its definition says.
    #[track_caller]
    pub fn create_as(&self, map_type: MapType, definition: &MapDefinition) -> MapHandle {
        let options =
            bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, map_flags: definition.flags, ..Default::default() };
        let MapDefinition { name, key_size, value_size, max_entries, .. } = *definition;
        let mut map = MapHandle::create(map_type, Some(name), key_size, value_size, max_entries, &options)
            .expect("creating a BPF map: this test must run as root");
        map.pin(self.pin(name)).expect("pinning a map");
        map
    }
}

/// Binds the calling thread to one CPU, the same for every caller, as the bridge's writer is: writers that move about lose entries of LRU maps
/// on machines with many CPUs.
#[track_caller]
pub fn bind_to_one_cpu() {
    let this_thread = Pid::from_raw(0);
    let allowed = sched_getaffinity(this_thread).expect("the CPUs of this thread");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).expect("a CPU");
    let mut one = CpuSet::new();
    one.set(first).expect("a CPU's number");
    sched_setaffinity(this_thread, &one).expect("binding a thread to a CPU");
}

/// Sets its flag when it goes out of scope, which ends a thread that watches it.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The maps, writable.
pub struct Maps {
    pub meta: MapHandle,
    pub device: MapHandle,
    pub per_pid: MapHandle,
    pub per_pid_per_device: MapHandle,
    pub state: MapHandle,
}

#[track_caller]
pub fn put(map: &MapHandle, key: impl Record, value: impl Record) {
    map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).expect("updating a map");
}

/// Writes entries in one system call.
#[track_caller]
pub fn put_all<K: Record, V: Record>(map: &MapHandle, keys: &[K], values: &[V]) {
    let (key_bytes, value_bytes) = (K::slice_as_bytes(keys), V::slice_as_bytes(values));
    map.update_batch(key_bytes, value_bytes, keys.len() as u32, MapFlags::ANY, MapFlags::ANY).expect("updating a map");
}
