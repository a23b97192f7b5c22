//! The child's end: lanes whose rounds are written to the parent's pipe.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::dup2_stdout,
};
use telemetry::TelemetrySource;

use super::{Event, LaneSampler, Sampler, frame::Encoder};
use crate::{SamplerError, clock::Clock, wait::wait_until};

/// How a child samples.
#[derive(Debug)]
pub struct RelayOptions {
    /// Time between ticks.
    pub poll_interval: Duration,
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
}

/// The whole life of a sampling child process: opens `source`, writes what it says to standard output, and ends when standard input is
/// closed or the parent dies. To be called first thing in `main`, before any other thread: it arranges signals and standard output for the
/// whole process.
///
/// # Errors
/// When the pipe to the parent fails for another reason than its end.
pub fn relay(source: &mut dyn TelemetrySource, options: &RelayOptions) -> Result<(), SamplerError> {
    let mut output = arrange_process()?;
    let mut encoder = Encoder::default();
    let mut sampler = LaneSampler::start(source, options.poll_interval, &options.clock)?;
    while wait(&sampler)? {
        loop {
            let (message, last) = match sampler.receive()? {
                Event::Nothing => break,
                Event::Round => (encoder.round(sampler.round()), false),
                Event::Opened(opened) => (encoder.opened(&opened), false),
                Event::OpenFailed(error) => (encoder.open_failed(&error), true),
                Event::SourceGone(what) => (encoder.source_gone(&what), true),
            };
            match output.write_all(message) {
                Ok(()) if last => return Ok(()),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(source) => return Err(SamplerError::Io { doing: "write to the publisher's pipe", source }),
            }
        }
    }
    Ok(())
}

/// Ties the process to its parent and keeps the pipe out of the reach of a library that prints.
fn arrange_process() -> Result<File, SamplerError> {
    let failed = |doing| move |errno: Errno| SamplerError::Io { doing, source: errno.into() };
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("ask to die with the parent"))?;
    // A signal to the whole control group is the parent's business, which ends its child in good order.
    let parents = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];
    SigSet::from_iter(parents).thread_block().map_err(failed("block signals"))?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(|source| SamplerError::Io { doing: "take the pipe", source })?;
    dup2_stdout(io::stderr()).map_err(failed("redirect standard output"))?;
    Ok(File::from(output))
}

/// Waits for the sampler; false when the parent is gone.
fn wait(sampler: &LaneSampler) -> Result<bool, SamplerError> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(sampler.as_fd(), PollFlags::POLLIN), PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    wait_until(&mut fds, sampler.deadline()).map_err(|source| SamplerError::Io { doing: "wait for the lanes", source })?;
    // The parent never writes: whatever is on standard input, it is its end.
    Ok(!fds[1].any().unwrap_or(false))
}
