//! The loop with two sources in steady state takes no heap memory, in any of its threads. Alone in its process, since the allocator counts for all.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::{alloc::System, thread, time::Duration};

use common::{INTERVAL, Script, Setup, stamp, wait_for};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use test_support::eventually;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn two_sources_are_published_without_heap_memory() {
    let (first, second) = (Script::new(2), Script::new(3));
    let running = Setup::default().start_all(&[("a", &first), ("b", &second)]);
    let reader = running.reader();
    wait_for(&reader, &[0, 1, 2, 3, 4], &[4_000_001]);
    // On a busy machine threads are called that are not there yet: some window is without.
    eventually("ten rounds without a heap allocation", || {
        let before = stamp(&reader);
        let region = Region::new(ALLOCATOR);
        thread::sleep(10 * INTERVAL + Duration::from_millis(5));
        let change = region.change();
        let passed = Duration::from_nanos(stamp(&reader) - before);
        (passed >= 9 * INTERVAL && (change.allocations, change.reallocations) == (0, 0)).then_some(())
    });
    running.stop().1.unwrap();
}
