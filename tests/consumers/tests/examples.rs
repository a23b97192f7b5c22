//! The programs to copy, on a simulated driver: launches, ends of processes, starvation. First what they find, then what they print.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use consumers::exits::{Exits, GpuExit, Reason};
use consumers::launches::{Launch, Launches};
use consumers::starvation::{Starvation, Starvations, Thresholds};
use e2e::{Bpffs, Bridge, Sim, Workload, eventually};
use map_reader::boottime_now_ns;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nvml_sim::scenario::{Device, Load, Process, ProcessUtilization, Scenario};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// For tests of what is in the maps, not of when.
const LONG_MS: u64 = 60_000;

fn device(utilization: u32) -> Device {
    Device::default().utilization(utilization, 10).memory(80 * GIB, 2 * GIB, 0).process_utilization(ProcessUtilization::default())
}

/// A bridge that publishes a driver's GPUs, once it knows this process.
fn publish(device: Device, pid: u32) -> (Bpffs, Sim, Bridge) {
    let pins = Bpffs::mount();
    let sim = Sim::install(Scenario::new().device(device));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let is_sampled = |process: gpu_types::GpuPidMetricsAggregated| process.timestamp_ns != 0;
    bridge.wait_for_maps(&pins, "the process and its sample", |reader| reader.process(pid).unwrap().filter(|&p| is_sampled(p)).map(drop));
    (pins, sim, bridge)
}

/// A program that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn cc(arguments: &[&Path]) {
    let compiled = Command::new("cc").args(["-O2", "-Wall", "-Werror"]).args(arguments).status().expect("a C compiler");
    assert!(compiled.success());
}

/// A program that calls a function of a library, as one calls CUDA.
struct App {
    child: Running,
    answers: BufReader<ChildStdout>,
    library: PathBuf,
    _folder: TempDir,
}

