//! `test`: every test of the workspace, those that need root and BPF included.

use std::io::{IsTerminal as _, PipeReader, Read as _, Write, pipe, stdout};
use std::mem;
use std::os::fd::AsFd as _;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::say::say;
use crate::summary::Summary;
use crate::{deploy, setup, shell};

/// Builds everything, runs every test and closes with the line `N passed, N failed`.
///
/// # Errors
/// When a test failed, or could not be built or run.
pub(crate) fn run() -> Result<()> {
    setup::ensure()?;
    let unjudged = deploy::prepare_judges().err();
    let start = Instant::now();
    // Tests start the workspace's binaries and load its simulated NVML: all of them first.
    shell::run(shell::cargo().args(["build", "--workspace", "--all-targets"]))?;
    say!("built in {:.0} s; what is delivered has tests of its own: make test-deploy", start.elapsed().as_secs_f64());
    match unjudged {
        None => run_packages(&["--workspace"], None),
        Some(error) => {
            let reason = format!("the tests of chart, manifests, unit and docs/deployment.md (package deploy): {error:#}");
            run_packages(&["--workspace", "--exclude", "deploy"], Some(&reason))
        }
    }
}

/// Runs the tests of some packages, which are built, tells what was not run and why, and closes with the line `N passed, N failed`.
///
/// # Errors
/// When a test failed, or could not be built or run.
pub(crate) fn run_packages(packages: &[&str], not_run: Option<&str>) -> Result<()> {
    let start = Instant::now();
    let mut cargo = tests(packages)?;
    shell::announce(&cargo);
    let (status, summary) = watched(&mut cargo, &mut stdout())?;
    let unexplained = u64::from(!status.success() && summary.failed() == 0);
    say!("\n{summary}");
    say!("tested in {:.0} s", start.elapsed().as_secs_f64());
    if let Some(reason) = not_run {
        say!("not run: {reason}");
    }
    say!("{}", summary.closing_line(unexplained));
    if !status.success() {
        bail!("cargo test failed: {status}");
    }
    Ok(())
}

/// `cargo test`, its test binaries run through sudo when we are not root, so that cargo's own files stay the user's.
fn tests(packages: &[&str]) -> Result<Command> {
    let mut cargo = shell::cargo();
    cargo.arg("test").args(packages).arg("--no-fail-fast");
    if !shell::is_root() {
        let runner: Vec<_> =
            ["sudo".into()].into_iter().chain(shell::sudo_arguments()?).map(|word| format!("{:?}", word.to_string_lossy())).collect();
        cargo.arg("--config").arg(format!("target.'cfg(all())'.runner=[{}]", runner.join(",")));
    }
    let color = if stdout().is_terminal() { "always" } else { "never" };
    cargo.args(["--color", color, "--", "--color", color]);
    Ok(cargo)
}

/// Runs a command, shows what it prints on both streams as it comes, and sums it up.
fn watched(command: &mut Command, out: &mut impl Write) -> Result<(ExitStatus, Summary)> {
    let (mut reader, writer) = pipe().context("cannot make a pipe")?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn().context("cannot start cargo")?;

    let mut summary = Summary::default();
    let (mut chunk, mut line) = (vec![0; 1 << 16], Vec::new());
    // Not until the end of the output: a process that a test left behind may hold the pipe open for long.
    loop {
        let ended = child.try_wait()?;
        if is_readable(&reader)? {
            let length = reader.read(&mut chunk)?;
            out.write_all(&chunk[..length])?;
            out.flush()?;
            for byte in &chunk[..length] {
                match byte {
                    b'\n' => summary.line(&String::from_utf8_lossy(&mem::take(&mut line))),
                    byte => line.push(*byte),
                }
            }
        } else if let Some(status) = ended {
            return Ok((status, summary));
        }
    }
}

/// Waits a moment for the pipe to have something, or to have no writer left.
fn is_readable(reader: &PipeReader) -> Result<bool> {
    const MOMENT_MS: u8 = 100;
    let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(MOMENT_MS)) {
        Ok(_) => Ok(fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error).context("cannot wait for cargo's output"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_process_that_a_test_left_behind_does_not_hold_up_the_end() {
        let start = Instant::now();
        let script = "sleep 60 & echo 'Running tests/a.rs (target/debug/deps/a-00)'; echo 'test result: ok. 1 passed; 0 failed' >&2; kill -0 $! && exit 3";
        let mut shown = Vec::new();
        let (status, summary) = watched(shell::command("sh").args(["-c", script]), &mut shown).expect("sh starts");
        assert_eq!(status.code(), Some(3));
        assert!(shown.ends_with(b"1 passed; 0 failed\n"));
        assert_eq!(summary.closing_line(0), "1 passed, 0 failed");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
