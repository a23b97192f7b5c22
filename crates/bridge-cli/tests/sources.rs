//! The daemon with real sources of both kinds: which samplers it starts, and what becomes of each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use common::{BRIDGE, Daemon, NO_LIBRARY, Sim, health, output};
use drm_sim::{Card, Tree, profiles};
use map_reader::{Phase, Reader, Source};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Scenario};
use test_support::{Bpffs, eventually};

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;

fn root(tree: &Tree) -> String {
    format!("--drm-root={}", tree.root().display())
}

fn amd_machine() -> (Tree, String) {
    let tree = Tree::new();
    tree.add(1, &profiles::RX6900XT);
    let flag = root(&tree);
    (tree, flag)
}

/// The vendors of the published devices, in index order.
fn vendors(reader: &Reader) -> Vec<u32> {
    let state = reader.state().unwrap();
    let devices = reader.devices().unwrap().into_iter().filter(|(_, record)| record.timestamp_ns > 0);
    devices.filter_map(|(index, _)| state.device(index).map(|device| device.record().vendor_id)).collect()
}

#[track_caller]
fn wait_for_vendors(pins: &Bpffs, expected: &[u32]) {
    let reader = Reader::open(pins.path());
    eventually(&format!("vendors {expected:x?}"), || (vendors(&reader) == expected).then_some(()));
}

fn names(daemon: &Daemon) -> Vec<String> {
    let mut names: Vec<_> = daemon.children().into_iter().map(|(_, name)| name).collect();
    names.sort();
    names
}

#[test]
fn a_machine_with_amd_only_is_published_in_modes_real_and_auto() {
    for arguments in [&["--mode=real"][..], &["--mode=auto"], &["--mode=real", "--source=drm"], &["--mode=real", "--idle-if-no-gpu"]] {
        let (pins, (_tree, root)) = (Bpffs::mount(), amd_machine());
        let mut daemon = Daemon::start(&pins, &[arguments, &[NO_LIBRARY, &root]].concat());
        let reader = daemon.publishing(&pins);
        daemon.child("drm-sampler");
        wait_for_vendors(&pins, &[AMD]);
        assert_eq!((reader.state().unwrap().source(), reader.state().unwrap().phase()), (Source::Real, Phase::Publishing));
        if arguments.contains(&"--source=drm") {
            assert_eq!(daemon.log().matches("nvml").count(), 0, "{}", daemon.log());
        } else {
            daemon.wait_for_log("INFO  nvml cannot be opened: ");
        }
        let (status, log) = daemon.end(Signal::SIGTERM);
        assert_eq!(status, Some(0), "{log}");
        assert!(!log.contains("INVENTED"), "{log}");
        assert_eq!(pins.pins(), [""; 0]);
    }
}

#[test]
fn each_source_has_a_process_of_its_own_and_all_are_let_go_on_request() {
    let (pins, (_tree, root)) = (Bpffs::mount(), amd_machine());
    let sim = Sim::install(&Scenario::new().device(Device::t4()).device(Device::a100()));
    let mut daemon = Daemon::start(&pins, &["--mode=real", &sim.flag(), &root]);
    daemon.publishing(&pins);
    wait_for_vendors(&pins, &[NVIDIA, NVIDIA, AMD]);
    assert_eq!(names(&daemon), ["drm-sampler", "gpu-sampler"]);
    let driver = Reader::open(pins.path()).state().unwrap().driver_version().into_owned();
    assert!(driver.contains("; amdgpu"), "{driver}");
    daemon.signal(Signal::SIGUSR1);
    wait_for_vendors(&pins, &[]);
    daemon.wait_for("the end of both samplers", |daemon| daemon.children().is_empty().then_some(()));
    daemon.wait_for_log("nvml and drm are let go on request");
    daemon.signal(Signal::SIGUSR2);
    wait_for_vendors(&pins, &[NVIDIA, NVIDIA, AMD]);
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{log}");
}

#[test]
fn a_sampler_that_is_killed_is_started_anew_and_the_other_goes_on() {
    let (pins, (_tree, root)) = (Bpffs::mount(), amd_machine());
    let sim = Sim::install(&Scenario::new().device(Device::t4()));
    let mut daemon = Daemon::start(&pins, &["--mode=real", &sim.flag(), &root]);
    let reader = daemon.publishing(&pins);
    wait_for_vendors(&pins, &[NVIDIA, AMD]);
    for (killed, stays) in [("drm-sampler", "gpu-sampler"), ("gpu-sampler", "drm-sampler")] {
        let (victim, other) = (daemon.child(killed), daemon.child(stays));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim.try_into().unwrap()), Signal::SIGKILL).unwrap();
        let next = daemon.wait_for("another sampler", |daemon| {
            assert_eq!(reader.state().unwrap().phase(), Phase::Publishing);
            daemon.children().into_iter().find(|(pid, name)| *pid != victim && name == killed).map(|(pid, _)| pid)
        });
        wait_for_vendors(&pins, &[NVIDIA, AMD]);
        assert_eq!((daemon.child(killed), daemon.child(stays)), (next, other));
    }
}

