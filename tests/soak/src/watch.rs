//! Those who read the maps all the while: through `map-reader`, through BPF programs, and by the commands for people and probes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use consumers::devices::Devices;
use consumers::events::{Events, Trigger};
use consumers::state::State;
use e2e::{Workload, binary, checks};
use map_reader::{Consistency, Reader, Snapshot, boottime_now_ns};

use crate::crowd::{Attendance, WORKER_MEMORY};
use crate::findings::Findings;
use crate::stage::Stage;

const READERS: usize = 2;
const GETPPID: Trigger = Trigger::SystemCall(nix::libc::SYS_getppid);
/// As the shipped gadgets have it.
const STALE_MS: u64 = 300;
/// A process that has left may be shown for so long. Lists of thousands of processes are dear, and asked for the more seldom.
const OVERDUE: Duration = Duration::from_secs(10);
/// A command that reads the maps and ends.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) snapshots: AtomicU64,
    pub(crate) verified: AtomicU64,
    pub(crate) most_processes: AtomicU64,
    pub(crate) longest_overdue_ms: AtomicU64,
    pub(crate) consumer_reads: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) dumps: AtomicU64,
    pub(crate) healths: AtomicU64,
}

/// The readers.
#[derive(Debug)]
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    seen: Arc<Seen>,
    findings: Arc<Findings>,
    threads: Vec<JoinHandle<()>>,
}

/// What each of them has.
#[derive(Debug, Clone)]
struct Post {
    pin_dir: PathBuf,
    daemon: u32,
    attendance: Arc<Mutex<Attendance>>,
    over: Arc<AtomicBool>,
    seen: Arc<Seen>,
    findings: Arc<Findings>,
}

impl Watch {
    pub(crate) fn start(stage: &mut Stage, findings: &Arc<Findings>) -> Self {
        let (over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let post = Post {
            pin_dir: stage.pins.path().to_owned(),
            daemon: stage.pid(),
            attendance: Arc::clone(&stage.attendance),
            over: Arc::clone(&over),
            seen: Arc::clone(&seen),
            findings: Arc::clone(findings),
        };
        let worker = stage.worker.take();
        let mut threads: Vec<JoinHandle<()>> = (0..READERS).map(|_| post.spawn("soak-reader", Post::read)).collect();
        threads.push(post.spawn("soak-consumers", move |post| post.consume(worker)));
        threads.push(post.spawn("soak-commands", Post::command));
        Self { over, seen, findings: Arc::clone(findings), threads }
    }

    /// Has them end; returns what they have seen.
    pub(crate) fn end(self) -> Arc<Seen> {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if let Err(panic) = thread.join() {
                let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
                self.findings.violation("a reader gave up", format!("{name}: {}", text.unwrap_or("it panicked")));
            }
        }
        if self.seen.events.load(Ordering::Relaxed) == 0 {
            self.findings.violation("events that a BPF program did not see", "none came in all the time".to_owned());
        }
        self.seen
    }
}

