//! Processes that end, with the GPU memory that they held.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use crate::ring::{Ring, text, u32_at, u64_at};
use crate::skeleton::exits::GpuExitsSkelBuilder;
use crate::{Error, primary_device};

const PROGRAM: &str = "gpu_exits";
const SIGNAL_MASK: u32 = 0x7F;

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// By itself, with this status.
    Status(u8),
    /// This signal killed it.
    Signal(u32),
    /// The kernel was out of memory, or its memory cgroup was.
    OutOfMemory,
}

/// The end of a process that used a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuExit {
    /// `CLOCK_BOOTTIME` of its end.
    pub boottime_ns: u64,
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// The name of its last thread.
    pub comm: String,
    /// The GPU memory that it held over all its devices.
    pub gpu_memory_bytes: u64,
    /// The device, when there is exactly one.
    pub device: Option<u8>,
    /// Why it ended.
    pub reason: Reason,
}

/// The attached program.
#[derive(Debug)]
pub struct Exits {
    _link: Link,
    ring: Ring<GpuExit>,
}

impl Exits {
    /// Watches processes that hold GPU memory, while the data of the maps in `pin_dir` is at most `stale_threshold_ms` old.
    pub fn attach(pin_dir: &Path, stale_threshold_ms: u64) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let mut builder = GpuExitsSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let mut open = builder.open(&mut object).map_err(load_error)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.stale_threshold_ms = stale_threshold_ms;
        }
        let skeleton = open.load().map_err(load_error)?;
        let ring = Ring::new(PROGRAM, &skeleton.maps.exits, decode)?;
        let link = skeleton.progs.on_exit.attach().map_err(|source| Error::Attach { program: PROGRAM, source })?;
        Ok(Self { _link: link, ring })
    }

    /// What has ended since the last call; waits up to `timeout` for the first.
    pub fn poll(&self, timeout: Duration) -> Result<Vec<GpuExit>, Error> {
        self.ring.poll(timeout)
    }
}

/// `struct gpu_exit` of `bpf/gpu_exits.bpf.c`.
fn decode(bytes: &[u8]) -> Option<GpuExit> {
    let (code, oom) = (u32_at(bytes, 20)?, *bytes.get(25)? != 0);
    Some(GpuExit {
        boottime_ns: u64_at(bytes, 0)?,
        gpu_memory_bytes: u64_at(bytes, 8)?,
        tgid: u32_at(bytes, 16)?,
        device: primary_device(*bytes.get(24)?),
        comm: text(bytes.get(32..48)?),
        reason: match (oom, code & SIGNAL_MASK) {
            (true, _) => Reason::OutOfMemory,
            (false, 0) => Reason::Status((code >> 8) as u8),
            (false, signal) => Reason::Signal(signal),
        },
    })
}
