//! Processes that behave as GPU programs do towards the kernel: bursts on a CPU, then waiting.

use std::ffi::CString;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::prctl;
use nix::sys::signal::Signal;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name that the kernel shows for this process
    name: String,
    /// Milliseconds on the CPU
    burst_ms: u64,
    /// Milliseconds of waiting
    rest_ms: u64,
}

/// Works until it is ended, or until its parent ends.
///
/// # Errors
/// When the kernel refuses the name.
pub(crate) fn run(args: &Args) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie this process to its parent")?;
    prctl::set_name(&CString::new(args.name.as_str())?).context("cannot set this process's name")?;
    loop {
        let end = Instant::now() + Duration::from_millis(args.burst_ms);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_millis(args.rest_ms));
    }
}
