//! `bridge-dump`: prints the maps that a bridge publishes.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Prints the gpu_* BPF maps that gpu-ebpf-bridge publishes.
///
/// The pins are opened read-only, and a running bridge is not disturbed. A map that cannot be read is named on standard error, with the
/// reason, and the others are printed.
///
/// Exit status: 0 all four maps were printed, 1 at least one was not or the output failed, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Where the maps are pinned
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf", overrides_with = "pin_dir")]
    pin_dir: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let dumped = bridge_dump::dump(&args.pin_dir, &mut io::stdout().lock(), &mut io::stderr().lock());
    match dumped {
        Ok(outcome) => outcome.exit_status().into(),
        Err(error) => {
            // Standard error is the last resort.
            drop(writeln!(io::stderr(), "bridge-dump: cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}
