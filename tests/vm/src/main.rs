//! Demands every process back from the maps after every round, while the rest of the program wanders over the CPUs.
//!
//! An LRU map loses live entries when its writer wanders; the publisher, on its one CPU, promises to lose none. Few CPUs never lose any: this
//! means something with 16 and more, and `--case control` shows whether it does.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its terminal")]

mod demand;
mod phases;
mod rounds;
mod wander;

use std::process::ExitCode;
use std::thread;

use clap::{Parser, ValueEnum};

/// Demands every process back from the maps after every round.
#[derive(Debug, Parser)]
#[command(name = "lru-demand")]
struct Args {
    /// How the maps come to their writer
    #[arg(long, value_enum)]
    case: Case,
    /// How many processes there are at a time, each on one device
    #[arg(long, default_value_t = 3968)]
    processes: u32,
    /// How many of them end in every round, and as many begin
    #[arg(long, default_value_t = 32)]
    churn: u32,
    /// How many rounds each phase has
    #[arg(long, default_value_t = 100)]
    rounds: u32,
}

/// What the writer finds, and who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// New maps, then the same ones after a restart: nothing may be lost
    Steady,
    /// After a restart on another CPU, as when a container is given other ones: nothing may be lost
    Moved,
    /// After another writer has used the maps from all CPUs: nothing may be lost
    Inherited,
    /// No publisher, but a writer that wanders: something must be lost
    Control,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    println!("{cpus} CPUs, {} processes, {} of them new in every round", args.processes, args.churn);
    let result = match args.case {
        Case::Steady => phases::steady(&args),
        Case::Moved => phases::moved(&args),
        Case::Inherited => phases::inherited(&args),
        Case::Control => phases::control(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lru-demand: {error:#}");
            ExitCode::FAILURE
        }
    }
}
