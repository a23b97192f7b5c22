//! `file-bridge FILE PIN-DIR`: the loop in a program of one's own, with a pin directory and a source of its own.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, process, thread};

use bridge::clock::{Clock, SystemClock};
use bridge::sampler::LaneLauncher;
use bridge::{Control, MapOptions, Plan, Source, Unobserved, WhenUnavailable};
use file_backend::FileSource;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(file), Some(pin_dir), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        eprintln!("usage: file-bridge FILE PIN-DIR");
        return ExitCode::from(2);
    };
    match run(file, pin_dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("file-bridge: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(file: PathBuf, pin_dir: PathBuf) -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SystemClock);
    // The sampler asks for a source at each start: after one that is gone, for a new one.
    let make_source = move || -> Box<dyn telemetry::TelemetrySource> { Box::new(FileSource::new(&file)) };
    let plan = Plan {
        maps: MapOptions::new(pin_dir, process::id(), clock.boottime_ns()),
        keep_pins: false,
        poll_interval: POLL_INTERVAL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Arc::<SystemClock>::clone(&clock),
        sources: vec![Source { name: "file", is_mock: false, launcher: Box::new(LaneLauncher::new(make_source, POLL_INTERVAL, clock)) }],
        when_unavailable: WhenUnavailable::Wait,
        observer: Box::new(Unobserved),
    };

    let control = Control::new()?;
    let stopped = control.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopped.stop();
        }
    });
    // Until it is stopped; it then empties and removes its maps.
    Ok(bridge::run(plan, &control)?)
}
