//! What a round does to the maps, and in which order.

use gpu_types::maps::{self, PID_PUBLISH_LIMIT};
use gpu_types::{GpuDeviceMetrics, GpuMeta, keys::PidDeviceKey};
use libbpf_rs::{MapCore, MapHandle};
use map_publisher::{PublishError, Publisher, Records, cpu};
use test_support::Bpffs;

use crate::world::{all, check_published, contents, get, on_device, open, pinned, process, published, put, round, state, text};

const FOUR: [&str; 4] = [maps::GPU_META, maps::GPU_DEVICE, maps::GPU_PER_PID, maps::GPU_PER_PID_PER_DEVICE];

fn four(bpffs: &Bpffs) -> [MapHandle; 4] {
    FOUR.map(|name| pinned(bpffs.path(), name))
}

#[test]
fn the_maps_equal_the_round() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let mut first = round(1, [10, 20, 30]);
    first.process_devices.insert(1, (PidDeviceKey::new(10, 7).into(), on_device(8)));
    let published = publisher.publish(&first).unwrap();
    assert_eq!((published.upserted, published.deleted), (7, 0));
    check_published(bpffs.path(), &first);

    let mut second = first.clone();
    second.meta.last_update_boottime_ns = 2;
    second.devices[1] = GpuDeviceMetrics::default();
    second.processes[2].1 = process(9);
    second.processes.remove(0);
    second.process_devices.retain(|(key, _)| PidDeviceKey::from(*key).pid() != 10);
    second.process_devices.push((PidDeviceKey::new(40, 1).into(), on_device(9)));
    second.processes.push((40, process(9)));
    let published = publisher.publish(&second).unwrap();
    assert_eq!((published.upserted, published.deleted), (3, 3));
    assert_eq!((published.rewritten, published.strangers_removed), (0, 0));
    check_published(bpffs.path(), &second);

    let empty = round(3, []);
    publisher.publish(&empty).unwrap();
    check_published(bpffs.path(), &empty);
}

#[test]
fn departed_entries_go_even_when_another_had_vanished_already() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    publisher.publish(&round(1, 1..=9)).unwrap();
    // The first, one in the middle and the last of those that depart.
    for pid in [2u32, 4, 8] {
        pinned(bpffs.path(), maps::GPU_PER_PID).delete(&pid.to_ne_bytes()).unwrap();
    }
    pinned(bpffs.path(), maps::GPU_PER_PID_PER_DEVICE).delete(&u64::from(PidDeviceKey::new(3, 0)).to_ne_bytes()).unwrap();
    let second = round(2, [1, 9]);
    let published = publisher.publish(&second).unwrap();
    assert_eq!(published.deleted, 14);
    check_published(bpffs.path(), &second);
}

/// A frozen map refuses every write: what happens before it has happened, what comes after has not.
fn publish_with_frozen(name: &str) -> (Records, PublishError) {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    // Past the rounds that are read back, which would find out by themselves.
    for _ in 0..12 {
        publisher.publish(&round(1, [1, 2])).unwrap();
    }
    pinned(bpffs.path(), name).freeze().unwrap();
    let error = publisher.publish(&round(2, [2, 3])).unwrap_err();
    // What failed is not taken for done by the next round; of the devices none is known to be written then.
    let again = text(&publisher.publish(&round(2, [2, 3])).unwrap_err());
    assert_eq!(again, text(&error).replace("2 of 2 entries of gpu_device", "16 of 16 entries of gpu_device"));
    assert_eq!(state(bpffs.path()).rounds, 12, "a round that failed does not count");
    assert_eq!(state(bpffs.path()).sequence % 2, 0);
    (published(bpffs.path()), error)
}

#[test]
fn gpu_meta_is_written_last() {
    let (found, error) = publish_with_frozen(maps::GPU_META);
    let expected = Records { meta: round(1, []).meta, ..round(2, [2, 3]) };
    assert_eq!(found, expected);
    assert_eq!(text(&error), "cannot write 1 of 1 entries of gpu_meta: Operation not permitted (os error 1)");
}

#[test]
fn the_devices_are_written_after_the_processes() {
    let (found, error) = publish_with_frozen(maps::GPU_DEVICE);
    let Records { meta, devices, .. } = round(1, []);
    assert_eq!(found, Records { meta, devices, ..round(2, [2, 3]) });
    assert_eq!(text(&error), "cannot write 2 of 2 entries of gpu_device: Operation not permitted (os error 1)");
}

