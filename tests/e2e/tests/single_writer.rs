//! One bridge a pin directory, and what becomes of pins that others touch.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use consumers::devices::Devices;
use consumers::events::{Events, Trigger};
use e2e::{Bpffs, Bridge, CONTRACT_MAPS, WAIT, Workload, binary, eventually, map_id, map_ids, names, write};
use gpu_types::{GPU_SCHEMA_VERSION, GpuMeta};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use map_reader::{Reader, boottime_now_ns};
use nix::sys::signal::Signal;
use tempfile::TempDir;

const FIVE: [&str; 5] = ["gpu_bridge_state", "gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"];

fn mock(pin_dir: &Path) -> e2e::BridgeBuilder {
    Bridge::at(pin_dir).args(["--mode=mock", "--poll-interval=50ms"])
}

fn dump(pin_dir: &Path) -> Output {
    Command::new(binary("gpu-ebpf-bridge")).arg("--dump").arg("--pin-dir").arg(pin_dir).output().unwrap()
}

#[track_caller]
fn check_goes_on(reader: &Reader) {
    let stamp = || reader.meta().unwrap().last_update_boottime_ns;
    let before = stamp();
    eventually("later rounds", || (stamp() > before).then_some(()));
}

/// The number before `unit` in a text.
#[track_caller]
fn number_before(text: &str, unit: &str) -> u64 {
    let before = text.split(unit).next().unwrap();
    let word = before.split_whitespace().next_back().unwrap();
    word.parse().unwrap_or_else(|_| panic!("no number before {unit:?} in {text:?}"))
}

#[test]
fn in_another_container_with_the_same_bpffs_a_second_bridge_says_who_is_there_and_gives_way() {
    let pins = Bpffs::mount();
    let places = [(); 2].map(|()| TempDir::with_prefix("container-").unwrap());
    let mut first = mock(places[0].path()).in_container(pins.path(), places[0].path()).start();
    let reader = first.wait_until_published(&pins);
    assert_eq!(fs::read_dir(places[0].path()).unwrap().count(), 0, "in a mount namespace of its own");
    let ids = map_ids(&pins);

    // Another container, and without one.
    for (start, place) in
        [(mock(places[1].path()).in_container(pins.path(), places[1].path()), places[1].path()), (mock(pins.path()), pins.path())]
    {
        let second = start.start().wait();
        assert_eq!(second.code, Some(1), "{}", second.stderr);
        let expected = format!("another bridge publishes in {} (helper_pid {}, its newest data ", place.display(), first.pid());
        assert!(second.stderr.contains(&expected), "{}", second.stderr);
        assert!(number_before(&second.stderr, " ms old)") < 1_000, "{}", second.stderr);
        assert_eq!(second.stdout, "");
        assert!(second.took < Duration::from_secs(3), "{:?}", second.took);
    }
    assert_eq!(map_ids(&pins), ids);
    check_goes_on(&reader);

    // Readers take no lock and are not kept out by it.
    let output = dump(pins.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains(&format!("HelperPid:{} ", first.pid())), "{text}");
    check_goes_on(&reader);

    assert_eq!(first.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), [""; 0]);
    let mut successor = mock(places[1].path()).in_container(pins.path(), places[1].path()).start();
    successor.wait_until_published(&pins);
}

#[test]
fn a_lock_ends_with_its_holder_however_that_ends() {
    let pins = Bpffs::mount();
    for signal in [Signal::SIGKILL, Signal::SIGABRT, Signal::SIGTERM, Signal::SIGINT] {
        let mut bridge = mock(pins.path()).start();
        bridge.wait_until_published(&pins);
        bridge.stop(signal);
    }
}

#[test]
fn a_writer_without_a_lock_is_recognised_and_left_alone_until_it_ends() {
    let pins = Bpffs::mount();
    // The maps of another program, which keeps gpu_meta fresh in another process's name.
    let _consumer = Events::attach(pins.path(), 1_000, Trigger::ContextSwitch).unwrap();
    let foreign = Workload::start("foreign-writer");
    let there = pins.pins();
    let publish = || {
        let last_update_boottime_ns = boottime_now_ns().unwrap();
        let meta = GpuMeta { schema_version: GPU_SCHEMA_VERSION, helper_pid: foreign.pid(), last_update_boottime_ns, ..GpuMeta::default() };
        write(&pins, "gpu_meta", 0_u32, meta);
    };
    publish();
    let refused = mock(pins.path()).start().wait();
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let expected = format!("another program publishes in {} without a lock (helper_pid {}, ", pins.path().display(), foreign.pid());
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    assert!(number_before(&refused.stderr, " ms old)") < 1_000, "{}", refused.stderr);
    assert_eq!(pins.pins(), there, "nothing is created beside it");

    publish();
    foreign.end();
    mock(pins.path()).start().wait_until_published(&pins);
}

