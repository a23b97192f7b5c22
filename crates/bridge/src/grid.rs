//! The grid of the ticks: multiples of the poll interval on the monotonic clock, so that samplers of the same interval tick together, whenever and in
//! whatever process each was started.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Now, and how long ago the last multiple of `interval` on `CLOCK_MONOTONIC` was.
pub(crate) fn place(interval: Duration) -> (Instant, Duration) {
    const CLOSE_ENOUGH: Duration = Duration::from_micros(20);
    const ATTEMPTS: usize = 5;

    // An Instant does not tell its number: the clock is read between two of them.
    let bracket = || {
        let before = Instant::now();
        // The kernel has had this clock for ever; a failure would be a broken vDSO, and leaves samplers out of step.
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        (before.elapsed(), before, monotonic)
    };
    let mut tightest = bracket();
    for _ in 1..ATTEMPTS {
        if tightest.0 <= CLOSE_ENOUGH {
            break;
        }
        let next = bracket();
        if next.0 < tightest.0 {
            tightest = next;
        }
    }
    let (width, before, monotonic) = tightest;
    let lead = (monotonic.as_nanos() % interval.as_nanos().max(1)) as u64;
    (before + width / 2, Duration::from_nanos(lead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_who_ask_at_different_times_find_the_same_grid() {
        let interval = Duration::from_millis(20);
        let places: Vec<_> = (0..5)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(7));
                let (now, lead) = place(interval);
                assert!(lead < interval);
                now - lead
            })
            .collect();
        for pair in places.windows(2) {
            let off = (pair[1] - pair[0]).as_nanos() % interval.as_nanos();
            let off = off.min(interval.as_nanos() - off);
            assert!(off < 1_000_000, "{off} ns");
        }
    }
}
