//! `--health` on real maps, and on the real daemon in each of its states.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{fs, process};

use common::{BRIDGE, Daemon, NO_LIBRARY, Sim, health, output};
use gpu_types::{GpuBridgeState, GpuMeta};
use map_publisher::{Options, Publisher, Records};
use map_reader::boottime_now_ns;
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Scenario};
use test_support::{Bpffs, eventually};

const SECOND_NS: u64 = 1_000_000_000;

/// Maps as a bridge of this process's PID writes them.
struct Maps {
    pins: Bpffs,
    publisher: Publisher,
}

impl Maps {
    fn new() -> Self {
        let pins = Bpffs::mount();
        let publisher = Publisher::open(&Options::new(pins.path(), process::id(), boottime_now_ns().unwrap())).unwrap();
        Self { pins, publisher }
    }

    /// A round of this age.
    fn publish(&mut self, age_ns: u64) {
        self.publish_as(1, age_ns);
    }

    fn publish_as(&mut self, schema_version: u32, age_ns: u64) {
        let now = boottime_now_ns().unwrap();
        let meta = GpuMeta {
            schema_version,
            n_devices: 2,
            helper_pid: process::id(),
            last_update_boottime_ns: now - age_ns,
            ..GpuMeta::default()
        };
        self.publisher.publish(&Records { meta, ..Records::default() }).unwrap();
    }

    fn set(&mut self, change: impl FnOnce(&mut GpuBridgeState)) {
        self.publisher.set_state(change);
    }

    #[track_caller]
    fn check(&self, arguments: &[&str], status: i32, begin: &str) -> String {
        let (found, line) = health(self.pins.path(), arguments);
        assert!(found == status && line.starts_with(begin), "{found}: {line}");
        line
    }
}

#[test]
fn age_decides_by_the_interval_or_as_asked() {
    let mut maps = Maps::new();
    maps.check(&[], 3, "stale: nothing was published yet");
    maps.set(|state| state.phase = gpu_types::GPU_BRIDGE_PUBLISHING);
    maps.publish(0);
    maps.check(&[], 0, "publishing: 2 devices, the newest round is ");
    maps.check(&["--health-max-age=1ns"], 3, "stale: the newest round is ");
    maps.publish(5 * SECOND_NS);
    maps.check(&[], 3, "stale: the newest round is 50");
    maps.check(&["--health-max-age", "1m"], 0, "publishing: ");
    maps.set(|state| state.poll_interval_ns = 600 * SECOND_NS);
    maps.check(&[], 0, "publishing: ");
    maps.check(&["--health-max-age=2s"], 3, "stale: ");
}

#[test]
fn the_source_and_the_phase_are_told() {
    let mut maps = Maps::new();
    for (source, word) in [
        (gpu_types::GPU_BRIDGE_SOURCE_REAL, None),
        (gpu_types::GPU_BRIDGE_SOURCE_MOCK, Some("INVENTED")),
        (gpu_types::GPU_BRIDGE_SOURCE_MOCK_FALLBACK, Some("the real one cannot be opened")),
    ] {
        maps.set(|state| {
            state.phase = gpu_types::GPU_BRIDGE_PUBLISHING;
            state.source = source;
        });
        maps.publish(0);
        let line = maps.check(&["--health-max-age=1m"], 0, "publishing: ");
        assert!(word.is_none_or(|word| line.contains(word)) && (word.is_some() || !line.contains("INVENTED")), "{line}");
    }
    maps.set(|state| state.phase = gpu_types::GPU_BRIDGE_WAITING);
    maps.check(&["--health-max-age=1m"], 3, "stale: waiting for the driver");
    let now = boottime_now_ns().unwrap();
    maps.set(|state| {
        state.phase = gpu_types::GPU_BRIDGE_IDLE;
        state.started_boottime_ns = now;
        state.alive_boottime_ns = now;
    });
    maps.check(&["--health-max-age=1m"], 0, "idle: ");
    // The PID was given to this process after the bridge had ended.
    maps.set(|state| state.started_boottime_ns = 1);
    maps.check(&["--health-max-age=1m"], 3, "stale: it had no GPU, and the bridge, process ");
}

#[test]
fn without_its_own_map_the_bridge_is_judged_by_gpu_meta() {
    let mut maps = Maps::new();
    maps.publish(0);
    fs::remove_file(maps.pins.pin("gpu_bridge_state")).unwrap();
    maps.check(&["--health-max-age=1m"], 0, "publishing: 2 devices");
    maps.publish(5 * SECOND_NS);
    maps.check(&[], 3, "stale: ");
}

#[test]
fn maps_that_are_missing_are_told_from_maps_that_are_wrong() {
    let pins = Bpffs::mount();
    for dir in [pins.path().to_owned(), pins.path().join("nowhere"), "/nowhere".into(), "/".into()] {
        let (status, line) = health(&dir, &[]);
        assert!(status == 4 && line.starts_with("no maps: gpu_meta is not pinned"), "{status}: {line}");
    }
    let mut maps = Maps::new();
    maps.publish(0);
    fs::remove_file(maps.pins.pin("gpu_per_pid")).unwrap();
    maps.check(&[], 4, "no maps: gpu_per_pid is not pinned");
    fs::create_dir(maps.pins.pin("gpu_per_pid")).unwrap();
    maps.check(&[], 1, "unknown: ");
}

