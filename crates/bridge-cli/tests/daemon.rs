//! The daemon as a process: its life from start to signal, its log, its exit statuses. The data is the mock source's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{
    fs,
    io::{PipeReader, Read, Write},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use bridge_cli::signals::GRACE;
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use nvml_sim::scenario::{Device, Load, Process, Scenario};
use tempfile::TempDir;
use test_support::Bpffs;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running daemon, killed when the test ends early.
struct Daemon(Child);

impl Daemon {
    fn start(pin_dir: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-ebpf-bridge"));
        command.arg("--mode=mock").arg("--pin-dir").arg(pin_dir).args(arguments);
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for the first publication to be visible through `--dump`.
    fn publishing(mut self, pin_dir: &Path) -> Self {
        let deadline = Instant::now() + PATIENCE;
        while !dump(pin_dir).1.contains("[device 1]") {
            if let Some(status) = self.0.try_wait().unwrap() {
                panic!("the daemon ended: {status}: {}", self.end().1);
            }
            assert!(Instant::now() < deadline, "nothing was published in {PATIENCE:?}");
            thread::sleep(Duration::from_millis(10));
        }
        self
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    /// Its exit status and its log, when it has ended.
    fn end(mut self) -> (ExitStatus, String) {
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        let status = self.0.wait().unwrap();
        let mut stdout = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        assert!(stdout.is_empty(), "standard output is for data");
        (status, log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has usually ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn dump(pin_dir: &Path) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-ebpf-bridge")).arg("--dump").arg("-pin-dir").arg(pin_dir).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// `2025-01-31T12:00:00.000Z LEVEL message`.
#[track_caller]
fn check_log_line(line: &str) {
    let (time, rest) = line.split_at_checked(24).unwrap_or_else(|| panic!("{line:?}"));
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{line:?}");
    assert!([" DEBUG ", " INFO  ", " WARN  ", " ERROR "].iter().any(|level| rest.starts_with(level)), "{line:?}");
    assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
}

#[test]
fn a_signal_empties_and_unpins_the_maps_and_ends_with_status_0() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let bpffs = Bpffs::mount();
        let daemon = Daemon::start(bpffs.path(), &[]).publishing(bpffs.path());
        daemon.signal(signal);
        let (status, log) = daemon.end();
        // Within the grace: after it the status is 1.
        assert_eq!(status.code(), Some(0), "{signal}: {log}");
        assert_eq!(bpffs.pins(), Vec::<String>::new(), "{signal}");
        assert!(log.contains(&format!("{signal} received")), "{log}");
    }
}

#[test]
fn under_nohup_a_closed_terminal_is_outlived() {
    let bpffs = Bpffs::mount();
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_gpu-ebpf-bridge")).arg("--mode=mock").arg("--pin-dir").arg(bpffs.path());
    let daemon = Daemon::spawn(&mut nohup).publishing(bpffs.path());
    daemon.signal(Signal::SIGHUP);
    thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("SIGTERM received") && !log.contains("SIGHUP"), "{log}");
}

#[test]
fn keep_pins_leaves_the_maps_with_their_data() {
    let bpffs = Bpffs::mount();
    let daemon = Daemon::start(bpffs.path(), &["-keep-pins"]).publishing(bpffs.path());
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let (status, stdout, stderr) = dump(bpffs.path());
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("[device 0]") && stdout.contains("[pid "), "{stdout}");
    for (form, text) in [("json", "\"sm_util_pct\": "), ("table", "  MOCK GPU model 0  ")] {
        let arguments = ["--dump", "--output", form, "--pin-dir"];
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-ebpf-bridge")).args(arguments).arg(bpffs.path()).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && stdout.contains(text), "{form}: {stdout}");
    }
}

#[test]
fn a_dump_without_maps_names_them_and_ends_with_status_1() {
    let bpffs = Bpffs::mount();
    let (status, _, stderr) = dump(bpffs.path());
    assert_eq!(status, Some(1));
    for map in ["gpu_meta", "gpu_device", "gpu_per_pid", "gpu_per_pid_per_device"] {
        assert!(stderr.contains(map), "{stderr}");
    }
}

#[test]
fn the_log_is_one_plain_line_an_event_and_its_level_is_the_flags() {
    let bpffs = Bpffs::mount();
    let log_of = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-ebpf-bridge"));
        command.arg("--mode=mock").arg("--pin-dir").arg(bpffs.path()).args(arguments).env("RUST_LOG", "trace");
        let daemon = Daemon::spawn(&mut command).publishing(bpffs.path());
        daemon.signal(Signal::SIGTERM);
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{log}");
        log.lines().for_each(check_log_line);
        log
    };
    let info = log_of(&["--poll-interval=500ms", "--idle-if-no-gpu"]);
    assert!(info.contains("INFO  ") && !info.contains("DEBUG "), "{info}");
    assert!(info.contains(env!("CARGO_PKG_VERSION")) && info.contains(&*bpffs.path().to_string_lossy()), "no start line: {info}");
    assert!(info.contains("WARN  --poll-interval 500ms is above 150ms") && info.contains("WARN  --idle-if-no-gpu has no effect"), "{info}");
    assert!(log_of(&["--log-level=DEBUG"]).contains("DEBUG "));
    assert_eq!(log_of(&["--log-level=error"]), "");
    let warn = log_of(&["--log-level=Warning", "--poll-interval=500us"]);
    assert!(warn.contains("WARN  --poll-interval 500µs is below 1ms") && !warn.contains("INFO  "), "{warn}");
}

