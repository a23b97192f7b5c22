//! The program `gpu-events`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Record, boottime, meta, process, write, write_meta};
use e2e::{Bpffs, Workload, eventually};

fn gpu_events(pin_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-events"));
    command.arg("--pin-dir").arg(pin_dir);
    command
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

/// Makes the pins and fills them for a process.
fn fill(pins: &Bpffs, workload: &Workload) {
    run(gpu_events(pins.path()).args(["--seconds", "0"]));
    let device = Record::new(common::DEVICE_BYTES)
        .u64(0, 1)
        .u32(8, 71)
        .u32(12, 53)
        .u64(16, 85_899_345_920)
        .u64(24, 1 << 30)
        .u32(40, 64)
        .u32(44, 412_345)
        .u32(48, 1980)
        .u64(64, 123)
        .u64(72, 456);
    write(pins.path(), "gpu_device", 1_u32, &device);
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(0, 268_435_456, 38, 21, 1, 1));
    write_meta(pins.path(), &meta(boottime(), 0));
}

#[test]
fn devices_and_tasks_are_printed_once() {
    let pins = Bpffs::mount();
    let workload = Workload::start("train");
    fill(&pins, &workload);
    assert_eq!(
        lines(&run(gpu_events(pins.path()).arg("--devices"))),
        [
            "GPU   SM %  MEM %        USED       TOTAL   TEMP     POWER  SM MHz  PCIe TX kB/s  PCIe RX kB/s",
            "  1     71     53     1.0 GiB    80.0 GiB   64 C   412.3 W    1980           123           456",
        ]
    );
    assert_eq!(
        lines(&run(gpu_events(pins.path()).arg("--tasks"))),
        [
            "    PID  COMM              GPU  GPU MEMORY   SM %  MEM %".to_owned(),
            format!("{:>7}  train               1   256.0 MiB     38     21", workload.pid()),
        ]
    );
}

#[test]
fn watching_shows_joined_events_up_to_the_limit_and_once_a_period_for_each_process() {
    let pins = Bpffs::mount();
    let mut workload = Workload::start("train");
    let mut other = Workload::start("other");
    fill(&pins, &workload);
    write(pins.path(), "gpu_per_pid", other.pid(), &process(0, 1, 1, 1, 1, 1));

    let start = Instant::now();
    let watching = gpu_events(pins.path())
        .args(["--seconds", "60", "--limit", "3", "--comm", "train", "--stale-ms", "60000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let watching = thread::spawn(move || watching.wait_with_output().unwrap());
    eventually("three shown events", || {
        workload.sleep(1);
        other.sleep(1);
        watching.is_finished().then_some(())
    });
    let output = watching.join().unwrap();
    assert!(output.status.success());
    assert!(start.elapsed() >= Duration::from_millis(400), "three lines of one process, 200 ms apart");

    let lines = lines(&output);
    let [heading, events @ .., summary] = &lines[..] else { panic!("{lines:?}") };
    assert!(heading.contains("PID") && heading.contains("GPU MEMORY"), "{heading}");
    assert_eq!(events.len(), 3, "{lines:?}");
    for event in events {
        let fields: Vec<&str> = event.split_whitespace().collect();
        let pid = workload.pid().to_string();
        assert_eq!(fields[1..], [&pid, "train", "switch", "1", "256.0", "MiB", "38", "21", "71", "none"], "{event}");
    }
    assert!(summary.starts_with("3 shown, "), "{summary}");
}

#[test]
fn watching_ends_in_time_when_nothing_happens() {
    let pins = Bpffs::mount();
    let start = Instant::now();
    let output = run(gpu_events(pins.path()).args(["--seconds", "1"]));
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(lines(&output).len(), 2);
    assert_eq!(lines(&output)[1], "0 shown, 0 more held back (one line per process every 200 ms)");
}

#[test]
fn a_directory_that_cannot_hold_pins_is_named_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpu_events(folder.path()).arg("--devices").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = format!("gpu-events: cannot load gpu_devices with the maps pinned in {}: ", folder.path().display());
    assert!(stderr.lines().any(|line| line.starts_with(&expected)), "{stderr}");
}

#[test]
fn a_reader_that_closes_its_end_is_no_failure() {
    let pins = Bpffs::mount();
    let mut child = gpu_events(pins.path()).args(["--seconds", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
