//! The daemon: signals, log, sources and the loop, put together.

use std::{path::PathBuf, process, sync::Arc, time::Duration};

use bridge::{
    Control, MapOptions, Observer, Plan, Source, Unobserved, WhenUnavailable,
    clock::{Clock, SystemClock},
    sampler::{ChildLauncher, LaneLauncher},
};
use nix::{errno::Errno, sys::signal::kill, unistd::Pid};
use telemetry::mock::MockSource;

use crate::{
    Error, PinGroup, PinMode,
    args::{Args, Mode, SourceName},
    backends, chain, exit, logging,
    notify::{self, Manager, Notifier},
    preflight, privileges, sampler_child,
    signals::{GRACE, Request, Signals},
};

/// This binary, also when the file it was started from has been replaced: the sampler must be of the same build.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// While it waits for a driver, the loop goes round once a second.
const SHORTEST_WATCHDOG: Duration = Duration::from_secs(3);

/// Runs until a signal.
pub(crate) fn run(args: &Args) -> Result<i32, Error> {
    let group = args.pin_group.as_ref().map(PinGroup::gid).transpose()?;
    let signals = Signals::block().map_err(Error::Signals)?;
    logging::start(args.log_level.into())?;
    // Before the first thread: each has capabilities of its own.
    privileges::keep_what_the_maps_need(args.sources().any(|source| backends::of(source).borrows()));
    let control = Control::new().map_err(Error::Signals)?;
    let asked = control.clone();
    let ask = move |request| match request {
        Request::Stop => asked.stop(),
        Request::Release => asked.release(),
        Request::TakeUp => asked.take_up(),
    };
    // Before the first line of the log, which may be a pipe that nobody reads. Not joined: it waits for signals until the process ends.
    drop(signals.watch(GRACE, ask, |status| exit::now(status)).map_err(Error::Signals)?);

    for warning in args.warnings().into_iter().chain(preflight::pid_namespace_warning()) {
        log::warn!("{warning}");
    }
    if let Some(host_path) = args.host_path.as_deref().filter(|path| !path.is_dir()) {
        log::warn!("--host-path {} is not a directory; is the host's file system mounted there?", host_path.display());
    }
    backends::link_devices(args);

    let mut plan = plan(args);
    plan.maps.pin_mode = args.pin_mode.map(PinMode::bits);
    plan.maps.pin_group = group;
    match bridge::run(plan, &control) {
        Ok(()) => Ok(0),
        Err(error) => {
            let remedy = preflight::remedy(&error, &args.pin_dir);
            Err(Error::Bridge { error, remedy })
        }
    }
}

/// Who is told how the bridge is. That a service manager cannot be told is its loss, not the maps'.
fn observer(args: &Args) -> Box<dyn Observer> {
    let manager = Manager::from_environment();
    if let Some(watchdog) = manager.watchdog.filter(|watchdog| *watchdog < SHORTEST_WATCHDOG) {
        log::warn!(
            "the service manager's watchdog of {watchdog:?} is short for a loop that may go round once a second: give it 5s (WatchdogSec=)"
        );
    }
    match Notifier::new(&manager, args.idle_if_no_gpu) {
        Ok(Some(notifier)) => Box::new(notifier),
        Ok(None) => Box::new(Unobserved),
        Err(error) => {
            log::warn!("{}", chain(&error));
            Box::new(Unobserved)
        }
    }
}

fn plan(args: &Args) -> Plan {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let real = || args.sources().map(|source| real(source, args)).collect();
    let (sources, when_unavailable) = match args.mode {
        Mode::Auto => (real(), WhenUnavailable::FallBack(mock(args, &clock))),
        Mode::Real if args.idle_if_no_gpu => (real(), WhenUnavailable::Wait),
        Mode::Real => (real(), WhenUnavailable::Fail),
        Mode::Mock => (vec![mock(args, &clock)], WhenUnavailable::Fail),
    };
    Plan {
        maps: MapOptions::new(&args.pin_dir, process::id(), clock.boottime_ns()),
        keep_pins: args.keep_pins,
        poll_interval: args.poll_interval.effective(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock,
        sources,
        when_unavailable,
        observer: observer(args),
    }
}

fn real(source: SourceName, args: &Args) -> Source {
    let backend = backends::of(source);
    let missing = if backend.borrows() { privileges::not_to_be_lent() } else { Vec::new() };
    let arguments = sampler_child::arguments(source, args, missing.is_empty());
    // The service manager hears from the daemon alone.
    let child = ChildLauncher::new(PathBuf::from(THIS_PROGRAM), arguments).without_environment(&notify::ENVIRONMENT);
    Source { name: source.name(), is_mock: false, launcher: backend.launcher(args, child, &missing) }
}

fn mock(args: &Args, clock: &Arc<dyn Clock>) -> Source {
    let make = || Box::new(MockSource::default().sparing_processes(process_exists)) as _;
    Source {
        name: "mock",
        is_mock: true,
        launcher: Box::new(LaneLauncher::new(make, args.poll_interval.effective(), Arc::clone(clock)).inline()),
    }
}

/// Whether this machine has a process of that PID, whoever it belongs to.
fn process_exists(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::process_exists;

    #[test]
    fn a_process_exists_whoever_it_belongs_to() {
        assert!(process_exists(std::process::id()) && process_exists(1));
        // Beyond what the kernel gives out.
        assert!(![1 << 22, i32::MAX.unsigned_abs(), u32::MAX].into_iter().any(process_exists));
    }
}
