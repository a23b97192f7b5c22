//! The daemon as a process, and its maps as others see them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub,
    reason = "shared by test binaries that use parts of it"
)]

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use map_reader::Reader;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use nvml_sim::{library::Installed, scenario::Scenario};
use tempfile::TempDir;
use test_support::{Bpffs, eventually};

pub const BRIDGE: &str = env!("CARGO_BIN_EXE_gpu-ebpf-bridge");
/// Where no library is.
pub const NO_LIBRARY: &str = "--nvml-library-path=/nowhere/libnvidia-ml.so.1";

/// A running daemon, killed when the test ends early.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    folder: TempDir,
}

impl Daemon {
    pub fn start(pins: &Bpffs, arguments: &[&str]) -> Self {
        Self::spawn(Command::new(BRIDGE).arg("--pin-dir").arg(pins.path()).args(arguments))
    }

    /// Starts what `command` says, which ends as the daemon.
    pub fn spawn(command: &mut Command) -> Self {
        let folder = TempDir::new().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        Self { child: command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap(), folder }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits until this daemon has published a round.
    #[track_caller]
    pub fn publishing(&mut self, pins: &Bpffs) -> Reader {
        let reader = self.wait_for("a first round", |daemon| {
            let reader = Reader::open(pins.path());
            reader.meta().is_ok_and(|meta| meta.helper_pid == daemon.pid()).then_some(reader)
        });
        // What comes after the first round in the log is there now.
        self.wait_for("the start line", |daemon| daemon.log().contains(", maps in ").then_some(()));
        reader
    }

    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, ask: impl Fn(&Self) -> Option<T>) -> T {
        eventually(what, || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("waited for {what}, and the daemon ended: {status}: {}", self.log());
            }
            ask(self)
        })
    }

    #[track_caller]
    pub fn wait_for_log(&mut self, part: &str) -> String {
        self.wait_for(&format!("{part:?} in the log"), |daemon| daemon.log().lines().find(|line| line.contains(part)).map(str::to_owned))
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().try_into().unwrap()), signal).unwrap();
    }

    /// Its exit status, when a signal has ended it, and its log.
    pub fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        (self.child.wait().unwrap().code(), self.log())
    }

    /// Its exit status and its log, when it has ended by itself.
    pub fn ended(mut self) -> (Option<i32>, String) {
        (self.child.wait().unwrap().code(), self.log())
    }

    /// The process that reads NVML.
    #[track_caller]
    pub fn sampler(&mut self) -> u32 {
        self.child("gpu-sampler")
    }

    /// The child process of this name.
    #[track_caller]
    pub fn child(&mut self, name: &str) -> u32 {
        self.wait_for(name, |daemon| daemon.children().into_iter().find(|(_, child)| child == name).map(|(pid, _)| pid))
    }

    /// Its child processes with their names.
    pub fn children(&self) -> Vec<(u32, String)> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid())).unwrap();
        let named = |pid: &str| Some((pid.parse().unwrap(), fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned()));
        children.split_whitespace().filter_map(named).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has usually ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Exit status, standard output and standard error of a command that ends by itself.
#[track_caller]
pub fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// `--health` with its one line checked for being one.
#[track_caller]
pub fn health(pin_dir: &Path, arguments: &[&str]) -> (i32, String) {
    let (status, stdout, stderr) = output(Command::new(BRIDGE).arg("--health").arg("--pin-dir").arg(pin_dir).args(arguments));
    assert_eq!((stdout.lines().count(), stderr.as_str()), (1, ""), "{stdout}");
    (status.unwrap(), stdout.trim_end().to_owned())
}

/// A simulated library that any user may load.
#[derive(Debug)]
pub struct Sim {
    folder: TempDir,
    pub library: Installed,
}

impl Sim {
    pub fn install(scenario: &Scenario) -> Self {
        let folder = folder_for_all();
        let library = nvml_sim::library::install(&folder.path().join("lib"), &[]).unwrap();
        library.play(scenario).unwrap();
        Self { folder, library }
    }

    pub fn flag(&self) -> String {
        format!("--nvml-library-path={}", self.library.path().display())
    }
}

/// A folder that any user may enter.
pub fn folder_for_all() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The daemon where any user may start it: the build's folder may be closed to others.
pub fn bridge_for_all(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("gpu-ebpf-bridge");
    fs::copy(BRIDGE, &path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}