#[test]
fn when_one_process_map_fails_the_other_is_finished_and_no_more() {
    let (found, error) = publish_with_frozen(maps::GPU_PER_PID);
    let (old, new) = (round(1, [1, 2]), round(2, [2, 3]));
    assert_eq!(found, Records { process_devices: new.process_devices.clone(), ..old.clone() });
    assert_eq!(text(&error), "cannot write 2 of 2 entries of gpu_per_pid: Operation not permitted (os error 1)");

    let (found, error) = publish_with_frozen(maps::GPU_PER_PID_PER_DEVICE);
    assert_eq!(found, Records { processes: new.processes, ..old });
    assert!(matches!(error, PublishError::Entries { map: maps::GPU_PER_PID_PER_DEVICE, .. }));
}

#[test]
fn what_an_earlier_bridge_left_is_gone_before_gpu_meta_is_written() {
    let bpffs = Bpffs::mount();
    let mut first = open(bpffs.path());
    let mut old = round(100, 1..=50);
    old.devices = [old.devices[0]; 16];
    first.publish(&old).unwrap();
    drop(first);

    let mut second = open(bpffs.path());
    check_published(bpffs.path(), &old);
    // All writes but the last go through.
    let real = pinned(bpffs.path(), maps::GPU_META);
    real.freeze().unwrap();
    let new = round(200, [50, 60]);
    second.publish(&new).unwrap_err();
    check_published(bpffs.path(), &Records { meta: old.meta, ..new });
}

#[test]
fn what_an_earlier_bridge_left_with_the_same_value_stays() {
    let bpffs = Bpffs::mount();
    let records = round(1, 1..=5);
    let mut first = open(bpffs.path());
    first.publish(&records).unwrap();
    first.close(true).unwrap();
    check_published(bpffs.path(), &records);
    let mut second = open(bpffs.path());
    let published = second.publish(&records).unwrap();
    assert_eq!((published.upserted, published.deleted, published.rewritten), (0, 0, 0));
    check_published(bpffs.path(), &records);
}

#[test]
fn records_that_break_their_promise_are_refused_before_anything_is_written() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let before = published(bpffs.path());
    for bad in [round(1, [2, 1]), round(1, [1, 1]), round(1, 0..=PID_PUBLISH_LIMIT)] {
        assert!(matches!(publisher.publish(&bad), Err(PublishError::Records { map: maps::GPU_PER_PID, .. })));
    }
    let mut bad = round(1, [1, 2]);
    bad.process_devices.swap(0, 1);
    assert!(matches!(publisher.publish(&bad), Err(PublishError::Records { map: maps::GPU_PER_PID_PER_DEVICE, .. })));
    check_published(bpffs.path(), &before);
}

/// Every round of some hundred is checked for every entry, without the help of reading back: that is made to find nothing.
#[test]
fn full_maps_lose_nothing() {
    cpu::bind_to_lowest().unwrap();
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let limit = PID_PUBLISH_LIMIT;
    for number in 0..300u32 {
        // All entries change; some processes come and go; now and then all are replaced at once.
        let first = 1 + number * 13 + (number / 50) * 10_000;
        let records = round(u64::from(number) + 1, first..first + limit);
        let published = publisher.publish(&records).unwrap();
        assert_eq!((published.rewritten, published.strangers_removed), (0, 0), "round {number}");
        if number % 10 == 0 {
            check_published(bpffs.path(), &records);
        }
    }
}

#[test]
fn withdrawing_empties_the_maps_and_lets_gpu_meta_be() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let records = round(1, 1..=100);
    publisher.publish(&records).unwrap();
    publisher.withdraw().unwrap();
    let empty = Records { meta: records.meta, ..Records::default() };
    check_published(bpffs.path(), &empty);
    publisher.withdraw().unwrap();
    check_published(bpffs.path(), &empty);
    publisher.publish(&records).unwrap();
    check_published(bpffs.path(), &records);
}

#[test]
fn withdrawing_before_the_first_round_removes_what_an_earlier_bridge_left() {
    let bpffs = Bpffs::mount();
    let mut first = open(bpffs.path());
    let records = round(1, 1..=10);
    first.publish(&records).unwrap();
    drop(first);
    open(bpffs.path()).withdraw().unwrap();
    check_published(bpffs.path(), &Records { meta: records.meta, ..Records::default() });
}

