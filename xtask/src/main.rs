//! Developer commands of the workspace: `cargo xtask COMMAND`.

mod book;
mod bpffs;
mod check;
mod codegen;
mod demo;
mod deploy;
mod harness;
mod needs;
mod release;
mod say;
mod screenshot;
mod setup;
mod shell;
mod summary;
mod test;
mod tools;
mod vm;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use say::complain;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer commands of the workspace")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what building and testing need and this machine lacks
    Setup {
        /// Only list what is missing; exit 1 when something is
        #[arg(long)]
        check: bool,
    },
    /// Format, lints, generated code, dependencies, documentation, links, the book, scripts
    Check,
    /// The documentation as a book, in target/book
    Book,
    #[command(hide = true)]
    BookLinks(book::LinksArgs),
    /// Every test of the workspace, those that need root and BPF included
    Test,
    /// The tests that matter on other kernels, in virtual machines; exit 77 when none can be set up here
    TestKernels,
    /// The same on one kernel
    Vm(vm::Args),
    /// About ten seconds of the whole: bridge, BPF consumer, dump
    Demo(demo::Args),
    /// What the bridge costs, measured on release builds: a table, JSON, charts
    Bench(harness::Args),
    /// The bridge under everything at once, ten minutes if nothing else is said; exit 1 when something is found
    Soak(harness::Args),
    /// The picture of the live screen in the documentation, from a real run; needs root
    Screenshot,
    /// Build the release binary and put it at the top of the tree
    Build,
    /// Regenerate the Rust types from include/gadget
    Codegen {
        /// Only compare them with what is checked in
        #[arg(long)]
        check: bool,
    },
    /// Make what is delivered, or test it: binaries, image, packages, manuals, manifests
    #[command(subcommand)]
    Deploy(deploy::Command),
    #[command(hide = true)]
    Workload(demo::workload::Args),
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("xtask: {error:#}");
            if error.is::<vm::NotRun>() { ExitCode::from(vm::NotRun::EXIT_STATUS) } else { ExitCode::FAILURE }
        }
    }
}

fn run(args: Args) -> Result<()> {
    let root = workspace_root();
    env::set_current_dir(&root).with_context(|| format!("cannot enter {}", root.display()))?;
    match args.command {
        Command::Setup { check: true } => setup::list(),
        Command::Setup { check: false } => setup::run(),
        Command::Check => check::run(),
        Command::Book => book::run(),
        Command::BookLinks(args) => book::links(&args),
        Command::Test => test::run(),
        Command::TestKernels => vm::test_kernels(),
        Command::Vm(args) => vm::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => harness::run("bench", &["bridge-cli"], &args),
        Command::Soak(args) => harness::run("soak", &["bridge-cli", "consumers"], &args),
        Command::Screenshot => screenshot::run(),
        Command::Build => release::run(),
        Command::Codegen { check } => Ok(codegen::run(check)?),
        Command::Deploy(command) => deploy::run(command),
        Command::Workload(args) => demo::workload::run(&args),
    }
}

/// The tree that this command was started in, also when the built binary was moved along with it.
fn workspace_root() -> PathBuf {
    let own = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(own).join("..")
}