#[test]
fn a_directory_outside_a_bpf_file_system_is_refused_with_the_remedy_and_left_empty() {
    let directory = TempDir::new().unwrap();
    for pin_dir in [directory.path().to_owned(), directory.path().join("sub/dir")] {
        let (status, log) = Daemon::start(&pin_dir, &[]).end();
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with("gpu-ebpf-bridge: ") && last.contains("mount -t bpf"), "{log}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn without_nvml_mode_real_fails_and_mode_auto_invents_with_a_warning() {
    let bpffs = Bpffs::mount();
    let nowhere = "--nvml-library-path=/nowhere/libnvidia-ml.so.1";
    let (status, log) = Daemon::start(bpffs.path(), &["--mode=real", nowhere]).end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(
        log.lines().last().is_some_and(|last| last.starts_with("gpu-ebpf-bridge: ") && last.contains("/nowhere/libnvidia-ml.so.1")),
        "{log}"
    );
    assert_eq!(bpffs.pins(), Vec::<String>::new());

    let daemon = Daemon::start(bpffs.path(), &["--mode=auto", nowhere]).publishing(bpffs.path());
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(
        log.lines().any(|line| line.contains("WARN  ") && line.contains("/nowhere/libnvidia-ml.so.1") && line.contains("INVENTED")),
        "{log}"
    );
}

/// A daemon whose log is a full pipe that nobody reads: it hangs in its first line. The pipe's end comes with it.
fn held_up(pin_dir: &Path) -> (Child, PipeReader) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-ebpf-bridge"));
    command.arg("--mode=mock").arg("--log-level=debug").arg("--pin-dir").arg(pin_dir);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    wait_for(&child, "signals blocked", |status| signals(status, "SigBlk") & TERM != 0);
    (child, reader)
}

const TERM: u64 = 1 << (Signal::SIGTERM as i32 - 1);

