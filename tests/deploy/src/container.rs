//! Containers of the image, as podman runs them.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use test_support::{WAIT, until};

use crate::artifacts::{IMAGE, output, succeed};

/// podman with what works in virtual machines and in containers too.
#[must_use]
pub fn podman() -> Command {
    let mut podman = Command::new("podman");
    podman.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
    podman
}

/// The files of the image.
///
/// # Panics
/// When they cannot be had.
#[must_use]
#[track_caller]
pub fn unpacked() -> TempDir {
    let folder = TempDir::new().unwrap_or_else(|error| panic!("a temporary folder: {error}"));
    let script = format!(
        "c=$(buildah from --pull-never {IMAGE}) && m=$(buildah mount $c) && cp -a \"$m\"/. {} && buildah umount $c >/dev/null && buildah rm $c >/dev/null",
        folder.path().display()
    );
    succeed(Command::new("sh").args(["-c", &script]));
    folder
}

/// A container that runs; removed at the end.
#[derive(Debug)]
pub struct Container {
    name: String,
}

impl Container {
    /// Starts the image with podman's `options` and the bridge's `arguments`.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(options: &[impl AsRef<OsStr>], arguments: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gpu-ebpf-bridge-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut run = podman();
        run.args(["run", "--detach", "--pull=never", "--name", &name, "--network=host", "--pid=host"]);
        run.args(["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1000:1000"]);
        // Made before it is started, so that it is removed also when that fails.
        let container = Self { name };
        succeed(run.args(options).arg(IMAGE).args(arguments));
        container
    }

    /// Runs a program in it.
    #[must_use]
    pub fn exec(&self, words: &[&str]) -> Command {
        let mut exec = podman();
        exec.args(["exec", &self.name]).args(words);
        exec
    }

    /// All that it has printed.
    #[must_use]
    pub fn log(&self) -> String {
        let said = output(podman().args(["logs", &self.name]));
        format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
    }

    /// Waits until the condition holds.
    ///
    /// # Panics
    /// When it does not in time, with the container's log.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        until(WAIT, ask).unwrap_or_else(|| panic!("waited in vain for {what}; the container logged:\n{}", self.log()))
    }

    /// Waits until it ends by itself, and gives its exit status.
    ///
    /// # Panics
    /// When that cannot be asked.
    #[track_caller]
    pub fn status(&self) -> String {
        succeed(podman().args(["wait", &self.name])).trim().to_owned()
    }

    /// Stops it as a kubelet does; gives its exit status and how long that took.
    ///
    /// # Panics
    /// When it cannot be stopped.
    #[track_caller]
    pub fn stop(&self) -> (String, Duration) {
        let start = Instant::now();
        succeed(podman().args(["stop", "--time=10", &self.name]));
        let took = start.elapsed();
        (self.status(), took)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Fails only for one that was never made.
        Command::new("podman").args(["rm", "--force", "--time=0", &self.name]).stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
    }
}
