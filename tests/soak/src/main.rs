//! `soak`: runs the bridge under everything at once, and says what was found.

#![allow(clippy::print_stdout, reason = "a command line tool speaks on its terminal")]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use soak::Settings;

/// Runs the bridge under everything at once.
///
/// Exit status: 0 nothing was found, 1 something was, or it could not be run.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Args {
    /// For how many minutes
    #[arg(long, default_value_t = 10.0, value_parser = minutes, conflicts_with = "seconds")]
    minutes: f64,
    /// For how many seconds, instead
    #[arg(long)]
    seconds: Option<u64>,
    /// What is done, and in which order, follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Between two changes of the processes, in milliseconds
    #[arg(long, default_value_t = 100, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pace: u64,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100_000.0).contains(&minutes) { Ok(minutes) } else { Err("not within 0 and 100000".to_owned()) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let length = args.seconds.map_or_else(|| Duration::from_secs_f64(args.minutes * 60.0), Duration::from_secs);
    let settings = Settings { length, seed: args.seed, pace: Duration::from_millis(args.pace) };
    let report = soak::run(&settings, |line| println!("{line}"));
    println!("{report}");
    if report.violations() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
