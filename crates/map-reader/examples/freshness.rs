//! Prints how old the published data is and what each GPU was doing: `cargo run -p map-reader --example freshness [PIN-DIR]`.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use map_reader::{BridgeState, Freshness, Reader, boottime_now_ns, chain, default_max_age, sample_age};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the last resort.
            drop(writeln!(io::stderr(), "freshness: {}", chain(&*error)));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let dir = env::args_os().nth(1).unwrap_or_else(|| "/sys/fs/bpf".into());
    let reader = Reader::open(dir);
    // The bridge's own map is optional: without it the default interval is assumed, and the GPUs have numbers instead of names.
    let state = reader.state().ok();
    let max_age = default_max_age(state.as_ref().and_then(BridgeState::poll_interval));

    let meta = reader.meta()?;
    let devices = reader.devices()?;
    let now = boottime_now_ns()?;

    let mut out = io::stdout().lock();
    match Freshness::of(&meta, now, max_age) {
        Freshness::NeverPublished => writeln!(out, "nothing has been published")?,
        Freshness::Fresh { age } => writeln!(out, "fresh: {age:.1?} old, {} devices", meta.n_devices)?,
        Freshness::Stale { age } => writeln!(out, "stale: {age:.1?} old, do not believe the rest")?,
        other => writeln!(out, "unknown ({other:?}), do not believe the rest")?,
    }
    if let Some(state) = &state {
        writeln!(out, "bridge: {}, source {}", state.phase(), state.source())?;
    }
    for (index, device) in devices {
        let named = state.as_ref().and_then(|state| state.devices().find(|known| known.index() == index));
        let name = named.map_or_else(|| format!("GPU {index}"), |known| format!("GPU {index}, {} ({})", known.name(), known.uuid()));
        let sampled = sample_age(device.timestamp_ns, &meta, now).unwrap_or_default();
        writeln!(out, "{name}: {} % busy {sampled:.1?} ago, {} of {} bytes used", device.sm_util_pct, device.mem_used, device.mem_total)?;
    }
    Ok(())
}