#[test]
fn a_pin_that_vanishes_is_pinned_again_within_a_second_and_that_is_said() {
    let pins = Bpffs::mount();
    let mut bridge = mock(pins.path()).start();
    let reader = bridge.wait_until_published(&pins);
    for map in FIVE {
        let id = map_id(&pins.pin(map));
        fs::remove_file(pins.pin(map)).unwrap();
        let removed = Instant::now();
        bridge.wait_for(map, || pins.pin(map).exists().then_some(()));
        assert!(removed.elapsed() < Duration::from_secs(1), "{map}: {:?}", removed.elapsed());
        assert_eq!(map_id(&pins.pin(map)), id, "{map}");
        let line = bridge.wait_for_log(&format!("the pin of {map} had been removed: pinned again"));
        assert!(line.contains("WARN"), "{line}");
    }
    check_goes_on(&reader);
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(bridge.count_in_log("pinned again"), FIVE.len(), "each is said once");
    // The whole of the folder's contents at once.
    FIVE.iter().for_each(|map| fs::remove_file(pins.pin(map)).unwrap());
    bridge.wait_for("all of them", || (pins.pins() == FIVE).then_some(()));
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), [""; 0]);
}

#[test]
fn a_folder_that_is_made_anew_is_locked_and_filled_again() {
    let pins = Bpffs::mount();
    let folder = pins.path().join("gpu");
    let mut bridge = mock(&folder).start();
    bridge.wait_for("a first round", || Reader::open(&folder).meta().ok().filter(|meta| meta.last_update_boottime_ns > 0));
    fs::remove_dir_all(&folder).unwrap();
    bridge.wait_for("the maps", || (folder.exists() && names(&folder) == FIVE).then_some(()));
    let reader = Reader::open(&folder);
    check_goes_on(&reader);
    let second = mock(&folder).start().wait();
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), [""; 0], "the folder was the bridge's own");
}

#[test]
fn maps_that_a_consumer_creates_anew_are_adopted_and_filled_and_removed_at_the_end() {
    let pins = Bpffs::mount();
    let mut bridge = mock(pins.path()).start();
    let old_reader = bridge.wait_until_published(&pins);
    let old = map_ids(&pins);
    // The bridge does not look while it is stopped, so the consumer comes first.
    bridge.signal(Signal::SIGSTOP);
    CONTRACT_MAPS.iter().for_each(|map| fs::remove_file(pins.pin(map)).unwrap());
    let consumer = Devices::open(pins.path()).unwrap();
    let created = pins.pins();
    assert!(created.len() > 1, "{created:?}");
    let created: Vec<_> = created.into_iter().filter(|map| map != "gpu_bridge_state").map(|map| (map_id(&pins.pin(&map)), map)).collect();
    bridge.signal(Signal::SIGCONT);

    let resumed = Instant::now();
    bridge.wait_for("the consumer's devices", || (consumer.read().unwrap().len() == 2).then_some(()));
    assert!(resumed.elapsed() < WAIT / 4, "{:?}", resumed.elapsed());
    for (id, map) in &created {
        assert_eq!(map_id(&pins.pin(map)), *id, "{map}");
        assert!(!old.contains(id));
        bridge.wait_for_log(&format!("the pin of {map} had been replaced: publishing in the new map, id {}", id.unwrap()));
    }
    check_goes_on(&Reader::open(pins.path()));
    eventually("the old devices to be gone", || old_reader.devices().unwrap().is_empty().then_some(()));

    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), [""; 0], "what was adopted is ours");
    assert_eq!(consumer.read().unwrap(), [], "and emptied");
}

#[test]
fn at_the_end_a_pin_that_is_not_ours_any_more_stays() {
    let pins = Bpffs::mount();
    let mut bridge = mock(pins.path()).start();
    let reader = bridge.wait_until_published(&pins);
    fs::remove_file(pins.pin("gpu_per_pid")).unwrap();
    // Of another make, so that it cannot be adopted.
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..bpf_map_create_opts::default() };
    let mut theirs = MapHandle::create(MapType::Hash, Some("theirs"), 4, 8, 16, &options).unwrap();
    fs::remove_file(pins.pin("gpu_per_pid")).ok();
    theirs.pin(pins.pin("gpu_per_pid")).unwrap();
    let id = map_id(&pins.pin("gpu_per_pid"));
    let line = bridge.wait_for_log("gpu_per_pid is no longer pinned");
    assert!(line.contains("its type is hash, expected lru_hash"), "{line}");
    check_goes_on(&reader);
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(bridge.count_in_log("no longer pinned"), 1, "{}", bridge.log());

    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), ["gpu_per_pid"]);
    assert_eq!(map_id(&pins.pin("gpu_per_pid")), id);
}
