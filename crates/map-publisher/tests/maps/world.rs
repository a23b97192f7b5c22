//! What the tests do again and again: open, make records, look into maps as a consumer does.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gpu_types::bytes::Record;
use gpu_types::maps::MapDefinition;
use gpu_types::{
    GPU_SCHEMA_VERSION, GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated, keys::PidDeviceKey, maps,
};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use map_publisher::{Options, PublishError, Publisher, Records};
use nix::time::{ClockId, clock_gettime};

pub(crate) const FIVE: [&str; 5] = ["gpu_bridge_state", "gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"];

pub(crate) fn now_boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

pub(crate) fn options(dir: &Path) -> Options {
    Options::new(dir, std::process::id(), now_boottime_ns())
}

#[track_caller]
pub(crate) fn open(dir: &Path) -> Publisher {
    Publisher::open(&options(dir)).unwrap_or_else(|error| panic!("{}", text(&error)))
}

#[track_caller]
pub(crate) fn refusal(dir: &Path) -> String {
    text(&Publisher::open(&options(dir)).expect_err("it should have been refused"))
}

/// An error with its causes, as the command line prints it.
pub(crate) fn text(error: &PublishError) -> String {
    map_publisher::chain(error)
}

/// A round in which every value is `number`; each process uses device 0.
pub(crate) fn round(number: u64, pids: impl IntoIterator<Item = u32>) -> Records {
    let mut records = Records {
        meta: GpuMeta {
            schema_version: GPU_SCHEMA_VERSION,
            n_devices: 2,
            last_update_boottime_ns: number,
            helper_pid: std::process::id(),
            clock_offset_ns: 5,
            ..GpuMeta::default()
        },
        ..Records::default()
    };
    for device in &mut records.devices[..2] {
        *device = GpuDeviceMetrics { timestamp_ns: number, mem_used: number, ..GpuDeviceMetrics::default() };
    }
    for pid in pids {
        records.processes.push((pid, process(number)));
        records.process_devices.push((PidDeviceKey::new(pid, 0).into(), on_device(number)));
    }
    records
}

pub(crate) fn process(number: u64) -> GpuPidMetricsAggregated {
    GpuPidMetricsAggregated { timestamp_ns: number, used_gpu_memory_total: number, device_count: 1, ..Default::default() }
}

pub(crate) fn on_device(number: u64) -> GpuPidMetrics {
    GpuPidMetrics { timestamp_ns: number, used_gpu_memory: number, ..Default::default() }
}

/// A map as a consumer opens it.
#[track_caller]
pub(crate) fn pinned(dir: &Path, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn id(map: &MapHandle) -> u32 {
    map.info().unwrap().info.id
}

pub(crate) fn ids(dir: &Path) -> Vec<u32> {
    FIVE.iter().map(|name| id(&pinned(dir, name))).collect()
}

pub(crate) fn get<K: Record, V: Record>(map: &MapHandle, key: K) -> Option<V> {
    map.lookup(key.as_bytes(), MapFlags::ANY).unwrap().map(|bytes| V::from_bytes(&bytes).unwrap())
}

pub(crate) fn put<K: Record, V: Record>(map: &MapHandle, key: K, value: V) {
    map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
}

/// All entries, read one by one.
pub(crate) fn all<K: Record + Ord, V: Record>(map: &MapHandle) -> BTreeMap<K, V> {
    map.keys().filter_map(|key| K::from_bytes(&key)).filter_map(|key| Some((key, get(map, key)?))).collect()
}

/// What all four maps hold, in the form of a round.
pub(crate) fn published(dir: &Path) -> Records {
    contents(&["gpu_meta", "gpu_device", "gpu_per_pid", "gpu_per_pid_per_device"].map(|name| pinned(dir, name)))
}

/// The same for maps that are held open: meta, device, processes, processes by device.
pub(crate) fn contents([meta, device, processes, process_devices]: &[MapHandle; 4]) -> Records {
    Records {
        meta: get(meta, 0u32).unwrap(),
        devices: std::array::from_fn(|index| get(device, index as u32).unwrap()),
        processes: all(processes).into_iter().collect(),
        process_devices: all(process_devices).into_iter().collect(),
    }
}

#[track_caller]
pub(crate) fn check_published(dir: &Path, expected: &Records) {
    assert_same(&published(dir), expected);
}

#[track_caller]
fn assert_same(found: &Records, expected: &Records) {
    fn short<T: Debug>(list: &[T]) -> String {
        format!("{} entries, first {:?}, last {:?}", list.len(), list.first(), list.last())
    }
    assert_eq!(found.meta, expected.meta);
    assert_eq!(found.devices, expected.devices);
    assert!(found.processes == expected.processes, "processes: {} expected: {}", short(&found.processes), short(&expected.processes));
    assert!(
        found.process_devices == expected.process_devices,
        "by device: {} expected: {}",
        short(&found.process_devices),
        short(&expected.process_devices)
    );
}

pub(crate) fn state(dir: &Path) -> GpuBridgeState {
    get(&pinned(dir, maps::GPU_BRIDGE_STATE), 0u32).unwrap()
}

/// A map that a consumer creates and pins.
pub(crate) fn consumer_map(dir: &Path, definition: MapDefinition) -> MapHandle {
    let options =
        bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, map_flags: definition.flags, ..bpf_map_create_opts::default() };
    let MapDefinition { kind, key_size, value_size, max_entries, .. } = definition;
    let kind = MapType::from(kind.bpf_type());
    let mut map = MapHandle::create(kind, Some("consumers"), key_size, value_size, max_entries, &options).unwrap();
    map.pin(dir.join(definition.name)).unwrap();
    map
}

/// The example program, copied to where any user may run it.
pub(crate) fn example(dir: &Path) -> PathBuf {
    let built = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/publish");
    let copy = dir.join("publish");
    // Not by this process: a child that another thread forks meanwhile would hold the copy open for writing, and it could not be run.
    assert!(
        Command::new("cp").arg(&built).arg(&copy).status().unwrap().success(),
        "{}: built by cargo test without --test",
        built.display()
    );
    copy
}

/// A process that does nothing until it is killed at the end of the test.
pub(crate) struct Idle(pub(crate) Child);

impl Idle {
    pub(crate) fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
