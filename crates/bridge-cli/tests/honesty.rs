//! What is invented is never taken for real, and what goes on is not said over and over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    fs,
    process::{self, Command},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use common::{Daemon, Sim, health, output};
use map_reader::{Consistency, Order, Reader, Source};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Process, Scenario};
use test_support::Bpffs;

const MOCK_TOTAL_BYTES: u64 = 80 << 30;
const REAL_TOTAL_BYTES: u64 = 16 << 30;
const MOCK_PIDS: std::ops::RangeInclusive<u32> = 100_000..=100_005;

/// Reads the maps until told otherwise and gives how often; panics at a mixture.
fn watch(reader: &Reader, done: &AtomicBool) -> (u32, u32) {
    let (mut invented, mut real) = (0, 0);
    while !done.load(Ordering::Acquire) {
        // As a program that takes no care of rounds does: first a device, then the processes.
        let is_real = reader.devices().unwrap().iter().any(|(_, device)| device.mem_total == REAL_TOTAL_BYTES);
        let pids: Vec<u32> = reader.processes(Order::ByKey).unwrap().into_iter().map(|(pid, _)| pid).collect();
        let has_mock = pids.iter().any(|pid| MOCK_PIDS.contains(pid));
        assert!(!(is_real && has_mock), "invented processes beside a real device: {pids:?}");
        invented += u32::from(has_mock);
        real += u32::from(is_real);

        let snapshot = reader.snapshot();
        if snapshot.consistency == Consistency::Verified {
            let source = snapshot.state.as_ref().unwrap().source();
            let totals: Vec<u64> = snapshot.devices.as_ref().unwrap().iter().map(|(_, device)| device.mem_total).collect();
            let processes = snapshot.processes.as_ref().unwrap();
            let has_mock = processes.iter().any(|(pid, _)| MOCK_PIDS.contains(pid)) || totals.contains(&MOCK_TOTAL_BYTES);
            assert!(!(has_mock && totals.contains(&REAL_TOTAL_BYTES)), "{snapshot:#?}");
            assert!(!has_mock || source == Source::MockFallback, "invented data that is not called so: {snapshot:#?}");
        }
    }
    (invented, real)
}

#[test]
fn invented_entries_are_gone_before_the_first_real_round() {
    let pins = Bpffs::mount();
    let device = Device::t4().memory(REAL_TOTAL_BYTES, 1 << 30, 0).process(Process::compute(process::id(), 1 << 20));
    let sim = Sim::install(&Scenario::new().device(device));
    let hidden = sim.library.path().with_file_name("hidden");
    fs::rename(sim.library.path(), &hidden).unwrap();
    let mut daemon = Daemon::start(&pins, &["--mode=auto", "--poll-interval=2ms", &sim.flag()]);
    let reader = daemon.publishing(&pins);
    assert!(health(pins.path(), &[]).1.contains("INVENTED"));
    let warning = daemon.wait_for_log("INVENTED");
    assert!(warning.contains("WARN") && warning.contains("libnvidia-ml.so.1"), "{warning}");

    let done = AtomicBool::new(false);
    let (invented, real) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&reader, &done));
        thread::sleep(Duration::from_millis(200));
        fs::rename(&hidden, sim.library.path()).unwrap();
        daemon.wait_for("the real device's process", |_| {
            (watching.is_finished() || reader.process(process::id()).unwrap().is_some()).then_some(())
        });
        thread::sleep(Duration::from_millis(100));
        done.store(true, Ordering::Release);
        watching.join().unwrap()
    });
    assert!(invented > 10 && real > 10, "seen {invented} times invented, {real} times real");
    let (_, line) = health(pins.path(), &[]);
    assert!(line.starts_with("publishing: 1 device,") && !line.contains("INVENTED"), "{line}");
    let (_, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(log.matches("INVENTED").count(), 1, "said once in ten minutes: {log}");
}

#[test]
fn a_failure_in_every_tick_is_one_line() {
    let pins = Bpffs::mount();
    let mut daemon = Daemon::start(&pins, &["--mode=mock", "--poll-interval=5ms"]);
    let reader = daemon.publishing(&pins);
    // From now on the kernel refuses writes from user space.
    let (status, _, stderr) = output(Command::new("bpftool").args(["map", "freeze", "pinned"]).arg(pins.pin("gpu_device")));
    assert_eq!(status, Some(0), "{stderr}");
    daemon.wait_for_log("cannot publish");
    let ticks = |reader: &Reader| reader.state().unwrap().record().sequence / 2;
    let before = ticks(&reader);
    daemon.wait_for("two hundred more ticks", |_| (ticks(&reader) > before + 200).then_some(()));
    let log = daemon.log();
    assert_eq!(log.matches("cannot publish").count(), 1, "{log}");
    assert!(log.lines().count() < 5, "{log}");
    let stamp = reader.meta().unwrap().last_update_boottime_ns;
    thread::sleep(Duration::from_millis(50));
    assert_eq!(reader.meta().unwrap().last_update_boottime_ns, stamp, "a tick that could not publish leaves gpu_meta alone");
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(1), "the map could not be emptied: {log}");
}
