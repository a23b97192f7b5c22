//! The systemd unit, judged by systemd, and the script that it runs after a stop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};

use deploy::artifacts::{debug_program, output, source, succeed};
use map_reader::Reader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use test_support::{Bpffs, WAIT, until};

const UNIT: &str = "deploy/systemd/gpu-ebpf-bridge.service";

#[test]
fn systemd_finds_nothing_wrong() {
    let folder = TempDir::new().unwrap();
    // The programs' paths as they are before an installation; nothing else is changed.
    let unit = fs::read_to_string(source(UNIT)).unwrap();
    let unit = unit
        .replace("=/usr/bin/gpu-ebpf-bridge", &format!("={}", debug_program("gpu-ebpf-bridge").display()))
        .replace("=+/usr/lib/gpu-ebpf-bridge/after-stop", &format!("=+{}", source("deploy/systemd/after-stop").display()));
    let unit = unit.replace("man:gpu-ebpf-bridge(8) ", "");
    let file = folder.path().join("gpu-ebpf-bridge.service");
    fs::write(&file, unit).unwrap();
    let said = output(Command::new("systemd-analyze").arg("verify").arg(&file));
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    let own: Vec<_> = text.lines().filter(|line| line.contains("gpu-ebpf-bridge")).collect();
    assert!(said.status.success() && own.is_empty(), "{text}");
}

/// At most so many tenths.
fn check_exposure(unit: &Path, tenths: u32) {
    let mut judge = Command::new("systemd-analyze");
    let said = succeed(judge.args(["security", "--offline=true", "--no-pager", &format!("--threshold={tenths}")]).arg(unit));
    assert!(said.contains("Overall exposure level for gpu-ebpf-bridge.service: 1."), "{said}");
}

#[test]
fn its_exposure_is_small() {
    check_exposure(&source(UNIT), 15);
}

#[test]
fn two_capabilities_more_expose_it_not_much_more() {
    let folder = TempDir::new().unwrap();
    let unit = folder.path().join("gpu-ebpf-bridge.service");
    // As systemd joins them; its judge of files looks at no drop-ins.
    let [unit_text, drop_in] =
        [UNIT, "deploy/systemd/processes-of-other-vendors.conf"].map(|file| fs::read_to_string(source(file)).unwrap());
    fs::write(&unit, format!("{unit_text}\n{drop_in}")).unwrap();
    check_exposure(&unit, 19);
}

#[test]
fn the_program_takes_the_units_arguments() {
    let unit = fs::read_to_string(source(UNIT)).unwrap();
    let words: Vec<_> =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/gpu-ebpf-bridge ")).unwrap().split(' ').collect();
    let (last, flags) = words.split_last().unwrap();
    assert_eq!(*last, "$GPU_EBPF_BRIDGE_FLAGS");
    succeed(Command::new(debug_program("gpu-ebpf-bridge")).args(flags).arg("--version"));
    let defaults = fs::read_to_string(source("deploy/systemd/gpu-ebpf-bridge.default")).unwrap();
    let flags = defaults.lines().find_map(|line| line.strip_prefix("#GPU_EBPF_BRIDGE_FLAGS=")).unwrap().trim_matches('"').split(' ');
    succeed(Command::new(debug_program("gpu-ebpf-bridge")).args(flags).arg("--version"));
}

/// A bridge that was stopped with its maps still pinned, and what the unit runs then.
struct Stopped {
    pins: Bpffs,
    folder: TempDir,
}

impl Stopped {
    fn new() -> Self {
        let pins = Bpffs::mount();
        let mut bridge = bridge(&pins);
        until(WAIT, || Reader::open(pins.path()).meta().is_ok_and(|meta| meta.last_update_boottime_ns > 0).then_some(()))
            .expect("a first round");
        kill(Pid::from_raw(bridge.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        assert!(bridge.wait().unwrap().success());
        assert!(!pins.pins().is_empty());
        Self { pins, folder: TempDir::new().unwrap() }
    }

    /// Runs the script with a systemctl that lists this job, and gives what is pinned then.
    fn after_stop(&self, result: &str, job: &str) -> Vec<String> {
        let systemctl = self.folder.path().join("systemctl");
        fs::write(&systemctl, format!("#!/bin/sh\necho '{job}'\n")).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        let script = fs::read_to_string(source("deploy/systemd/after-stop")).unwrap();
        let script = script.replace("=/usr/bin/gpu-ebpf-bridge", &format!("={}", debug_program("gpu-ebpf-bridge").display()));
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        succeed(
            Command::new("sh")
                .args(["-c", &script, "after-stop"])
                .arg(format!("--pin-dir={}", self.pins.path().display()))
                .env("PATH", path)
                .env("SERVICE_RESULT", result),
        );
        self.pins.pins()
    }
}

fn bridge(pins: &Bpffs) -> Child {
    Command::new(debug_program("gpu-ebpf-bridge")).args(["--mode=mock", "--keep-pins", "--pin-dir"]).arg(pins.path()).spawn().unwrap()
}

#[test]
fn after_a_stop_the_maps_are_removed() {
    let stopped = Stopped::new();
    assert!(stopped.after_stop("success", "120 gpu-ebpf-bridge.service stop running").is_empty());
}

#[test]
fn for_a_restart_they_are_kept() {
    let stopped = Stopped::new();
    assert_eq!(stopped.after_stop("success", "120 gpu-ebpf-bridge.service restart running").len(), 5);
    assert_eq!(stopped.after_stop("watchdog", "").len(), 5);
    // The job of another unit is none of ours.
    assert!(stopped.after_stop("success", "121 another.service restart waiting").is_empty());
}
