//! Keeps the publishing thread on one CPU.
//!
//! An LRU map parks free entries at the CPU that writes. A writer that wanders over many CPUs scatters them until an update of a live entry pushes
//! another live one out. One thread that stays on one CPU, the same after every restart, loses nothing (up to
//! [`gpu_types::maps::PID_PUBLISH_LIMIT`] entries). So the thread that calls [`crate::Publisher::publish`] first calls [`bind_to_lowest`].

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The CPUs that a thread may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMask(CpuSet);

impl CpuMask {
    /// The mask of the calling thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn current() -> io::Result<Self> {
        Ok(Self(sched_getaffinity(Pid::from_raw(0))?))
    }

    /// Makes this the mask of the calling thread. A child process inherits its mask from the thread that spawns it.
    ///
    /// # Errors
    /// The kernel's: none of these CPUs is left to the thread.
    pub fn apply(&self) -> io::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(0), &self.0)?)
    }

    /// The numbers of the CPUs in it, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CpuSet::count()).filter(|&cpu| self.0.is_set(cpu).unwrap_or(false))
    }
}

/// The calling thread on its one CPU.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Bound {
    /// The CPU.
    pub cpu: usize,
    /// The mask that the thread had before: to [apply](CpuMask::apply) while it spawns something that shall not be bound.
    pub previous: CpuMask,
}

/// Binds the calling thread to the lowest CPU that it may use.
///
/// # Errors
/// The kernel's; the thread's mask is then as it was.
pub fn bind_to_lowest() -> io::Result<Bound> {
    let previous = CpuMask::current()?;
    let cpu = previous.cpus().next().ok_or_else(|| io::Error::other("the thread may use no CPU"))?;
    let mut one = CpuSet::new();
    one.set(cpu)?;
    CpuMask(one).apply()?;
    Ok(Bound { cpu, previous })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_stays_on_the_lowest_cpu_until_its_former_mask_is_applied() {
        std::thread::spawn(|| {
            let before = CpuMask::current().unwrap();
            let lowest = before.cpus().next().unwrap();

            let bound = bind_to_lowest().unwrap();
            assert_eq!((bound.cpu, bound.previous), (lowest, before));
            assert_eq!(CpuMask::current().unwrap().cpus().collect::<Vec<_>>(), [lowest]);
            assert_eq!(nix::sched::sched_getcpu().unwrap(), lowest);

            bound.previous.apply().unwrap();
            assert_eq!(CpuMask::current().unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
