//! The daemon, as a child process.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use map_reader::Reader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes::children;
use crate::{Bpffs, WAIT, binary, until};

/// How a bridge is to be started.
#[derive(Debug, Default)]
pub struct BridgeBuilder {
    /// A program and its arguments that run the bridge.
    runner: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl BridgeBuilder {
    /// Has it run in a mount namespace of its own, as in a container, in which the folder `from` is at `to` too.
    #[must_use]
    pub fn in_container(mut self, from: &Path, to: &Path) -> Self {
        let script = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
        let unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script];
        self.runner = unshare.into_iter().map(Into::into).chain([from.into(), to.into()]).collect();
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When the binary is not built or cannot be started.
    #[must_use]
    pub fn start(self) -> Bridge {
        let program = binary("gpu-ebpf-bridge");
        let mut words = self.runner.into_iter().chain([program.clone().into()]);
        let mut child = Command::new(words.next().expect("a program"))
            .args(words)
            .args(&self.arguments)
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let stdout = Lines::collect("bridge-stdout", child.stdout.take().expect("stdout is a pipe"));
        let stderr = Lines::collect("bridge-stderr", child.stderr.take().expect("stderr is a pipe"));
        Bridge { child, stdout, stderr, ended: None }
    }
}

/// A running daemon. Killed at the end, and shown what it logged when the test fails.
#[derive(Debug)]
pub struct Bridge {
    child: Child,
    stdout: Lines,
    stderr: Lines,
    ended: Option<ExitStatus>,
}

/// How a bridge ended.
#[derive(Debug)]
pub struct Exit {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// From the call to the end.
    pub took: Duration,
    /// What it wrote to its standard output.
    pub stdout: String,
    /// What it logged.
    pub stderr: String,
}

impl Bridge {
    /// A bridge that publishes into `pins` in this mode at this interval.
    #[must_use]
    pub fn builder(pins: &Bpffs, mode: &str, poll_interval: &str) -> BridgeBuilder {
        Self::at(pins.path()).arg(format!("--mode={mode}")).arg(format!("--poll-interval={poll_interval}"))
    }

    /// A bridge with this pin directory and nothing else said.
    #[must_use]
    pub fn at(pin_dir: &Path) -> BridgeBuilder {
        BridgeBuilder::default().arg("--pin-dir").arg(pin_dir)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    /// How many lines of the log so far contain `text`.
    #[must_use]
    pub fn count_in_log(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    /// Its sampler: its only child.
    ///
    /// # Panics
    /// When there is none, or more.
    #[must_use]
    #[track_caller]
    pub fn sampler(&self) -> u32 {
        let children = children(self.pid());
        assert_eq!(children.len(), 1, "the sampler and no other: {children:?}; the bridge logged:\n{}", self.log());
        children[0]
    }

    /// Waits until the condition holds, while the bridge runs.
    ///
    /// # Panics
    /// When it does not hold in time or the bridge ends, with what was waited for and the bridge's log.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        self.ask_until(ask).unwrap_or_else(|why| self.give_up(what, &why))
    }

    fn ask_until<T>(&mut self, mut ask: impl FnMut() -> Option<T>) -> Result<T, String> {
        let answer = until(WAIT, || match self.child.try_wait().expect("the bridge's state can be asked") {
            // It may have come to the condition before it ended.
            Some(status) => Some(ask().ok_or(format!("the bridge ended ({status})"))),
            None => ask().map(Ok),
        });
        answer.unwrap_or_else(|| Err(format!("it did not come in {} s", WAIT.as_secs())))
    }

    #[track_caller]
    fn give_up(&self, what: &str, why: &str) -> ! {
        panic!("waited in vain for {what}: {why}; the bridge logged:\n{}", self.log())
    }

    /// Waits until the bridge has logged a line that contains `text`, and returns the line.
    #[track_caller]
    pub fn wait_for_log(&mut self, text: &str) -> String {
        let lines = self.stderr.clone();
        self.wait_for(&format!("the log line {text:?}"), || lines.text().lines().find(|line| line.contains(text)).map(str::to_owned))
    }

    /// Waits until this bridge, and not one before it, has published a round into `pins`, and returns a reader of its maps.
    #[track_caller]
    pub fn wait_until_published(&mut self, pins: &Bpffs) -> Reader {
        self.wait_for_maps(pins, "a first round", |_| Some(()))
    }

    /// Waits until the maps in `pins` are of this bridge and satisfy the condition, and returns a reader of them.
    #[track_caller]
    pub fn wait_for_maps<T>(&mut self, pins: &Bpffs, what: &str, mut ask: impl FnMut(&Reader) -> Option<T>) -> Reader {
        let pid = self.pid();
        let answer = self.ask_until(|| {
            let reader = Reader::open(pins.path());
            let published = reader.meta().is_ok_and(|meta| meta.helper_pid == pid && meta.last_update_boottime_ns > 0);
            (published && ask(&reader).is_some()).then_some(reader)
        });
        answer.unwrap_or_else(|why| self.give_up(what, &format!("{why}; the maps hold {:#?}", Reader::open(pins.path()).snapshot())))
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process id"));
        kill(pid, signal).unwrap_or_else(|error| panic!("cannot send {signal} to the bridge: {error}; it logged:\n{}", self.log()));
    }

    /// Sends it a signal and waits for its end.
    #[track_caller]
    pub fn stop(self, signal: Signal) -> Exit {
        self.signal(signal);
        self.wait()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end in time.
    #[track_caller]
    pub fn wait(mut self) -> Exit {
        let start = Instant::now();
        let status = until(WAIT, || self.child.try_wait().expect("the bridge's state can be asked"));
        let Some(status) = status else {
            panic!("waited {} s in vain for the bridge's end; it logged:\n{}", WAIT.as_secs(), self.log());
        };
        let took = start.elapsed();
        self.ended = Some(status);
        Exit { code: status.code(), took, stdout: self.stdout.finish(), stderr: self.stderr.finish() }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Both fail only for a process that is already gone.
            self.child.kill().ok();
            self.child.wait().ok();
        }
        if thread::panicking() {
            // Captured by the test runner, shown with the failed test.
            eprintln!("the bridge logged:\n{}", self.log());
        }
    }
}

/// The lines that a child writes, collected by a thread so that the child never waits for a full pipe.
#[derive(Debug, Clone)]
struct Lines {
    text: Arc<Mutex<String>>,
    reader: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Lines {
    fn collect(name: &str, pipe: impl std::io::Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&text);
        let reader = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let mut pipe = BufReader::new(pipe);
                let mut line = Vec::new();
                while pipe.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
                    line.clear();
                }
            })
            .expect("a thread can be started");
        Self { text, reader: Arc::new(Mutex::new(Some(reader))) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything, once the child is gone. A grandchild that holds the pipe open is not waited for.
    fn finish(&self) -> String {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            until(Duration::from_secs(2), || reader.is_finished().then_some(()));
        }
        self.text()
    }
}
