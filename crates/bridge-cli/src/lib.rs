//! The command line of `gpu-ebpf-bridge`: flags, log, signals, the host's device files, and the wiring of source, loop and maps.

pub mod args;
mod backends;
mod daemon;
mod error;
pub mod exit;
mod health;
pub mod host_devices;
mod interval;
pub mod logging;
mod normalise;
pub mod notify;
mod pin_access;
mod preflight;
mod privileges;
mod sampler_child;
pub mod signals;
mod usage;

use std::{
    ffi::OsString,
    io::{self, ErrorKind, Write},
};

pub use bridge_dump::duration;
pub use error::{Error, chain};
pub use interval::{IntervalError, MaxAge, PollInterval};
pub use pin_access::{PinGroup, PinMode};
pub use usage::UsageError;

use bridge_dump::DumpError;

use crate::args::{Args, Request};

/// Does what a command line, without the program's name, asks for, and returns the program's exit status. To be called before any thread is
/// started: it blocks signals.
///
/// # Errors
/// When the command line cannot be used, and when what it asks for fails.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<i32, Error> {
    let mut arguments = arguments.into_iter().peekable();
    if arguments.next_if(|first| first == sampler_child::ENTRY).is_some() {
        return sampler_child::run(arguments);
    }
    match Args::parse_from_go(arguments)? {
        Request::Help => printed(args::command().print_help()),
        Request::Run(args) if args.version => printed(writeln!(io::stdout(), "gpu-ebpf-bridge {}", env!("CARGO_PKG_VERSION"))),
        Request::Run(args) if args.dump => dump(&args),
        Request::Run(args) if args.health => health(&args),
        Request::Run(args) => daemon::run(&args),
    }
}

/// Whoever closes standard output has read enough.
fn printed(result: io::Result<()>) -> Result<i32, Error> {
    match result.and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Error::Output(error)),
    }
}

fn health(args: &Args) -> Result<i32, Error> {
    let verdict = health::look(&args.pin_dir, args.health_max_age.map(MaxAge::get)).map_err(Error::Clock)?;
    printed(writeln!(io::stdout(), "{verdict}"))?;
    Ok(verdict.exit_status())
}

fn dump(args: &Args) -> Result<i32, Error> {
    let request = bridge_dump::Request { output: args.output.into(), ..Default::default() };
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let dumped = bridge_dump::dump_as(&args.pin_dir, &request, &mut out, &mut err);
    let outcome = dumped.map_err(|error| match error {
        DumpError::Output(error) => Error::Output(error),
        error => Error::Dump(error),
    })?;
    Ok(outcome.exit_status().into())
}
