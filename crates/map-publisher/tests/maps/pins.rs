//! Pins that others remove and replace while the bridge runs.

use std::fs;

use gpu_types::maps::{self, MAPS, MapDefinition};
use map_publisher::Publisher;
use test_support::Bpffs;

use crate::world::{FIVE, check_published, consumer_map, contents, get, id, ids, open, pinned, process, put, round, state};

#[track_caller]
pub(crate) fn check_events(publisher: &mut Publisher, expected: &[&str]) {
    let events: Vec<String> = publisher.check_pins().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(events, expected);
}

#[test]
fn nothing_is_told_of_pins_that_are_in_place() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    check_events(&mut publisher, &[]);
    publisher.publish(&round(1, [1])).unwrap();
    check_events(&mut publisher, &[]);
}

#[test]
fn a_pin_that_vanished_is_pinned_again_with_its_data() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let records = round(1, [1, 2]);
    publisher.publish(&records).unwrap();
    let before = ids(bpffs.path());
    for name in FIVE {
        fs::remove_file(bpffs.path().join(name)).unwrap();
    }
    let mut told: Vec<String> = publisher.check_pins().unwrap().iter().map(ToString::to_string).collect();
    told.sort();
    assert_eq!(told, FIVE.map(|name| format!("the pin of {name} had been removed: pinned again")));
    assert_eq!(ids(bpffs.path()), before);
    check_published(bpffs.path(), &records);
    check_events(&mut publisher, &[]);
}

/// A directory that was not changed for a while is not looked into; each of these changes it.
#[test]
fn what_is_done_to_a_pin_after_quiet_checks_is_seen_at_the_next() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let quiet = |publisher: &mut Publisher| {
        std::thread::sleep(std::time::Duration::from_millis(150));
        (0..3).for_each(|_| check_events(publisher, &[]));
    };
    for name in FIVE {
        quiet(&mut publisher);
        fs::remove_file(bpffs.path().join(name)).unwrap();
        check_events(&mut publisher, &[&format!("the pin of {name} had been removed: pinned again")]);
        quiet(&mut publisher);
        fs::rename(bpffs.path().join(name), bpffs.path().join("elsewhere")).unwrap();
        check_events(&mut publisher, &[&format!("the pin of {name} had been removed: pinned again")]);
        fs::remove_file(bpffs.path().join("elsewhere")).unwrap();
    }
}

#[test]
fn a_map_that_a_consumer_made_anew_is_adopted_and_filled() {
    for &definition in MAPS {
        let bpffs = Bpffs::mount();
        let mut publisher = open(bpffs.path());
        publisher.set_state(|state| state.poll_interval_ns = 100);
        let records = round(1, [1, 2]);
        for _ in 0..20 {
            publisher.publish(&records).unwrap();
        }
        fs::remove_file(bpffs.path().join(definition.name)).unwrap();
        let theirs = consumer_map(bpffs.path(), definition);
        if definition == maps::PER_PID {
            put(&theirs, 77u32, process(77));
        }
        let text = format!("the pin of {} had been replaced: publishing in the new map, id {}", definition.name, id(&theirs));
        check_events(&mut publisher, &[&text]);
        check_events(&mut publisher, &[]);

        let published = publisher.publish(&records).unwrap();
        assert!(published.read_back, "the rounds after an adoption are read back");
        check_published(bpffs.path(), &records);
        assert_eq!(id(&pinned(bpffs.path(), definition.name)), id(&theirs));
        let state = state(bpffs.path());
        assert_eq!((state.poll_interval_ns, state.rounds, state.helper_pid), (100, 21, std::process::id()));
        publisher.close(false).unwrap();
        assert!(bpffs.pins().is_empty(), "an adopted map is ours to unpin");
    }
}

#[test]
fn a_map_that_is_left_for_another_shows_no_last_reading_for_ever() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    publisher.publish(&round(1, [1, 2])).unwrap();
    let names = [maps::GPU_META, maps::GPU_DEVICE, maps::GPU_PER_PID, maps::GPU_PER_PID_PER_DEVICE];
    let held = names.map(|name| pinned(bpffs.path(), name));
    let held_state = pinned(bpffs.path(), maps::GPU_BRIDGE_STATE);
    for &definition in MAPS {
        fs::remove_file(bpffs.path().join(definition.name)).unwrap();
        consumer_map(bpffs.path(), definition);
    }
    assert_eq!(publisher.check_pins().unwrap().len(), 5);
    let left = contents(&held);
    assert_eq!(left, map_publisher::Records { meta: round(1, []).meta, ..Default::default() });
    let left: gpu_types::GpuBridgeState = get(&held_state, 0u32).unwrap();
    assert_eq!(left.phase, gpu_types::GPU_BRIDGE_STOPPING);
    assert_eq!(state(bpffs.path()).phase, gpu_types::GPU_BRIDGE_STARTING);
}

#[test]
fn a_foreign_map_is_told_once_and_left_and_ours_comes_back_after_it() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let before = ids(bpffs.path());
    let path = bpffs.path().join(maps::GPU_PER_PID);
    fs::remove_file(&path).unwrap();
    let theirs = consumer_map(bpffs.path(), MapDefinition { max_entries: 7, ..maps::PER_PID });
    let text = format!(
        "gpu_per_pid is no longer pinned: {} is another kind of map: its max_entries is 7, expected 4096 \
         (stop the program that made it and remove the pin)",
        path.display()
    );
    check_events(&mut publisher, &[&text]);
    check_events(&mut publisher, &[]);
    publisher.publish(&round(1, [1])).unwrap();
    assert_eq!(id(&pinned(bpffs.path(), maps::GPU_PER_PID)), id(&theirs));

    // Another foreign thing is news.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let text = format!("gpu_per_pid is no longer pinned: {} is a directory, not a map: remove it", path.display());
    check_events(&mut publisher, &[&text]);
    check_events(&mut publisher, &[]);

    fs::remove_dir(&path).unwrap();
    check_events(&mut publisher, &["the pin of gpu_per_pid had been removed: pinned again"]);
    assert_eq!(ids(bpffs.path()), before);
    check_published(bpffs.path(), &round(1, [1]));
}

#[test]
fn a_foreign_map_is_left_at_close() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    fs::remove_file(bpffs.path().join(maps::GPU_META)).unwrap();
    consumer_map(bpffs.path(), MapDefinition { value_size: 8, ..maps::META });
    publisher.check_pins().unwrap();
    publisher.close(false).unwrap();
    assert_eq!(bpffs.pins(), [maps::GPU_META]);
}

#[test]
fn a_pin_that_was_moved_onto_its_own_name_is_the_same_map() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let mut same = pinned(bpffs.path(), maps::GPU_META);
    same.pin(bpffs.path().join("other")).unwrap();
    fs::rename(bpffs.path().join("other"), bpffs.path().join(maps::GPU_META)).unwrap();
    check_events(&mut publisher, &[]);
    publisher.close(false).unwrap();
    assert!(bpffs.pins().is_empty());
}
