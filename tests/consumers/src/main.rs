//! `gpu-events`: shows, as they happen, events of processes that use a GPU, joined with the pinned maps.

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use consumers::events::{Event, Events, Trigger};
use consumers::table::{self, RateLimit};
use consumers::{devices, tasks};

/// Longest wait for an event before the clock is looked at again.
const POLL: Duration = Duration::from_millis(100);
const ONE_LINE_PER_PROCESS: Duration = Duration::from_millis(200);

/// Show events of processes that use a GPU, joined with what the GPU does
#[derive(Debug, Parser)]
#[command(name = "gpu-events", version)]
struct Args {
    /// Where the gpu_* maps are pinned
    #[arg(long, default_value = "/sys/fs/bpf", value_name = "DIR")]
    pin_dir: PathBuf,
    /// How long to watch
    #[arg(long, default_value_t = 10, value_name = "N")]
    seconds: u64,
    /// Stop after this many lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Show only threads with this name
    #[arg(long, value_name = "NAME")]
    comm: Option<String>,
    /// Take the bridge's data for stale when it is older than this
    #[arg(long, default_value_t = 300, value_name = "MS")]
    stale_ms: u64,
    /// Print the GPUs once and exit
    #[arg(long, conflicts_with = "tasks")]
    devices: bool,
    /// Print the processes that use a GPU once and exit
    #[arg(long)]
    tasks: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_stdout(error.as_ref()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = io::stderr().lock();
            let written = writeln!(stderr, "gpu-events: {}", chain(error.as_ref()));
            // Nothing is left to tell it to.
            drop(written);
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(io::stdout().lock());
    if args.devices {
        table::write_devices(&mut out, &devices::read(&args.pin_dir)?)?;
    } else if args.tasks {
        table::write_tasks(&mut out, &tasks::read(&args.pin_dir)?)?;
    } else {
        watch(args, &mut out)?;
    }
    Ok(out.flush()?)
}

fn watch(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut events = Events::attach(&args.pin_dir, args.stale_ms, Trigger::ContextSwitch)?;
    let mut rate = RateLimit::new(ONE_LINE_PER_PROCESS);
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut shown = 0;
    table::write_event_heading(out)?;
    out.flush()?;

    let end = Instant::now() + Duration::from_secs(args.seconds);
    while shown < limit {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        for event in events.poll(left.min(POLL))? {
            if shown < limit && wanted(args, &event) && rate.allows(event.tgid, Instant::now()) {
                table::write_event(out, &event)?;
                shown += 1;
            }
        }
        out.flush()?;
    }
    let lost = match events.dropped()? {
        0 => String::new(),
        dropped => format!(", {dropped} lost in a full ring buffer"),
    };
    writeln!(out, "{shown} shown, {} more held back (one line per process every 200 ms){lost}", rate.held_back())?;
    Ok(())
}

fn wanted(args: &Args, event: &Event) -> bool {
    args.comm.as_ref().is_none_or(|name| *name == event.comm)
}

/// The error and its causes on one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// `gpu-events | head` is no failure.
fn is_closed_stdout(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
