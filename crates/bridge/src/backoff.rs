//! When to try again.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Doubling delays from 1 s to 30 s, each up to a fifth shorter, so that a cluster's bridges do not try in step.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay before the next attempt; `noise` is any number that differs between machines.
    pub(crate) fn next(&mut self, noise: u64) -> Duration {
        let delay = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        delay - delay.mul_f64(0.2 * (noise % 1000) as f64 / 1000.0)
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_thirty_seconds_and_start_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..7).map(|_| backoff.next(0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.next(0).as_secs(), 1);
    }

    #[test]
    fn noise_shortens_a_delay_by_a_fifth_at_most() {
        for noise in 0..2_000 {
            let delay = Backoff::default().next(noise);
            assert!(delay <= FIRST && delay >= Duration::from_millis(800), "{delay:?}");
        }
    }
}