/// A device's PCI address as the state has it, and whether it has a record.
fn places(reader: &Reader) -> Vec<(String, bool)> {
    let state = reader.state().unwrap();
    let has_record = |index| reader.device(index).unwrap().is_some();
    state.devices().map(|device| (device.pci_bus_id().into_owned(), has_record(device.index()))).collect()
}

#[test]
fn a_card_that_comes_or_goes_is_news_and_no_fault_and_leaves_the_others_where_they_are() {
    let (pins, (tree, root)) = (Bpffs::mount(), amd_machine());
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--source=drm", "--poll-interval=20ms", &root]);
    let reader = daemon.publishing(&pins);
    let stays = profiles::RX6900XT.pci;
    let comes = "0000:f0:00.0";
    let mut card = None;
    for expected in [&[stays, comes][..], &[stays]] {
        // Only what was open for a while is opened anew at once.
        let settled = Instant::now() + Duration::from_secs(6);
        daemon.wait_for("some seconds", |_| (Instant::now() >= settled).then_some(()));
        match card.take() {
            None => card = Some(tree.add_at(2, comes, &profiles::RX580)),
            Some(card) => Card::unplug(card),
        }
        daemon.wait_for("the cards that there are now", |daemon| {
            assert!(reader.device(0).unwrap().is_some(), "its record stands: {}", daemon.log());
            let now: Vec<_> = places(&reader).into_iter().filter_map(|(pci, has_record)| has_record.then_some(pci)).collect();
            (now == expected).then_some(())
        });
    }
    let (status, log) = daemon.end(Signal::SIGTERM);
    let changes: Vec<_> = log.lines().filter(|line| line.contains("INFO  drm is opened anew: the cards in ")).collect();
    assert!(
        matches!(changes[..], [came, went] if came.ends_with("f0:00.0 of amdgpu came") && went.ends_with("f0:00.0 of amdgpu went")),
        "{log}"
    );
    assert_eq!((status, log.matches("WARN  ").count()), (Some(0), 0), "{log}");
}

#[test]
fn only_what_is_named_is_started() {
    let (pins, (_tree, root)) = (Bpffs::mount(), amd_machine());
    let sim = Sim::install(&Scenario::new().device(Device::t4()));
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--source=nvml", &sim.flag(), &root]);
    daemon.publishing(&pins);
    wait_for_vendors(&pins, &[NVIDIA]);
    assert_eq!(names(&daemon), ["gpu-sampler"]);
    assert!(!daemon.log().contains("drm"), "{}", daemon.log());
}

#[test]
fn without_a_card_no_sampler_is_started_until_there_is_one() {
    let (pins, tree) = (Bpffs::mount(), Tree::new());
    // Cards of other drivers are nvml's business, or nobody's.
    tree.add_other(0, "nvidia", Some("0000:01:00.0"));
    tree.add_other(1, "vkms", None);
    let sim = Sim::install(&Scenario::new().device(Device::t4()));
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--log-level=debug", &sim.flag(), &root(&tree)]);
    daemon.publishing(&pins);
    let line = daemon.wait_for_log("drm cannot be opened: ");
    assert!(line.contains("INFO  ") && line.contains("no GPU of the drivers amdgpu, i915 or xe in "), "{line}");
    daemon.wait_for("some attempts", |daemon| (daemon.log().matches("still: drm cannot be opened").count() >= 2).then_some(()));
    assert_eq!(names(&daemon), ["gpu-sampler"]);
    tree.add(2, &profiles::RX6900XT);
    wait_for_vendors(&pins, &[NVIDIA, AMD]);
    assert_eq!(names(&daemon), ["drm-sampler", "gpu-sampler"]);
}

#[test]
fn without_any_gpu_each_source_says_what_it_lacks() {
    let (pins, tree) = (Bpffs::mount(), Tree::new());
    let root = root(&tree);
    let mut command = Command::new(BRIDGE);
    let (status, _, stderr) = output(command.args(["--mode=real", NO_LIBRARY, &root, "--pin-dir"]).arg(pins.path()));
    let last = stderr.lines().last().unwrap_or_default();
    assert!(
        status == Some(1) && last.contains("nvml: ") && last.contains("/nowhere/libnvidia-ml.so.1") && last.contains("; drm: no GPU"),
        "{stderr}"
    );
    assert_eq!(pins.pins(), [""; 0]);

    let mut daemon = Daemon::start(&pins, &["--mode=real", "--idle-if-no-gpu", NO_LIBRARY, &root]);
    daemon.wait_for_log("waiting for it, nothing is published until then");
    daemon.wait_for("idle", |_| (health(pins.path(), &[]).1.starts_with("idle: ")).then_some(()));
    assert_eq!(daemon.log().matches("WARN  ").count(), 1, "{}", daemon.log());
}
