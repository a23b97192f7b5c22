//! Threads that keep a CPU busy while the GPU of their process has nothing to do.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};

use crate::Error;
use crate::ring::{Ring, text, u32_at, u64_at};
use crate::skeleton::starvation::GpuStarvationSkelBuilder;

const PROGRAM: &str = "gpu_starvation";

/// When a thread is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// It was on its CPU for at least this long.
    pub on_cpu: Duration,
    /// The GPU had been idle for at least this long.
    pub idle: Duration,
    /// A GPU below this utilization is idle.
    pub idle_below_pct: u32,
    /// Data older than this is not believed.
    pub stale_ms: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { on_cpu: Duration::from_millis(1), idle: Duration::from_secs(1), idle_below_pct: 5, stale_ms: 300 }
    }
}

/// A thread left its CPU while its GPU was starving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starvation {
    /// `CLOCK_BOOTTIME` at which the thread left the CPU.
    pub boottime_ns: u64,
    /// How long it had been there.
    pub on_cpu: Duration,
    /// How long the GPU had been idle, counted from the first sample that said so.
    pub idle: Duration,
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// GPU memory of the process.
    pub gpu_memory_bytes: u64,
    /// The device.
    pub device: u32,
    /// The device's utilization.
    pub device_sm_util_pct: u32,
}

/// The attached program.
#[derive(Debug)]
pub struct Starvations {
    _link: Link,
    ring: Ring<Starvation>,
}

impl Starvations {
    /// Watches the processes that hold memory of exactly one GPU according to the maps in `pin_dir`.
    pub fn attach(pin_dir: &Path, thresholds: &Thresholds) -> Result<Self, Error> {
        let load_error = |source| Error::Load { program: PROGRAM, pin_dir: pin_dir.to_owned(), source };
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let mut builder = GpuStarvationSkelBuilder::default();
        builder.object_builder_mut().pin_root_path(pin_dir).map_err(load_error)?;
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let mut open = builder.open(&mut object).map_err(load_error)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.stale_threshold_ms = thresholds.stale_ms;
            rodata.min_on_cpu_ns = nanoseconds(thresholds.on_cpu);
            rodata.min_idle_ns = nanoseconds(thresholds.idle);
            rodata.idle_below_pct = thresholds.idle_below_pct;
        }
        let skeleton = open.load().map_err(load_error)?;
        let ring = Ring::new(PROGRAM, &skeleton.maps.starvations, decode)?;
        let link = skeleton.progs.on_switch.attach().map_err(|source| Error::Attach { program: PROGRAM, source })?;
        Ok(Self { _link: link, ring })
    }

    /// What was seen since the last call; waits up to `timeout` for the first.
    pub fn poll(&self, timeout: Duration) -> Result<Vec<Starvation>, Error> {
        self.ring.poll(timeout)
    }
}

/// `struct starvation` of `bpf/gpu_starvation.bpf.c`.
fn decode(bytes: &[u8]) -> Option<Starvation> {
    Some(Starvation {
        boottime_ns: u64_at(bytes, 0)?,
        on_cpu: Duration::from_nanos(u64_at(bytes, 8)?),
        idle: Duration::from_nanos(u64_at(bytes, 16)?),
        gpu_memory_bytes: u64_at(bytes, 24)?,
        tgid: u32_at(bytes, 32)?,
        tid: u32_at(bytes, 36)?,
        device: u32_at(bytes, 40)?,
        device_sm_util_pct: u32_at(bytes, 44)?,
        comm: text(bytes.get(48..64)?),
    })
}
