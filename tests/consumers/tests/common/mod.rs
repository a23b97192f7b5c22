//! Records as contract.md lays them out, written by hand: these tests share no code with the bridge.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::path::Path;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};

pub(crate) const DEVICE_BYTES: usize = 128;
pub(crate) const PROCESS_BYTES: usize = 32;
pub(crate) const PROCESS_DEVICE_BYTES: usize = 40;
pub(crate) const META_BYTES: usize = 32;

/// A record under construction: values at offsets, everything else zero.
#[derive(Debug, Clone)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes])
    }

    pub(crate) fn u8(self, offset: usize, value: u8) -> Self {
        self.put(offset, &[value])
    }

    pub(crate) fn u32(self, offset: usize, value: u32) -> Self {
        self.put(offset, &value.to_le_bytes())
    }

    pub(crate) fn u64(self, offset: usize, value: u64) -> Self {
        self.put(offset, &value.to_le_bytes())
    }

    pub(crate) fn i64(self, offset: usize, value: i64) -> Self {
        self.put(offset, &value.to_le_bytes())
    }

    fn put(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }
}

/// A device of which only the time and its utilization matter.
pub(crate) fn device(timestamp_ns: u64, sm_util_pct: u32) -> Record {
    Record::new(DEVICE_BYTES).u64(0, timestamp_ns).u32(8, sm_util_pct)
}

pub(crate) fn process(timestamp_ns: u64, memory: u64, sm_pct: u32, mem_pct: u32, primary: u8, devices: u8) -> Record {
    Record::new(PROCESS_BYTES).u64(0, timestamp_ns).u64(8, memory).u32(16, sm_pct).u32(20, mem_pct).u8(24, primary).u8(25, devices)
}

pub(crate) fn process_device(memory: u64, device: u8) -> Record {
    Record::new(PROCESS_DEVICE_BYTES).u64(8, memory).u8(32, device)
}

/// `last_update` in boot time; `clock_offset_ns` = real time − boot time.
pub(crate) fn meta(last_update: Duration, clock_offset_ns: i64) -> Record {
    Record::new(META_BYTES)
        .u32(0, 1)
        .u32(4, 2)
        .u64(8, last_update.as_nanos().try_into().unwrap())
        .u32(16, std::process::id())
        .i64(24, clock_offset_ns)
}

pub(crate) fn open(pin_dir: &Path, map: &str) -> MapHandle {
    MapHandle::from_pinned_path(pin_dir.join(map)).unwrap_or_else(|error| panic!("{map} is not pinned: {error}"))
}

#[track_caller]
pub(crate) fn write(pin_dir: &Path, map: &str, key: impl Key, record: &Record) {
    open(pin_dir, map).update(&key.bytes(), &record.0, MapFlags::ANY).unwrap();
}

pub(crate) fn write_meta(pin_dir: &Path, record: &Record) {
    write(pin_dir, "gpu_meta", 0_u32, record);
}

pub(crate) fn process_device_key(pid: u32, device: u32) -> u64 {
    (u64::from(pid) << 32) | u64::from(device)
}

pub(crate) trait Key {
    fn bytes(self) -> Vec<u8>;
}

impl Key for u32 {
    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Key for u64 {
    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

pub(crate) fn boottime() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap())
}
