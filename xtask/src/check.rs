//! `check`: everything that can be said of the tree without running it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::say::{complain, say};
use crate::tools::{self, Tools};
use crate::{book, codegen, deploy, setup, shell};

/// How a step went.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// Could not be looked at here, for a reason that is no fault of the tree.
    NotRun(String),
    Failed(String),
}

/// Runs every step, also after one has failed, and closes with a summary.
///
/// # Errors
/// When a step failed.
pub(crate) fn run() -> Result<()> {
    setup::ensure()?;
    let tools = tools::ensure()?;
    let mut results = Vec::new();
    for (name, step) in steps() {
        say!("\n== {name}");
        let start = Instant::now();
        let outcome = step(&tools).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(reason) = &outcome {
            complain!("{name}: {reason}");
        }
        results.push((name, outcome, start.elapsed()));
    }
    say!("\n== summary");
    for (name, outcome, time) in &results {
        say!("{}", summary_line(name, outcome, *time));
    }
    let failed: Vec<_> = results.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_))).map(|(name, ..)| *name).collect();
    if !failed.is_empty() {
        bail!("check failed: {}", failed.join(", "));
    }
    Ok(())
}

type Step = fn(&Tools) -> Result<Outcome>;

/// The example that is a workspace of its own.
const BACKEND: &str = "examples/file-backend/Cargo.toml";

fn steps() -> [(&'static str, Step); 10] {
    [
        ("format", |_| {
            passes(shell::cargo().args(["fmt", "--all", "--", "--check"]))?;
            passes(shell::cargo().args(["fmt", "--manifest-path", BACKEND, "--", "--check"]))
        }),
        ("clippy", |_| {
            passes(shell::cargo().args(["clippy", "--workspace", "--all-targets", "--features", "deploy/built", "--", "-D", "warnings"]))?;
            passes(&mut backend_clippy()?)
        }),
        ("generated code", |_| {
            say!("$ cargo xtask codegen --check");
            codegen::run(true)?;
            deploy::run(deploy::Command::Manual { check: true })?;
            Ok(Outcome::Passed)
        }),
        ("dependencies", |tools| passes(deny(tools).args(["check", "bans", "licenses", "sources"]))),
        ("advisories", advisories),
        ("documentation", |_| {
            passes(shell::cargo().args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
        }),
        ("instructions", instructions),
        ("links", |tools| {
            let pages = tracked(|path, _| path.extension().is_some_and(|extension| extension == "md"))?;
            passes(shell::command(&tools.python.lychee).args(["--offline", "--include-fragments", "--no-progress"]).args(pages))
        }),
        ("book", |tools| {
            book::check(&tools.python)?;
            Ok(Outcome::Passed)
        }),
        ("scripts", |tools| {
            let scripts = tracked(|path, first_line| {
                path.extension().is_some_and(|extension| extension == "sh") || (first_line.starts_with("#!") && first_line.ends_with("sh"))
            })?;
            passes(shell::command(&tools.python.shellcheck).args(scripts))
        }),
    ]
}

fn passes(command: &mut Command) -> Result<Outcome> {
    shell::run(command)?;
    Ok(Outcome::Passed)
}

/// With the versions of this workspace, and where its test builds it.
fn backend_clippy() -> Result<Command> {
    let lock = Path::new(BACKEND).with_file_name("Cargo.lock");
    fs::copy("Cargo.lock", &lock).with_context(|| format!("cannot write {}", lock.display()))?;
    let mut clippy = shell::cargo();
    clippy.args(["clippy", "--all-targets", "--manifest-path", BACKEND, "--target-dir"]);
    clippy.arg(shell::target_dir()?.join("tmp/file-backend")).args(["--", "-D", "warnings"]);
    Ok(clippy)
}

fn deny(tools: &Tools) -> Command {
    let mut deny = shell::command(&tools.cargo_deny);
    deny.arg("--workspace");
    deny
}

/// The pure parts' instruction counts against the recorded ones: a figure that a busy machine does not change.
fn instructions(_tools: &Tools) -> Result<Outcome> {
    passes(shell::cargo().args(["build", "--release", "--package", "bench"]))?;
    let mut bench = shell::command(shell::target_dir()?.join("release/bench"));
    bench.arg("instructions");
    shell::announce(&bench);
    let status = bench.status().context("cannot start the bench")?;
    Ok(match status.code() {
        Some(0) => Outcome::Passed,
        Some(77) => Outcome::NotRun("valgrind is not installed".to_owned()),
        _ => bail!("the bench says so: {status}"),
    })
}

/// Known vulnerabilities, where their database can be had.
fn advisories(tools: &Tools) -> Result<Outcome> {
    const PATIENCE: Duration = Duration::from_secs(120);
    let mut fetch = deny(tools);
    fetch.args(["fetch", "db"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell::announce(&fetch);
    if !succeeds_within(&mut fetch, PATIENCE)? {
        return Ok(Outcome::NotRun("the advisory database cannot be fetched from here".into()));
    }
    passes(deny(tools).args(["check", "--disable-fetch", "advisories"]))
}

fn succeeds_within(command: &mut Command, limit: Duration) -> Result<bool> {
    let deadline = Instant::now() + limit;
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shell::name(command)))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The files under version control, and those about to be, that are of a kind, told by path and first line.
fn tracked(is_wanted: impl Fn(&PathBuf, &str) -> bool) -> Result<Vec<PathBuf>> {
    let list = shell::command("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot start git")?;
    if !list.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&list.stderr).trim());
    }
    let names = String::from_utf8(list.stdout).context("a file's name is not UTF-8")?;
    let files = names.split_terminator('\0').map(PathBuf::from).filter(|path| path.is_file() && !path.is_symlink());
    let wanted: Vec<_> = files
        .filter(|path| {
            let text = fs::read(path).unwrap_or_default();
            let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
            is_wanted(path, &String::from_utf8_lossy(first_line))
        })
        .collect();
    if wanted.is_empty() {
        bail!("git lists no such file: is this a clone of the repository?");
    }
    Ok(wanted)
}

fn summary_line(name: &str, outcome: &Outcome, time: Duration) -> String {
    let word = match outcome {
        Outcome::Passed => "passed".into(),
        Outcome::NotRun(reason) => format!("not run: {reason}"),
        Outcome::Failed(_) => "FAILED".into(),
    };
    format!("{name:<16}{:>7.1} s  {word}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_could_not_run_says_why_in_the_summary() {
        let line = summary_line("advisories", &Outcome::NotRun("no network".into()), Duration::from_millis(1250));
        assert_eq!(line, "advisories          1.2 s  not run: no network");
    }

    #[test]
    fn a_command_that_outlasts_its_limit_is_ended_and_did_not_succeed() {
        let start = Instant::now();
        let succeeded = succeeds_within(shell::command("sleep").arg("60"), Duration::from_millis(100)).expect("sleep starts");
        assert!(!succeeded);
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
