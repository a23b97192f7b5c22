//! A docker of the tests' own, which shares nothing with one that the machine may have.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use test_support::{WAIT, until};

use crate::artifacts::output;

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Docker {
    daemon: Child,
    folder: TempDir,
}

impl Docker {
    /// Starts the daemon, which changes no setting of the machine's network.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        let folder = TempDir::with_prefix("docker-").unwrap_or_else(|error| panic!("a temporary folder: {error}"));
        let place = |name: &str| folder.path().join(name);
        let mut daemon = Command::new("dockerd");
        daemon.arg("--host").arg(format!("unix://{}", place("socket").display()));
        daemon.arg("--data-root").arg(place("data")).arg("--exec-root").arg(place("exec")).arg("--pidfile").arg(place("pid"));
        daemon.args(["--containerd-namespace", "gpu-ebpf-bridge-test", "--containerd-plugins-namespace", "gpu-ebpf-bridge-test-plugins"]);
        daemon.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
        let daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let docker = Self { daemon: daemon.unwrap_or_else(|error| panic!("dockerd: {error}")), folder };
        let up = until(WAIT, || output(docker.command().arg("info")).status.success().then_some(()));
        assert!(up.is_some(), "dockerd does not come up");
        docker
    }

    /// What `DOCKER_HOST` is to be, so that programs find it.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Its client.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut docker = Command::new("docker");
        docker.env("DOCKER_HOST", self.host());
        docker
    }

    /// A line of shell in which `docker` is this one.
    #[must_use]
    pub fn shell(&self, line: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.env("DOCKER_HOST", self.host()).args(["-c", line]);
        shell
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        const FOR_ITS_CONTAINERS: Duration = Duration::from_secs(20);
        let asked = i32::try_from(self.daemon.id()).is_ok_and(|id| kill(Pid::from_raw(id), Signal::SIGTERM).is_ok());
        if !asked || until(FOR_ITS_CONTAINERS, || self.daemon.try_wait().ok().flatten()).is_none() {
            self.daemon.kill().ok();
            self.daemon.wait().ok();
        }
    }
}
