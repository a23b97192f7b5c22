//! A round in steady state takes no heap memory. Alone in its process, since the allocator counts for all threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::alloc::System;

use gpu_types::{GpuDeviceMetrics, GpuPidMetrics, GpuPidMetricsAggregated, keys::PidDeviceKey};
use map_publisher::{Options, Publisher, Records};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use test_support::Bpffs;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SECOND_NS: u64 = 1_000_000_000;

/// 16 GPUs with 200 processes; all values change, and each round one process goes and another comes.
fn fill(records: &mut Records, number: u64) {
    records.meta.last_update_boottime_ns = SECOND_NS + number;
    for device in &mut records.devices {
        *device = GpuDeviceMetrics { timestamp_ns: number, ..GpuDeviceMetrics::default() };
    }
    records.processes.clear();
    records.process_devices.clear();
    for pid in number as u32 + 1..=number as u32 + 200 {
        records.processes.push((pid, GpuPidMetricsAggregated { timestamp_ns: number, ..Default::default() }));
        for device in 0..16 {
            records
                .process_devices
                .push((PidDeviceKey::new(pid, device).into(), GpuPidMetrics { timestamp_ns: number, ..Default::default() }));
        }
    }
}

#[test]
fn a_round_in_steady_state_takes_no_heap_memory() {
    let bpffs = Bpffs::mount();
    let mut publisher = Publisher::open(&Options::new(bpffs.path(), 1, SECOND_NS)).unwrap();
    let mut records = Records::default();
    // The first ten are read back.
    for number in 0..20 {
        fill(&mut records, number);
        publisher.publish(&records).unwrap();
    }
    let region = Region::new(ALLOCATOR);
    for number in 20..120 {
        fill(&mut records, number);
        let published = publisher.publish(&records).unwrap();
        assert_eq!((published.upserted, published.deleted, published.read_back), (17 * 200, 17, false));
        publisher.set_state(|state| state.late_ticks = number);
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");

    // A second later they are read back.
    for is_first in [true, false] {
        records.meta.last_update_boottime_ns += 2 * SECOND_NS;
        let region = Region::new(ALLOCATOR);
        assert!(publisher.publish(&records).unwrap().read_back);
        let change = region.change();
        assert!(is_first || (change.allocations, change.reallocations) == (0, 0), "{change:?}");
    }

    publisher.check_pins().unwrap();
    let region = Region::new(ALLOCATOR);
    assert!(publisher.check_pins().unwrap().is_empty());
    assert_eq!(region.change().allocations, 0);
}
