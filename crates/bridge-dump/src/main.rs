//! `bridge-dump`: shows the maps that a bridge publishes.

mod args;
mod live;

use std::io::{self, Write};
use std::process::ExitCode;

use bridge_dump::DumpError;
use clap::Parser;
use map_reader::chain;

use crate::args::Args;

fn main() -> ExitCode {
    let args = Args::parse();
    let request = args.request();
    if let Some(interval) = args.watch {
        return match live::run(&args.pin_dir, request.selection, interval) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&chain(&error)),
        };
    }
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let dumped = if args.follow {
        bridge_dump::follow(&args.pin_dir, &request, &mut out, &mut err, || true)
    } else {
        bridge_dump::dump_as(&args.pin_dir, &request, &mut out, &mut err)
    };
    // `fail` takes it again.
    drop(err);
    match dumped {
        Ok(outcome) => outcome.exit_status().into(),
        Err(DumpError::Output(error)) => fail(&format!("cannot write to standard output: {error}")),
        Err(error) => fail(&chain(&error)),
    }
}

fn fail(why: &str) -> ExitCode {
    // Standard error is the last resort.
    drop(writeln!(io::stderr(), "bridge-dump: {why}"));
    ExitCode::FAILURE
}
