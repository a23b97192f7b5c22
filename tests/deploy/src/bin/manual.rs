//! Writes the man pages and shell completions into a folder, or with `--check` compares them with what is there.

#![allow(clippy::print_stdout, reason = "a developer's tool")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use deploy::manual;

#[derive(Debug, Parser)]
struct Args {
    folder: PathBuf,
    /// Only compare
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.check { manual::check(&args.folder) } else { manual::write(&args.folder) };
    match done {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("manual: {why}");
            ExitCode::FAILURE
        }
    }
}