impl Post {
    fn spawn(&self, name: &str, work: impl FnOnce(Self) + Send + 'static) -> JoinHandle<()> {
        let post = self.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || work(post)).expect("a thread can be started")
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Snapshot after snapshot.
    fn read(self) {
        let reader = Reader::open(&self.pin_dir);
        let mut last_stamp = 0;
        while self.goes_on() {
            let snapshot = reader.snapshot();
            let now = boottime_now_ns().expect("a clock");
            self.demand("a snapshot from the future", checks::not_in_the_future(&snapshot, now));
            if snapshot.consistency == Consistency::Verified {
                self.demand("parts of a snapshot that do not agree", checks::round(&snapshot));
                self.demand("processes that have left", self.is_up_to_date(&snapshot));
                self.seen.verified.fetch_add(1, Ordering::Relaxed);
            }
            let stamp = snapshot.meta.map_or(0, |meta| meta.last_update_boottime_ns);
            if stamp < last_stamp {
                self.findings.violation("gpu_meta's time ran backwards", format!("{stamp} after {last_stamp}"));
            }
            last_stamp = stamp;
            self.seen.snapshots.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn is_up_to_date(&self, snapshot: &Snapshot) -> Result<(), String> {
        let (Ok(meta), Ok(processes)) = (&snapshot.meta, &snapshot.processes) else { return Ok(()) };
        self.seen.most_processes.fetch_max(processes.len() as u64, Ordering::Relaxed);
        let attendance = self.attendance.lock().unwrap_or_else(PoisonError::into_inner);
        for (pid, record) in processes {
            let Some(overdue) = attendance.overdue(*pid, meta.last_update_boottime_ns) else {
                return Err(format!("process {pid} never was on a GPU: {record:?}"));
            };
            self.seen.longest_overdue_ms.fetch_max(overdue.as_millis() as u64, Ordering::Relaxed);
            if overdue > OVERDUE {
                return Err(format!("process {pid} had left {overdue:?} before the round that shows it"));
            }
        }
        Ok(())
    }

    /// Programs in the kernel that hold the maps from the beginning.
    fn consume(self, worker: Option<Workload>) {
        let devices = Devices::open(&self.pin_dir).unwrap_or_else(|error| panic!("{error}"));
        let state = State::open(&self.pin_dir).unwrap_or_else(|error| panic!("{error}"));
        let mut events = Events::attach(&self.pin_dir, STALE_MS, GETPPID).unwrap_or_else(|error| panic!("{error}"));
        let mut worker = worker.expect("a worker");
        while self.goes_on() {
            let read = devices.read().map_err(|error| error.to_string());
            let ordered =
                read.and_then(|lines| if lines.is_sorted_by(|a, b| a.index < b.index) { Ok(()) } else { Err(format!("{lines:?}")) });
            self.demand("what a BPF program sees of the GPUs", ordered);
            let (bridge, _) = state.read().unwrap_or_else(|error| panic!("{error}"));
            let helper = bridge.map_or(0, |bridge| bridge.helper_pid);
            if helper != self.daemon {
                self.findings
                    .violation("what a BPF program sees of the bridge", format!("helper_pid {helper}, and the daemon is {}", self.daemon));
            }
            worker.getppid(3);
            for event in events.poll(Duration::from_millis(20)).unwrap_or_else(|error| panic!("{error}")) {
                if event.tgid != worker.pid() || event.gpu_memory_bytes != WORKER_MEMORY {
                    self.findings.violation("what a BPF program sees of a process", format!("{event:?}"));
                }
                self.seen.events.fetch_add(1, Ordering::Relaxed);
            }
            self.seen.consumer_reads.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// The bridge's own commands for reading.
    fn command(self) {
        let program = binary("gpu-ebpf-bridge");
        while self.goes_on() {
            for arguments in [&["--dump"] as &[&str], &["--health"], &["--dump", "--output=json"]] {
                let begun = Instant::now();
                let output = run(&program, &self.pin_dir, arguments);
                let health = arguments[0] == "--health";
                let counter = if health { &self.seen.healths } else { &self.seen.dumps };
                counter.fetch_add(1, Ordering::Relaxed);
                if let Err(why) = answered(&output, health) {
                    self.findings.violation("a command that reads the maps", format!("{arguments:?}: {why}"));
                }
                if begun.elapsed() > COMMAND_LIMIT {
                    self.findings.violation("a command that is slow", format!("{arguments:?}: {:?}", begun.elapsed()));
                }
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn demand(&self, kind: &'static str, result: Result<(), String>) {
        if let Err(what) = result {
            self.findings.violation(kind, what);
        }
    }
}

fn run(program: &Path, pin_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).arg("--pin-dir").arg(pin_dir).stdin(Stdio::null());
    command.output().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

/// Pins may be missing at any moment; nothing else may be amiss.
fn answered(output: &Output, health: bool) -> Result<(), String> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let fine = match (output.status.code(), health) {
        (Some(0), true) => out.starts_with("publishing:"),
        (Some(3), true) => out.starts_with("stale:"),
        (Some(4), true) => out.starts_with("no maps:"),
        (Some(0), false) => err.is_empty() && !out.is_empty(),
        (Some(1), false) => err.lines().all(|line| line.contains("is not pinned")),
        _ => false,
    };
    if fine { Ok(()) } else { Err(format!("{}; {}; {}", output.status, err.trim(), out.lines().next().unwrap_or_default())) }
}
