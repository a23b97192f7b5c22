//! On which CPU what is done, and what a CPU's waking up costs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use map_publisher::cpu::{self, CpuMask};
use nix::poll::ppoll;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;

/// The calling thread on the highest CPU, for as long as this lives: the publishing thread is bound to the lowest.
#[derive(Debug)]
pub(crate) struct AwayFromThePublisher(CpuMask);

impl AwayFromThePublisher {
    pub(crate) fn go() -> Result<Self> {
        let before = CpuMask::current().context("cannot tell on which CPUs this may run")?;
        let mut only = CpuSet::new();
        only.set(before.cpus().last().unwrap_or(0)).context("no such CPU")?;
        sched_setaffinity(Pid::from_raw(0), &only).context("cannot stay on one CPU")?;
        Ok(Self(before))
    }
}

impl Drop for AwayFromThePublisher {
    fn drop(&mut self) {
        // It was so before.
        self.0.apply().ok();
    }
}

/// Waits as the publishing thread does, on its CPU and until the next tick, and does nothing then.
pub(crate) fn idle(interval: Duration) -> Result<()> {
    cpu::bind_to_lowest().context("cannot stay on the lowest CPU")?;
    let mut next = Instant::now();
    loop {
        next += interval;
        let left = TimeSpec::from_duration(next.saturating_duration_since(Instant::now()));
        ppoll(&mut [], Some(left), None).context("cannot wait")?;
    }
}