impl App {
    fn start() -> Self {
        let source = |name| Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda-like").join(name);
        let folder = TempDir::with_prefix("cuda-like-").unwrap();
        let (library, program) = (folder.path().join("libcuda-like.so"), folder.path().join("train"));
        cc(&["-shared".as_ref(), "-fPIC".as_ref(), "-o".as_ref(), &library, &source("cuda.c")]);
        cc(&["-o".as_ref(), &program, &source("app.c"), &library]);
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child: Running(child), answers, library, _folder: folder }
    }

    fn pid(&self) -> u32 {
        self.child.0.id()
    }

    fn launch(&mut self, count: u32) {
        writeln!(self.child.0.stdin.as_mut().unwrap(), "{count}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }
}

#[test]
fn each_launch_is_stamped_with_utilization_and_throttle_reasons() {
    let mut app = App::start();
    let process = Process::compute(app.pid(), 384 * MIB).busy(Load::new(49, 17));
    let (pins, _sim, _bridge) = publish(device(71).event_reasons(0x24_u64).process(process), app.pid());
    let launches = Launches::attach(pins.path(), LONG_MS, &app.library, "cuLaunchKernel").unwrap();
    let before = boottime_now_ns().unwrap();
    app.launch(3);
    let received = launches.poll(Duration::ZERO).unwrap();
    assert_eq!(received.len(), 3, "{received:?}");
    for launch in received {
        assert!((before..=boottime_now_ns().unwrap()).contains(&launch.boottime_ns));
        let expected = Launch {
            boottime_ns: launch.boottime_ns,
            tgid: app.pid(),
            comm: "train".to_owned(),
            gpu_memory_bytes: 384 * MIB,
            sm_util_pct: 49,
            device_sm_util_pct: 71,
            throttle_reasons: 0x24,
            device: Some(0),
        };
        assert_eq!(launch, expected);
    }
    let mut stranger = App::start();
    let elsewhere = Launches::attach(pins.path(), LONG_MS, &stranger.library, "cuLaunchKernel").unwrap();
    stranger.launch(5);
    assert_eq!(elsewhere.poll(Duration::ZERO).unwrap(), [], "a process without a GPU");
}

/// A shell that waits for a line and then ends as the script says.
fn shell(script: &str) -> Running {
    let child = Command::new("sh").arg0("train").args(["-c", &format!("read line; {script}")]).stdin(Stdio::piped()).spawn().unwrap();
    Running(child)
}

/// The end of `process`, of which the maps know that it holds 384 MiB.
fn end_of(mut process: Running) -> GpuExit {
    let pid = process.0.id();
    let held = Process::compute(pid, 384 * MIB).busy(Load::new(49, 17));
    let (pins, _sim, _bridge) = publish(device(71).process(held), pid);
    let exits = Exits::attach(pins.path(), LONG_MS).unwrap();
    writeln!(process.0.stdin.take().unwrap(), "end").unwrap();
    process.0.wait().unwrap();
    let mut received =
        eventually("the end of the process", || Some(exits.poll(Duration::from_millis(10)).unwrap()).filter(|r| !r.is_empty()));
    assert_eq!(received.len(), 1, "one event a process: {received:?}");
    let exit = received.remove(0);
    assert_eq!((exit.tgid, exit.gpu_memory_bytes, exit.device), (pid, 384 * MIB, Some(0)));
    exit
}

#[test]
fn a_process_that_ends_is_told_with_its_memory_and_why() {
    let exit = end_of(shell("exit 7"));
    assert_eq!((exit.reason, exit.comm.as_str()), (Reason::Status(7), "sh"));
    assert_eq!(end_of(shell("kill -KILL $$")).reason, Reason::Signal(9));
}

/// A memory cgroup of the test's own, in a hierarchy mounted by the test.
struct MemoryCgroup {
    folder: TempDir,
    group: PathBuf,
}

impl MemoryCgroup {
    fn make(limit_bytes: u64) -> Self {
        let folder = TempDir::with_prefix("cgroup-").unwrap();
        let mount_as = |kind: &str, options| mount(Some("cgroup"), folder.path(), Some(kind), MsFlags::empty(), options);
        mount_as("cgroup2", None::<&str>).expect("mounting cgroup2, this test needs root");
        let controllers = fs::read_to_string(folder.path().join("cgroup.controllers")).unwrap();
        let unified = controllers.split_whitespace().any(|name| name == "memory");
        if unified {
            fs::write(folder.path().join("cgroup.subtree_control"), "+memory").expect("handing out the memory controller");
        } else {
            umount2(folder.path(), MntFlags::MNT_DETACH).unwrap();
            mount_as("cgroup", Some("memory")).expect("a kernel with the memory controller");
        }
        let group = folder.path().join(format!("gpu-exits-{}", std::process::id()));
        fs::create_dir(&group).expect("making a memory cgroup");
        let limit = if unified { "memory.max" } else { "memory.limit_in_bytes" };
        let this = Self { folder, group };
        fs::write(this.group.join(limit), limit_bytes.to_string()).expect("limiting a memory cgroup");
        this
    }

    fn procs(&self) -> String {
        self.group.join("cgroup.procs").display().to_string()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A process that was just killed keeps it busy for a moment.
        let removed = e2e::until(Duration::from_secs(5), || fs::remove_dir(&self.group).ok());
        umount2(self.folder.path(), MntFlags::MNT_DETACH).unwrap();
        assert!(removed.is_some() || thread::panicking(), "cannot remove {}", self.group.display());
    }
}

#[test]
fn a_process_that_the_kernel_kills_for_want_of_memory_is_told_as_that() {
    let group = MemoryCgroup::make(16 * MIB);
    // It stays the same process and takes more memory than it may.
    let script = format!("echo $$ > {}; exec dd if=/dev/zero of=/dev/null bs=500M count=1 status=none", group.procs());
    let exit = end_of(shell(&script));
    assert_eq!(exit.reason, Reason::OutOfMemory);
}

#[test]
fn a_busy_thread_whose_gpu_has_been_idle_is_starving_it() {
    let mut workload = Workload::start("loader");
    let process = Process::compute(workload.pid(), 384 * MIB).busy(Load::new(1, 1));
    let (pins, mut sim, mut bridge) = publish(device(1).process(process), workload.pid());
    let thresholds =
        Thresholds { on_cpu: Duration::from_millis(5), idle: Duration::from_millis(200), stale_ms: LONG_MS, ..Thresholds::default() };
    let starvations = Starvations::attach(pins.path(), &thresholds).unwrap();
    let first = eventually("a starving GPU", || {
        workload.burn(30);
        starvations.poll(Duration::ZERO).unwrap().into_iter().next()
    });
    assert!(first.idle >= thresholds.idle && first.on_cpu >= thresholds.on_cpu, "{first:?}");
    assert!(first.idle < Duration::from_secs(60), "idle time on the wrong clock: {first:?}");
    let expected = Starvation {
        tgid: workload.pid(),
        tid: workload.pid(),
        comm: "loader".to_owned(),
        gpu_memory_bytes: 384 * MIB,
        device: 0,
        device_sm_util_pct: 1,
        ..first.clone()
    };
    assert_eq!(first, expected);

    workload.sleep(50);
    starvations.poll(Duration::ZERO).unwrap();
    for _ in 0..10 {
        workload.sleep(1);
    }
    assert_eq!(starvations.poll(Duration::ZERO).unwrap(), [], "a thread that waits starves nobody");

    sim.change(0, |device| device.utilization(80, 10));
    bridge.wait_for_maps(&pins, "a busy GPU", |reader| reader.device(0).unwrap().filter(|device| device.sm_util_pct == 80).map(drop));
    // It may have been on the CPU at the last idle moment.
    workload.burn(20);
    starvations.poll(Duration::ZERO).unwrap();
    workload.burn(100);
    assert_eq!(starvations.poll(Duration::ZERO).unwrap(), [], "the GPU has something to do");
}

/// The first line that a program under `examples/` prints while `act` is done again and again.
fn first_line_of(name: &str, arguments: &[&OsStr], mut act: impl FnMut()) -> String {
    // Examples are built with the tests, into a folder beside theirs.
    let own = env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("examples").join(name);
    let mut command = Command::new(&program);
    let child = command.args(arguments).stdout(Stdio::piped()).spawn();
    let mut child = Running(child.unwrap_or_else(|error| panic!("{}: {error}; cargo build -p consumers --examples", program.display())));
    let mut stdout = BufReader::new(child.0.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        line
    });
    eventually(name, || {
        act();
        reader.is_finished().then_some(())
    });
    reader.join().unwrap()
}