#[test]
fn rounds_of_another_schema_are_not_judged() {
    let mut maps = Maps::new();
    maps.publish_as(2, 0);
    let line = maps.check(&["--health-max-age=1h"], 1, "unknown: ");
    assert_eq!(
        line.trim_end(),
        "unknown: cannot interpret gpu_meta: its version is 2, this program knows 1 (use one that came with the bridge)"
    );
    maps.publish_as(1, 0);
    maps.check(&["--health-max-age=1h"], 0, "publishing: ");
}

#[test]
fn a_daemon_is_healthy_until_it_is_suspended_killed_or_stopped() {
    let pins = Bpffs::mount();
    let mut daemon = Daemon::start(&pins, &["--mode=mock", "--keep-pins"]);
    daemon.publishing(&pins);
    let (status, line) = health(pins.path(), &[]);
    assert!(status == 0 && line.contains(&format!("helper_pid {}; THE DATA IS INVENTED", daemon.pid())), "{status}: {line}");

    daemon.signal(Signal::SIGSTOP);
    let stale = |what: &str| {
        eventually(what, || {
            let (status, line) = health(pins.path(), &[]);
            (status == 3).then_some(line)
        })
    };
    let line = stale("a suspended daemon to be stale");
    assert!(line.ends_with("is suspended"), "{line}");
    daemon.signal(Signal::SIGCONT);
    eventually("the daemon to be healthy again", || (health(pins.path(), &[]).0 == 0).then_some(()));

    drop(daemon);
    let line = stale("a killed daemon to be stale");
    assert!(line.ends_with("is gone"), "{line}");

    let mut daemon = Daemon::start(&pins, &["--mode=mock", "--keep-pins"]);
    daemon.publishing(&pins);
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{log}");
    // At once, though the newest round is young.
    let (status, line) = health(pins.path(), &["--health-max-age=1h"]);
    assert!(status == 3 && line.starts_with("stale: the bridge has stopped"), "{status}: {line}");
}

#[test]
fn an_idle_daemon_is_healthy_until_it_dies() {
    let pins = Bpffs::mount();
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--idle-if-no-gpu", NO_LIBRARY, "--keep-pins"]);
    daemon.wait_for_log("waiting for it");
    eventually("the daemon to be idle", || {
        let (status, line) = health(pins.path(), &[]);
        (status == 0 && line.starts_with("idle: no GPU, by design")).then_some(())
    });
    drop(daemon);
    let (status, line) = health(pins.path(), &[]);
    assert!(status == 3 && line.ends_with("is gone"), "{status}: {line}");
}

#[test]
fn the_fallback_is_told_by_health_and_by_dump() {
    let pins = Bpffs::mount();
    let mut daemon = Daemon::start(&pins, &["--mode=auto", NO_LIBRARY]);
    daemon.publishing(&pins);
    let (status, line) = health(pins.path(), &[]);
    assert!(status == 0 && line.contains("INVENTED") && line.contains("the real one cannot be opened"), "{status}: {line}");
    let (status, stdout, stderr) = output(process::Command::new(BRIDGE).arg("--dump").arg("--pin-dir").arg(pins.path()));
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("[device 1]") && stderr.contains("invented") && stderr.contains("fell back"), "{stderr}");
}

#[test]
fn a_daemon_is_not_disturbed_by_being_asked() {
    let pins = Bpffs::mount();
    let mut daemon = Daemon::start(&pins, &["--mode=mock", "--poll-interval=10ms"]);
    let reader = daemon.publishing(&pins);
    let before = reader.state().unwrap();
    for _ in 0..50 {
        assert_eq!(health(pins.path(), &["--health-max-age=1m"]).0, 0);
    }
    let after = reader.state().unwrap();
    assert_eq!(before.record().helper_pid, after.record().helper_pid);
    // One that starts meanwhile finds the lock as it would have.
    let (status, log) = Daemon::start(&pins, &["--mode=mock"]).ended();
    assert!(status == Some(1) && log.contains(&format!("helper_pid {}", daemon.pid())), "{log}");
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert!(status == Some(0) && !log.contains("WARN"), "{log}");
}

#[test]
fn a_driver_that_is_let_go_of_is_nobodys_until_it_is_taken_up_again() {
    let (pins, sim) = (Bpffs::mount(), Sim::install(&Scenario::new().device(Device::t4())));
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--poll-interval=20ms", &sim.flag()]);
    let reader = daemon.publishing(&pins);
    let sampler = daemon.sampler();
    daemon.signal(Signal::SIGUSR1);
    // Nothing holds the library, so that the driver can be unloaded.
    eventually("the sampler's end", || (!fs::exists(format!("/proc/{sampler}")).unwrap()).then_some(()));
    eventually("empty maps", || reader.devices().unwrap().is_empty().then_some(()));
    let (status, line) = health(pins.path(), &["--health-max-age=1h"]);
    assert!(status == 3 && line.starts_with("stale: waiting for the driver"), "{status}: {line}");
    daemon.signal(Signal::SIGUSR2);
    eventually("a healthy bridge", || (health(pins.path(), &["--health-max-age=1h"]).0 == 0).then_some(()));
    assert_ne!(daemon.sampler(), sampler);
}