/// A mask of signals in `/proc/PID/status`.
fn signals(status: &str, field: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

fn wait_for(child: &Child, what: &str, holds: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(&fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap()) {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn terminate(child: &Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
}

#[test]
fn the_sidecars_command_line_publishes_what_the_hosts_library_reports() {
    let bpffs = Bpffs::mount();
    let host = TempDir::new().unwrap();
    let libraries = host.path().join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let nvml = nvml_sim::library::install(&libraries, &[]).unwrap();
    let process = Process::compute(std::process::id(), 512 << 20).busy(Load::new(70, 30));
    nvml.play(&Scenario::new().device(Device::a100().process(process)).device(Device::t4())).unwrap();

    let host_path = format!("--host-path={}", host.path().display());
    let sidecar = ["--mode=real", "--poll-interval=500ms", "--log-level=info", "--keep-pins=false", "--idle-if-no-gpu"];
    let arguments = [sidecar.as_slice(), &[&host_path, "--symlink-nvidia-devs"]].concat();
    let daemon = Daemon::start(bpffs.path(), &arguments).publishing(bpffs.path());
    let (status, stdout, stderr) = dump(bpffs.path());
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains(&format!("[pid {}] ", std::process::id())) && stdout.contains("UsedGpuMemoryTotal:536870912 "), "{stdout}");
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(bpffs.pins(), Vec::<String>::new());
}

#[test]
fn a_second_signal_ends_a_daemon_that_is_held_up_at_once() {
    let bpffs = Bpffs::mount();
    let (mut child, _unread) = held_up(bpffs.path());
    terminate(&child);
    // The same signal twice at once counts as one.
    wait_for(&child, "the first signal taken", |status| signals(status, "ShdPnd") & TERM == 0);
    terminate(&child);
    thread::sleep(Duration::from_millis(400));
    assert_eq!(child.try_wait().unwrap(), None, "ended by an echo");
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_daemon_that_is_held_up_ends_all_the_same() {
    let bpffs = Bpffs::mount();
    let (mut child, _unread) = held_up(bpffs.path());
    let sent = Instant::now();
    terminate(&child);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(sent.elapsed() >= GRACE, "ended after {:?}", sent.elapsed());
}

#[test]
fn the_hosts_device_files_are_linked_in_any_mode() {
    let bpffs = Bpffs::mount();
    let host = TempDir::new().unwrap();
    fs::create_dir(host.path().join("dev")).unwrap();
    for name in ["nvidia0", "nvidiactl"] {
        fs::write(host.path().join("dev").join(name), "").unwrap();
    }
    let listing = host.path().join("listing");
    // A /dev of the daemon's own, in a mount namespace of its own.
    let script = r#"set -e
        mount -t tmpfs none /dev
        mknod -m 666 /dev/null c 1 3
        : > /dev/nvidiactl
        "$BRIDGE" --mode=mock --pin-dir "$PINS" --host-path="$HOST" --symlink-nvidia-devs 2>"$HOST/log" &
        n=0
        until "$BRIDGE" --dump --pin-dir "$PINS" 2>&1 | grep -q 'device 1'; do n=$((n + 1)); [ $n -lt 300 ]; sleep 0.1; done
        readlink /dev/nvidia0 > "$HOST/listing"
        kill $!
        wait $!"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.env("BRIDGE", env!("CARGO_BIN_EXE_gpu-ebpf-bridge")).env("PINS", bpffs.path()).env("HOST", host.path());
    let output = command.output().unwrap();
    let log = fs::read_to_string(host.path().join("log")).unwrap();
    assert!(output.status.success(), "{output:?}\n{log}");
    assert_eq!(fs::read_to_string(listing).unwrap().trim_end(), host.path().join("dev/nvidia0").to_str().unwrap());
    assert!(log.contains("WARN  /dev/nvidiactl is left alone") && log.contains("linked 1 of 2"), "{log}");
}

#[test]
fn the_driver_is_let_go_of_and_taken_up_again_on_request() {
    let bpffs = Bpffs::mount();
    let daemon = Daemon::start(bpffs.path(), &[]).publishing(bpffs.path());
    daemon.signal(Signal::SIGUSR1);
    let deadline = Instant::now() + PATIENCE;
    while dump(bpffs.path()).1.contains("[device ") {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for empty maps");
        thread::sleep(Duration::from_millis(10));
    }
    daemon.signal(Signal::SIGUSR2);
    let daemon = daemon.publishing(bpffs.path());
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("SIGUSR1 received") && log.contains("SIGUSR2 received"), "{log}");
}

#[test]
fn a_host_path_that_is_not_mounted_draws_a_warning() {
    let bpffs = Bpffs::mount();
    let daemon = Daemon::start(bpffs.path(), &["--host-path=/nowhere/host", "--symlink-nvidia-devs"]).publishing(bpffs.path());
    daemon.signal(Signal::SIGTERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("WARN  --host-path /nowhere/host is not a directory"), "{log}");
}