/// A round as it is while its clock step is under way: no device, processes with their memory alone, another offset.
fn stepped(records: &Records, clock_offset_ns: i64) -> Records {
    let mut stepped = Records { meta: GpuMeta { clock_offset_ns, ..records.meta }, ..records.clone() };
    stepped.devices = Records::default().devices;
    stepped.processes.iter_mut().for_each(|(_, process)| process.timestamp_ns = 0);
    stepped.process_devices.iter_mut().for_each(|(_, process)| process.timestamp_ns = 0);
    stepped
}

#[test]
fn a_clock_step_takes_the_old_time_out_of_the_maps_and_changes_the_offset() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    publisher.step_clock(-1).unwrap();
    assert_eq!(published(bpffs.path()).meta, GpuMeta::default(), "there is no round yet that it could belong to");
    let mut records = round(1, [1, 2]);
    records.processes[1].1.sm_util_pct_max = 40;
    records.process_devices[1].1.sm_util_pct = 40;
    records.process_devices[1].1.enc_util_pct = 3;
    publisher.publish(&records).unwrap();
    publisher.step_clock(-3_600_000_000_000).unwrap();
    let mut expected = stepped(&records, -3_600_000_000_000);
    expected.processes[1].1.sm_util_pct_max = 0;
    expected.process_devices[1].1.sm_util_pct = 0;
    expected.process_devices[1].1.enc_util_pct = 0;
    check_published(bpffs.path(), &expected);
    publisher.publish(&records).unwrap();
    check_published(bpffs.path(), &records);
}

#[test]
fn a_clock_step_between_two_bridges_is_one_for_the_second() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    assert_eq!(publisher.meta(), None);
    let records = round(1, [1, 2]);
    publisher.publish(&records).unwrap();
    drop(publisher);
    let mut successor = open(bpffs.path());
    assert_eq!(successor.meta(), Some(records.meta));
    successor.step_clock(7).unwrap();
    check_published(bpffs.path(), &stepped(&records, 7));
    successor.publish(&round(2, [2])).unwrap();
    check_published(bpffs.path(), &round(2, [2]));
}

#[test]
fn a_clock_step_whose_slots_stay_does_not_touch_gpu_meta() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let records = round(1, [1]);
    publisher.publish(&records).unwrap();
    pinned(bpffs.path(), maps::GPU_DEVICE).freeze().unwrap();
    publisher.step_clock(99).unwrap_err();
    check_published(bpffs.path(), &records);
}

/// Publishes, closes, and returns what those see who hold the maps open.
fn close(keep_pins: bool, before: impl FnOnce(&Bpffs, &mut Publisher)) -> (Vec<String>, Records) {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    publisher.publish(&round(1, 1..=20)).unwrap();
    let (held, state) = (four(&bpffs), pinned(bpffs.path(), maps::GPU_BRIDGE_STATE));
    before(&bpffs, &mut publisher);
    publisher.close(keep_pins).unwrap();
    let state: gpu_types::GpuBridgeState = get(&state, 0u32).unwrap();
    assert_eq!(state.phase, gpu_types::GPU_BRIDGE_STOPPING);
    (bpffs.pins(), contents(&held))
}

#[test]
fn closing_empties_the_maps_for_those_who_hold_them_and_removes_the_pins() {
    let (pins, held) = close(false, |_, _| {});
    assert!(pins.is_empty());
    assert_eq!(held, Records { meta: round(1, []).meta, ..Records::default() });
}

#[test]
fn closing_empties_what_others_wrote_as_well() {
    let (_, held) = close(false, |bpffs, _| {
        put(&pinned(bpffs.path(), maps::GPU_PER_PID), 999u32, process(1));
        put(&pinned(bpffs.path(), maps::GPU_DEVICE), 15u32, GpuDeviceMetrics { timestamp_ns: 1, ..Default::default() });
    });
    assert_eq!(held, Records { meta: round(1, []).meta, ..Records::default() });
}

#[test]
fn closing_with_kept_pins_leaves_the_data() {
    let (pins, held) = close(true, |_, _| {});
    assert_eq!(pins, crate::world::FIVE);
    assert_eq!(held, round(1, 1..=20));
}

#[test]
fn closing_leaves_pins_that_are_another_maps() {
    let (pins, held) = close(false, |bpffs, _| {
        std::fs::remove_file(bpffs.path().join(maps::GPU_PER_PID)).unwrap();
        let theirs = crate::world::consumer_map(bpffs.path(), maps::PER_PID);
        put(&theirs, 5u32, process(5));
        assert_eq!(all::<u32, gpu_types::GpuPidMetricsAggregated>(&theirs).len(), 1);
    });
    assert_eq!(pins, ["gpu_per_pid"]);
    assert!(held.processes.is_empty(), "ours is emptied");
}
