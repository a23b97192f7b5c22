//! Threads that never stay where they are.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use map_publisher::cpu::CpuMask;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Moves the calling thread from CPU to CPU.
#[derive(Debug)]
pub(crate) struct Wanderer {
    cpus: Vec<usize>,
    next: usize,
}

impl Wanderer {
    /// For the calling thread, over the CPUs that it may use now.
    pub(crate) fn new(start: usize) -> Result<Self> {
        Ok(Self { cpus: cpus()?, next: start })
    }

    /// Binds the thread to another CPU than before, when there is one.
    pub(crate) fn step(&mut self) -> Result<()> {
        // A step without a common divisor with most numbers of CPUs: neighbours are not visited one after the other.
        self.next = (self.next + 7) % self.cpus.len();
        move_to(self.cpus[self.next])
    }
}

/// The CPUs that the calling thread may use, ascending.
pub(crate) fn cpus() -> Result<Vec<usize>> {
    Ok(CpuMask::current().context("cannot tell the CPUs")?.cpus().collect())
}

/// Binds the calling thread to this CPU.
pub(crate) fn move_to(cpu: usize) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &one).context("cannot move to another CPU")
}

/// Runs `work` while `count` other threads wander about and call `meanwhile` wherever they come.
pub(crate) fn among_wanderers<T>(count: usize, meanwhile: impl Fn() + Sync, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let wanderers: Vec<_> = (0..count)
            .map(|start| {
                let (done, meanwhile) = (&done, &meanwhile);
                scope.spawn(move || -> Result<()> {
                    let mut wanderer = Wanderer::new(start)?;
                    while !done.load(Ordering::Relaxed) {
                        wanderer.step()?;
                        meanwhile();
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                })
            })
            .collect();
        let result = work();
        done.store(true, Ordering::Relaxed);
        for wanderer in wanderers {
            wanderer.join().map_err(|_| anyhow::anyhow!("a wandering thread panicked"))??;
        }
        result
    })
}
