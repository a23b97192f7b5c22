//! Entries that others removed, changed or added.

use gpu_types::bytes::Record;
use gpu_types::maps;
use gpu_types::{GpuDeviceMetrics, keys::PidDeviceKey};
use libbpf_rs::MapCore;
use map_publisher::{Publisher, Records};
use test_support::Bpffs;

use crate::world::{check_published, on_device, open, pinned, process, put, round};

const SECOND_NS: u64 = 1_000_000_000;

/// The same round over and over, a hundred milliseconds apart: nothing of it is new after the first.
fn at(tick: u64) -> Records {
    let mut records = round(1, 1..=200);
    records.meta.last_update_boottime_ns = SECOND_NS + tick * SECOND_NS / 10;
    records
}

fn meddle(bpffs: &Bpffs) {
    let processes = pinned(bpffs.path(), maps::GPU_PER_PID);
    let process_devices = pinned(bpffs.path(), maps::GPU_PER_PID_PER_DEVICE);
    for pid in [1u32, 100, 200] {
        processes.delete(pid.as_bytes()).unwrap();
        process_devices.delete(PidDeviceKey::new(pid, 0).as_bytes()).unwrap();
    }
    put(&processes, 50u32, process(999));
    put(&processes, 5000u32, process(1));
    put(&process_devices, PidDeviceKey::new(5000, 3), on_device(1));
    put(&pinned(bpffs.path(), maps::GPU_DEVICE), 9u32, GpuDeviceMetrics { timestamp_ns: 1, ..Default::default() });
}

/// Returns the tick after which the maps were right again.
fn mended_at(bpffs: &Bpffs, publisher: &mut Publisher, ticks: std::ops::Range<u64>) -> u64 {
    for tick in ticks {
        let published = publisher.publish(&at(tick)).unwrap();
        assert_eq!((published.upserted, published.deleted), (0, 0), "tick {tick}");
        if published.rewritten > 0 {
            assert_eq!((published.read_back, published.rewritten, published.strangers_removed), (true, 7, 2));
            check_published(bpffs.path(), &at(tick));
            return tick;
        }
    }
    panic!("not mended");
}

#[test]
fn each_of_the_first_ten_rounds_is_read_back_and_mended_before_gpu_meta() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    publisher.publish(&at(0)).unwrap();
    for tick in 1..10 {
        meddle(&bpffs);
        assert_eq!(mended_at(&bpffs, &mut publisher, tick..11), tick);
    }
}

#[test]
fn later_they_are_mended_within_a_second() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    for tick in 0..10 {
        assert!(publisher.publish(&at(tick)).unwrap().read_back);
    }
    meddle(&bpffs);
    assert_eq!(mended_at(&bpffs, &mut publisher, 10..30), 19);
    meddle(&bpffs);
    assert_eq!(mended_at(&bpffs, &mut publisher, 20..40), 29);
}

#[test]
fn reading_back_happens_once_a_second_and_then_finds_nothing() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let read_back: Vec<u64> = (0..60)
        .filter(|tick| {
            let published = publisher.publish(&at(*tick)).unwrap();
            assert_eq!((published.rewritten, published.strangers_removed), (0, 0));
            published.read_back
        })
        .collect();
    assert_eq!(read_back, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 19, 29, 39, 49, 59]);
}

#[test]
fn a_clock_that_goes_back_does_not_end_the_reading_back() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    for tick in 0..10 {
        publisher.publish(&at(100 + tick)).unwrap();
    }
    meddle(&bpffs);
    assert_eq!(mended_at(&bpffs, &mut publisher, 0..2), 0);
}

#[test]
fn a_map_that_was_emptied_altogether_is_filled_again() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    publisher.publish(&at(0)).unwrap();
    let processes = pinned(bpffs.path(), maps::GPU_PER_PID);
    for pid in 1u32..=200 {
        processes.delete(pid.as_bytes()).unwrap();
    }
    let published = publisher.publish(&at(1)).unwrap();
    assert_eq!(published.rewritten, 200);
    check_published(bpffs.path(), &at(1));
}
