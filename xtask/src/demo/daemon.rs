//! The programs that the demo runs, none of which outlives it.

use std::os::unix::process::CommandExt as _;
use std::process::{self, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Interrupted, PACE};
use crate::say::complain;
use crate::shell;

const STOP_WITHIN: Duration = Duration::from_secs(5);

/// A running program; ended when dropped.
#[derive(Debug)]
pub(super) struct Child {
    name: String,
    process: process::Child,
}

impl Child {
    /// Announces and starts a program, in a process group of its own: an interrupt from the terminal reaches only us, and we end the program in
    /// good order.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        shell::announce(command);
        Self::start_silently(command)
    }

    pub(super) fn start_silently(command: &mut Command) -> Result<Self> {
        let name = shell::name(command);
        let process = command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, process })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// # Errors
    /// When the program has ended.
    pub(super) fn must_run(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}", self.name),
        }
    }

    /// Waits for the program's own end.
    ///
    /// # Errors
    /// When it fails, or the user interrupts.
    pub(super) fn finish(mut self, interrupted: &Interrupted) -> Result<()> {
        loop {
            if let Some(status) = self.process.try_wait()? {
                return self.judge(status);
            }
            interrupted.check()?;
            thread::sleep(PACE);
        }
    }

    /// Ends the program as a service manager does.
    ///
    /// # Errors
    /// When it does not end by itself in time, or with an error.
    pub(super) fn stop(mut self) -> Result<()> {
        match self.terminate()? {
            Some(status) => self.judge(status),
            None => bail!("{} did not end within {} s of SIGTERM", self.name, STOP_WITHIN.as_secs()),
        }
    }

    fn judge(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("{} failed: {status}", self.name);
        }
        Ok(())
    }

    fn terminate(&mut self) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.process.try_wait()? {
            return Ok(Some(status));
        }
        kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM).with_context(|| format!("cannot signal {}", self.name))?;
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(PACE);
        }
        Ok(None)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.terminate(), Ok(Some(_))) {
            return;
        }
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            complain!("xtask: {} (pid {}) stays: {error}", self.name, self.process.id());
        }
    }
}
