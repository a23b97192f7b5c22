//! Follows the bridge round by round, also when it restarts: `cargo run -p map-reader --example follow [PIN-DIR [ROUNDS]]`.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use map_reader::{Consistency, Reader, Round, chain};

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the last resort.
            drop(writeln!(io::stderr(), "follow: {}", chain(&*error)));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let dir = arguments.next().unwrap_or_else(|| "/sys/fs/bpf".into());
    let rounds: u64 = arguments.next().and_then(|rounds| rounds.to_str()?.parse().ok()).unwrap_or(u64::MAX);

    let mut reader = Reader::open(dir);
    let mut seen = None;
    let mut out = io::stdout().lock();
    for _ in 0..rounds {
        let Some(round) = reader.wait_for_round(seen, PATIENCE)? else {
            writeln!(out, "no round for {PATIENCE:?}: the bridge has ended, or waits for its driver")?;
            return Ok(());
        };
        let apart = |before: Round| Duration::from_nanos(round.boottime_ns().saturating_sub(before.boottime_ns()));
        let when = seen.map_or_else(|| "the first round".to_owned(), |before| format!("{:.1?} later", apart(before)));
        seen = Some(round);

        let snapshot = reader.snapshot();
        let whole = if snapshot.consistency == Consistency::Verified { "of one round" } else { "unverified" };
        let memory: u64 = snapshot.processes?.iter().map(|(_, process)| process.used_gpu_memory_total).sum();
        let devices = snapshot.devices?.len();
        writeln!(out, "{when}: {devices} devices, {memory} bytes held, {whole}")?;
    }
    Ok(())
}