#[test]
fn the_programs_print_the_lines_that_the_documentation_shows() {
    let mut app = App::start();
    let pid = app.pid();
    let process = Process::compute(pid, 384 * MIB).busy(Load::new(49, 17));
    let (pins, _sim, _bridge) = publish(device(71).event_reasons(0x24_u64).process(process), pid);
    let library = app.library.clone();
    let line = first_line_of("gpu_launches", &[pins.path().as_ref(), library.as_ref(), "cuLaunchKernel".as_ref()], || app.launch(1));
    assert_eq!(line, format!("train ({pid}) launches while it holds 384 MiB and GPU 0 is at 71 %, slowed by 0x24\n"));

    let mut processes: Vec<_> = (0..100).map(|_| shell("kill -KILL $$")).collect();
    let held = |device: Device, process: &Running| device.process(Process::compute(process.0.id(), 384 * MIB));
    let first = processes[99].0.id();
    let sim = Sim::install(Scenario::new().device(processes.iter().fold(device(71), held)));
    let pins = Bpffs::mount();
    let mut bridge = sim.bridge(&pins, "50ms").start();
    bridge.wait_for_maps(&pins, "the processes", |reader| reader.process(first).unwrap().map(drop));
    let mut ended = Vec::new();
    let line = first_line_of("gpu_exits", &[pins.path().as_ref()], || {
        let mut process = processes.pop().expect("a process that has not ended");
        writeln!(process.0.stdin.take().unwrap(), "end").unwrap();
        process.0.wait().unwrap();
        ended.push(process.0.id());
        thread::sleep(Duration::from_millis(200));
    });
    let expected = |pid: &u32| format!("sh ({pid}) was killed by signal 9; it held 384 MiB of GPU memory\n");
    assert!(ended.iter().map(expected).any(|expected| expected == line), "{line}");

    let mut workload = Workload::start("loader");
    let process = Process::compute(workload.pid(), GIB).busy(Load::new(1, 1));
    let (pins, _sim, _bridge) = publish(device(1).process(process), workload.pid());
    let line = first_line_of("gpu_starvation", &[pins.path().as_ref()], || workload.burn(30));
    let start = format!("loader ({}) was on a CPU for ", workload.pid());
    assert!(line.starts_with(&start) && line.contains("; GPU 0 has been idle for "), "{line}");
}
