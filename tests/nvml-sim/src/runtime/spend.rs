//! Time that a call takes.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

use crate::scenario::CostMode;

/// A sleep ends about 50 µs late; so much of it is spun.
const SPUN: Duration = Duration::from_micros(100);

/// Spends a cost.
pub(crate) fn spend(mode: CostMode, us: u64) {
    if us == 0 {
        return;
    }
    let cost = Duration::from_micros(us);
    let begun = Instant::now();
    if mode != CostMode::Spin && cost > SPUN {
        thread::sleep(cost - SPUN);
    }
    while begun.elapsed() < cost {
        hint::spin_loop();
    }
}

/// Waits, asleep or not, until `over` says so.
pub(crate) fn hang(spin: bool, mut over: impl FnMut() -> bool) {
    while !over() {
        if spin {
            (0..10_000).for_each(|_| hint::spin_loop());
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
