//! What the bridge costs, measured from outside: run through `cargo xtask bench`, which builds what is measured.

mod case;
mod chart;
mod charts;
mod counters;
mod cpu;
mod instructions;
mod lookup;
mod machine;
mod measure;
mod process;
mod report;
mod subject;
mod watch;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use nix::unistd::geteuid;

use crate::case::{Case, Source};
use crate::measure::Patience;
use crate::report::{Machine, Point, Report, Starting, Waiting};

/// The program that is measured lies beside this one.
const PROGRAM: &str = "gpu-ebpf-bridge";
/// What a check ends with that could not be made here.
const NOT_RUN: u8 = 77;

#[allow(
    clippy::all,
    clippy::restriction,
    clippy::pedantic,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_code,
    unused_qualifications,
    reason = "generated code"
)]
mod skeleton {
    pub(crate) mod counters {
        include!(concat!(env!("OUT_DIR"), "/counters.skel.rs"));
    }
    pub(crate) mod lookups {
        include!(concat!(env!("OUT_DIR"), "/lookups.skel.rs"));
    }
}

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", about = "What the bridge costs; needs root")]
struct Args {
    /// Only the cases whose name contains this, and nothing but cases
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Shorter windows, and neither growth nor lookups: under three minutes
    #[arg(long)]
    quick: bool,
    /// Show each figure as a multiple of an older report's
    #[arg(long, value_name = "OLD.json")]
    compare: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    json: PathBuf,
    /// Draw the charts into this folder
    #[arg(long, value_name = "FOLDER")]
    charts: Option<PathBuf>,
    #[command(subcommand)]
    helper: Option<Helper>,
}

#[derive(Debug, clap::Subcommand)]
enum Helper {
    /// Prints by how many KiB loading a library and calling it makes a process grow
    #[command(hide = true)]
    LoadLibrary { library: PathBuf },
    /// Counts the instructions of the pure parts with callgrind and holds them against what was recorded; needs no root and no quiet machine
    Instructions {
        /// Record them instead
        #[arg(long)]
        record: bool,
    },
    /// Publishes the mock source in a size that no flag asks for, until SIGTERM
    #[command(hide = true)]
    PublishMock { pin_dir: PathBuf, gpus: u32, processes: u32, interval_us: u64 },
    /// Waits for one tick after the other until it is killed
    #[command(hide = true)]
    Idle { interval_us: u64 },
    /// Turns a pure part so many times
    #[command(hide = true)]
    Turn { part: instructions::Part, times: u32 },
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "bench: {error:#}").ok();
            if error.is::<instructions::NotRun>() { ExitCode::from(NOT_RUN) } else { ExitCode::FAILURE }
        }
    }
}

fn run(args: &Args) -> Result<()> {
    match &args.helper {
        Some(Helper::LoadLibrary { library }) => return print(&format!("{}\n", measure::load_library(library)?)),
        Some(Helper::Instructions { record }) => return instructions::check(*record, print),
        Some(Helper::PublishMock { pin_dir, gpus, processes, interval_us }) => {
            return machine::publish_mock(pin_dir, Duration::from_micros(*interval_us), *gpus, *processes);
        }
        Some(Helper::Idle { interval_us }) => return cpu::idle(Duration::from_micros(*interval_us)),
        Some(Helper::Turn { part, times }) => return instructions::turn(*part, *times),
        None => {}
    }
    ensure!(geteuid().is_root(), "this loads BPF programs: run it as root");
    let older = args.compare.as_deref().map(Report::read).transpose()?;
    let program = std::env::current_exe().context("cannot tell where this program lies")?.with_file_name(PROGRAM);
    let binary_bytes = program.metadata().with_context(|| format!("{} is not built", program.display()))?.len();

    let mut report = Report { machine: Machine::this(), binary_bytes, ..Report::default() };
    if report.machine.load > 0.5 {
        print(&format!("the machine is not quiet (load {}): expect late ticks\n", report.machine.load))?;
    }
    measure_all(args, &program, &mut report)?;
    report.write(&args.json)?;
    print(&format!("\n{}", report.tables()))?;
    if let Some(older) = older {
        print(&format!("\n{}", report.compared_with(&older)))?;
    }
    if let Some(folder) = &args.charts {
        charts::draw(&report, folder)?;
    }
    print(&format!("\nwritten to {}\n", args.json.display()))
}

fn measure_all(args: &Args, program: &Path, report: &mut Report) -> Result<()> {
    let ms = Duration::from_millis;
    let patience = if args.quick {
        Patience { warm_up: ms(1_500), window: ms(4_000), counting: ms(1_000) }
    } else {
        Patience { warm_up: ms(3_000), window: ms(10_000), counting: ms(2_000) }
    };
    let cases: Vec<Case> = case::all().into_iter().filter(|case| args.case.as_ref().is_none_or(|part| case.name.contains(part))).collect();
    if cases.is_empty() {
        let names: Vec<_> = case::all().into_iter().map(|case| case.name).collect();
        bail!("no such case; there are: {}", names.join(", "));
    }
    for case in cases {
        print(&format!("{} …\n", case.name))?;
        report.cases.push(measure::measure(program, &case, &patience).with_context(|| format!("case {}", case.name))?);
    }
    if args.case.is_some() {
        return Ok(());
    }
    for interval in [ms(100), ms(10), ms(1)] {
        print(&format!("waiting alone, {interval:?} …\n"))?;
        report.waiting.push(Waiting { interval_ms: interval.as_secs_f64() * 1e3, cpu_ms_per_s: measure::waiting(interval, &patience)? });
    }
    for case in case::starting() {
        print(&format!("starting and stopping: {} …\n", case.name))?;
        let (to_first_round_ms, to_end_ms) = measure::start_and_stop(program, &case, if args.quick { 7 } else { 25 })?;
        report.starting.push(Starting { name: case.name, to_first_round_ms, to_end_ms });
    }
    if args.quick {
        return Ok(());
    }
    let growth = Patience { warm_up: ms(1_500), window: ms(5_000), counting: ms(200) };
    let (by_processes, by_gpus) = case::growth();
    for (cases, points) in [(by_processes, &mut report.by_processes), (by_gpus, &mut report.by_gpus)] {
        for case in cases {
            print(&format!("growth: {} …\n", case.name))?;
            let Source::Simulated(machine) = case.source else { continue };
            let measured = measure::measure(program, &case, &growth).with_context(|| format!("growth, {}", case.name))?;
            points.push(Point { gpus: machine.gpus, processes: machine.gpus * machine.processes, measured });
        }
    }
    print("lookups …\n")?;
    report.lookups = lookup::lookups(program, &[ms(100), ms(10), ms(1)], ms(2_000))?;
    Ok(())
}

/// A reader who has gone is no reason to stop.
fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).ok();
    Ok(())
}
