//! A clean system that was booted: systemd is its first process, and what it enforces is enforced.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::{Bpffs, until};

use crate::artifacts::{output, succeed};
use crate::root::Root;

/// For a whole system to come up, or a service to be killed by its watchdog, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs until it is dropped. One at a time: two would share a control group.
#[derive(Debug)]
pub struct Machine {
    nspawn: Child,
    init: u32,
    root: Root,
    console: PathBuf,
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    /// Boots, with these pins at `/sys/fs/bpf`.
    ///
    /// # Panics
    /// When it does not come up, with what it said.
    #[must_use]
    #[track_caller]
    pub fn boot(pins: &Bpffs) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);

        let root = Root::bare();
        let console = root.path().with_file_name("console");
        let said = File::create(&console).unwrap_or_else(|error| panic!("{}: {error}", console.display()));
        let errors = said.try_clone().unwrap_or_else(|error| panic!("{}: {error}", console.display()));
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.arg("--directory").arg(root.path()).arg(format!("--bind={}:/sys/fs/bpf", pins.path().display()));
        nspawn.args(["--boot", "--quiet", "--machine=gpu-ebpf-bridge-test", "--register=no", "--console=read-only"]);
        // What a machine has and a container has not.
        nspawn.args(["--capability=all", "--system-call-filter=bpf"]);
        if !Path::new("/run/systemd/system").exists() {
            // There is no systemd to ask for a unit.
            nspawn.arg("--keep-unit");
        }
        // The one hierarchy of control groups in which systemd enforces rules for devices by BPF, also where the host has both.
        nspawn.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1").arg("systemd.unified_cgroup_hierarchy=1");
        let nspawn =
            nspawn.stdin(Stdio::null()).stdout(said).stderr(errors).spawn().unwrap_or_else(|error| panic!("systemd-nspawn: {error}"));

        let mut machine = Self { nspawn, init: 0, root, console, _alone: alone };
        machine.init = machine.wait_for("the first process", Self::first_process);
        machine.wait_for("systemd", |machine| {
            let state = output(&mut machine.command(&["systemctl", "is-system-running"]));
            ["running\n", "degraded\n"].map(str::as_bytes).contains(&&*state.stdout).then_some(())
        });
        machine
    }

    /// Its child, once that has become what it is to be.
    fn first_process(&self) -> Option<u32> {
        let id = self.nspawn.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let init = children.split_whitespace().next()?.parse().ok()?;
        (fs::read_to_string(format!("/proc/{init}/comm")).ok()?.trim() == "systemd").then_some(init)
    }

    /// Its files.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// A command that runs in it.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--target"]).arg(self.init.to_string());
        command.args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Runs a command in it and gives what that prints.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        succeed(&mut self.command(words))
    }

    /// A property of a unit, as systemd has it.
    #[must_use]
    #[track_caller]
    pub fn property(&self, unit: &str, property: &str) -> String {
        self.run(&["systemctl", "show", "--value", "--property", property, unit]).trim().to_owned()
    }

    /// What a unit has logged.
    #[must_use]
    #[track_caller]
    pub fn journal(&self, unit: &str) -> String {
        self.run(&["journalctl", "--no-pager", "--output=cat", "--unit", unit])
    }

    /// Waits until the condition holds.
    ///
    /// # Panics
    /// When it does not in time, with what the machine said.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut ask: impl FnMut(&Self) -> Option<T>) -> T {
        until(PATIENCE, || ask(self)).unwrap_or_else(|| {
            let journal = output(&mut self.command(&["journalctl", "--no-pager", "--lines=60"]));
            let console = fs::read_to_string(&self.console).unwrap_or_default();
            panic!("waited in vain for {what}; the machine said:\n{console}\n{}", String::from_utf8_lossy(&journal.stdout))
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        const FOR_A_SHUTDOWN: Duration = Duration::from_secs(20);
        // Asks the system to power off.
        let asked = i32::try_from(self.nspawn.id()).is_ok_and(|id| kill(Pid::from_raw(id), Signal::SIGTERM).is_ok());
        if !asked || until(FOR_A_SHUTDOWN, || self.nspawn.try_wait().ok().flatten()).is_none() {
            // Its first process dies with it, and all others with that.
            self.nspawn.kill().ok();
            self.nspawn.wait().ok();
        }
    }
}
