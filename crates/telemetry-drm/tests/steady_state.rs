//! Asking takes no heap memory once a card has been asked a few times, whatever state it is in. Alone in its process, since the allocator
//! counts for all threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{alloc::System, thread, time::Duration};

use drm_sim::{
    Tree,
    proc::{FdinfoText, Proc},
    profiles::{A380_I915, B580, MI300X, PHOENIX, RX580, RX6900XT},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use telemetry::{Device, Now, Reading, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Lane = (Box<dyn Device>, Reading);

/// A minute of ticks, all questions at each.
fn minute(lanes: &mut [Lane], from_s: u64) {
    for tick in 0..600 {
        let now = Now { boottime_ns: from_s * 1_000_000_000 + tick * 100_000_000, clock_offset_ns: 0 };
        for (device, reading) in lanes.iter_mut() {
            for probe in 0..device.probes().len() {
                device.ask(probe, now, reading).unwrap();
            }
        }
    }
}

#[test]
fn asking_takes_no_heap_memory() {
    let tree = Tree::new();
    let cards = [RX580, RX6900XT, PHOENIX, MI300X, A380_I915, B580].iter().zip(0..);
    let cards: Vec<_> = cards.map(|(profile, number)| tree.add(number, profile)).collect();
    // One sleeps, one is idle, one lacks a file, another fails.
    tree.add_at(6, "0000:e1:00.0", &RX6900XT).set_status("suspended");
    cards[1].set("gpu_busy_percent", "0");
    cards[2].remove("gpu_busy_percent");
    cards[3].fail_on_read("mem_busy_percent");
    let processes: Vec<_> = (0..20)
        .map(|pid| {
            let card = &cards[pid as usize % cards.len()];
            let process = Proc::new(tree.root()).process(1_000 + pid, "worker", 1_000);
            let text = FdinfoText::new("amdgpu", card.pci(), u64::from(pid)).engine("gfx", 1_000).resident("vram", 2_048);
            process.open(5, &format!("dev/dri/renderD{}", card.render_minor()), text);
            process
        })
        .collect();
    let mut source = DrmSource::new(DrmOptions { root: tree.root().to_owned(), ..DrmOptions::default() });
    let mut lanes: Vec<Lane> = source.open().unwrap().devices.into_iter().map(|device| (device, Reading::default())).collect();
    minute(&mut lanes, 1_000);
    minute(&mut lanes, 1_060);
    // PCIe counters are read by a thread, which has its own beginnings.
    thread::sleep(Duration::from_millis(200));
    minute(&mut lanes, 1_120);
    let region = Region::new(ALLOCATOR);
    minute(&mut lanes, 1_180);
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
    assert_eq!(lanes.iter().filter(|(_, reading)| reading.metrics.temp_c.is_some()).count(), 6);
    assert_eq!(lanes.iter().map(|(_, reading)| reading.processes.len()).sum::<usize>(), processes.len());
}
