//! Calls of a library's function, each with what the GPU was doing: a uprobe.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject, UprobeOpts};

use crate::ring::{Ring, text, u32_at, u64_at};
use crate::skeleton::launches::GpuLaunchesSkelBuilder;
use crate::{Error, primary_device};

const PROGRAM: &str = "gpu_launches";
const ALL_PROCESSES: i32 = -1;

/// One call by a process that uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// `CLOCK_BOOTTIME` of the call.
    pub boottime_ns: u64,
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// GPU memory of the process.
    pub gpu_memory_bytes: u64,
    /// The process's own utilization.
    pub sm_util_pct: u32,
    /// Utilization of its device; 0 when it uses several.
    pub device_sm_util_pct: u32,
    /// Why the device's clocks are held down, NVML's bit mask; 0 when the process uses several.
    pub throttle_reasons: u64,
    /// The device, when there is exactly one.
    pub device: Option<u8>,
}

/// The attached program.
#[derive(Debug)]
pub struct Launches {
    _link: Link,
    ring: Ring<Launch>,
}

impl Launches {
    /// Watches calls of `function` in the shared library (or program) `library`, by any process, while the data of the maps in `pin_dir` is at
    /// most `stale_threshold_ms` old.
    pub fn attach(pin_dir: &Path, stale_threshold_ms: u64, library: &Path, function: &str) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let mut builder = GpuLaunchesSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let mut open = builder.open(&mut object).map_err(load_error)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.stale_threshold_ms = stale_threshold_ms;
        }
        let skeleton = open.load().map_err(load_error)?;
        let ring = Ring::new(PROGRAM, &skeleton.maps.launches, decode)?;
        let options = UprobeOpts { func_name: Some(function.to_owned()), ..UprobeOpts::default() };
        let link = skeleton
            .progs
            .on_launch
            .attach_uprobe_with_opts(ALL_PROCESSES, library, 0, options)
            .map_err(|source| Error::Attach { program: PROGRAM, source })?;
        Ok(Self { _link: link, ring })
    }

    /// What has been called since the last call; waits up to `timeout` for the first.
    pub fn poll(&self, timeout: Duration) -> Result<Vec<Launch>, Error> {
        self.ring.poll(timeout)
    }
}

/// `struct launch` of `bpf/gpu_launches.bpf.c`.
fn decode(bytes: &[u8]) -> Option<Launch> {
    Some(Launch {
        boottime_ns: u64_at(bytes, 0)?,
        gpu_memory_bytes: u64_at(bytes, 8)?,
        throttle_reasons: u64_at(bytes, 16)?,
        tgid: u32_at(bytes, 24)?,
        sm_util_pct: u32_at(bytes, 28)?,
        device_sm_util_pct: u32_at(bytes, 32)?,
        device: primary_device(*bytes.get(36)?),
        comm: text(bytes.get(40..56)?),
    })
}
