//! The child's end: lanes whose rounds are written to the parent's pipe.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::dup2_stdout,
};
use telemetry::TelemetrySource;

use super::{
    DeviceReading,
    board::{Collection, Schedule},
    crew::Crew,
    frame::Encoder,
    wire::Wire,
};
use crate::{SamplerError, clock::Clock, lane::Lane, wait::wait_until};

/// How a child samples.
#[derive(Debug)]
pub struct RelayOptions {
    /// Time between ticks.
    pub poll_interval: Duration,
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
}

/// How long the end waits for lanes; one that hangs in its source goes with the process.
const END_LIMIT: Duration = Duration::from_millis(100);

/// The whole life of a sampling child process: opens `source`, writes what it says to standard output, and ends when standard input is
/// closed or the parent dies. To be called first thing in `main`, before any other thread: it arranges signals and standard output for the
/// whole process.
///
/// # Errors
/// When the pipe to the parent fails for another reason than its end.
pub fn relay(source: &mut dyn TelemetrySource, options: &RelayOptions) -> Result<(), SamplerError> {
    let pipe = arrange_process()?;
    match run(source, options, pipe) {
        Err(SamplerError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn run(source: &mut dyn TelemetrySource, options: &RelayOptions, mut pipe: File) -> Result<(), SamplerError> {
    let written = |result: io::Result<()>| result.map_err(failed("write to the publisher's pipe"));
    let (opened, devices) = match super::open(source) {
        Ok(open) => open,
        Err(error) => return written(pipe.write_all(Encoder::default().open_failed(&error))),
    };
    written(pipe.write_all(Encoder::default().opened(&opened)))?;

    let schedule = Schedule::begin(options.poll_interval);
    let collection = Collection::new(schedule, opened.devices.iter().map(DeviceReading::of).collect());
    let wire = Arc::new(Wire::new(collection, pipe).map_err(failed("make a timer"))?);
    let rationed = !source.is_free();
    let lanes = devices.into_iter().map(|device| Lane::new(device, options.poll_interval, rationed)).collect();
    let crew =
        Crew::start(lanes, schedule, Arc::clone(&wire), Arc::clone(&options.clock)).map_err(failed("start a thread for the lanes"))?;
    let result = watch(&wire, &crew);
    crew.end(END_LIMIT);
    written(result?)
}

/// Looks after the lanes until the parent is gone or there is nothing more to tell; while all is well, it sleeps.
fn watch(wire: &Wire, crew: &Arc<Crew>) -> Result<io::Result<()>, SamplerError> {
    let stdin = io::stdin();
    loop {
        wire.watch(crew.alarm()).map_err(failed("set a timer"))?;
        let mut fds = [PollFd::new(wire.as_fd(), PollFlags::POLLIN), PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        wait_until(&mut fds, None).map_err(failed("wait for the lanes"))?;
        // The parent never writes: whatever is on standard input, it is its end.
        if fds[1].any().unwrap_or(false) {
            return Ok(Ok(()));
        }
        let now = Instant::now();
        wire.attend(now);
        crew.attend(now);
        if let Some(end) = wire.end() {
            return Ok(end);
        }
    }
}

fn failed<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> SamplerError {
    move |error| SamplerError::Io { doing, source: error.into() }
}

/// Ties the process to its parent and keeps the pipe out of the reach of a library that prints.
fn arrange_process() -> Result<File, SamplerError> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("ask to die with the parent"))?;
    // A signal to the whole control group is the parent's business, which ends its child in good order.
    let parents = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];
    SigSet::from_iter(parents).thread_block().map_err(failed("block signals"))?;
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed("take the pipe"))?;
    dup2_stdout(io::stderr()).map_err(failed("redirect standard output"))?;
    Ok(File::from(output))
}
