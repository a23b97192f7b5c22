//! When to try again.

use std::time::Duration;

use crate::Limits;

/// Doubling delays, each up to a fifth shorter, so that a cluster's bridges do not try in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { first: limits.first_retry, longest: limits.longest_retry, failures: 0 }
    }

    /// The delay before the next attempt; `noise` is any number that differs between machines.
    pub(crate) fn next(&mut self, noise: u64) -> Duration {
        let delay = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        shortened(delay, noise)
    }

    /// The longest delay, whatever there was before.
    pub(crate) fn longest(&self, noise: u64) -> Duration {
        shortened(self.longest, noise)
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

fn shortened(delay: Duration, noise: u64) -> Duration {
    delay - delay.mul_f64(0.2 * (noise % 1000) as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_thirty_seconds_and_start_anew_after_a_success() {
        let mut backoff = Backoff::new(&Limits::default());
        let delays: Vec<_> = (0..7).map(|_| backoff.next(0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!((backoff.longest(0).as_secs(), backoff.next(0).as_secs()), (30, 1));
    }

    #[test]
    fn noise_shortens_a_delay_by_a_fifth_at_most() {
        for noise in 0..2_000 {
            let delay = Backoff::new(&Limits::default()).next(noise);
            assert!(delay <= Duration::from_secs(1) && delay >= Duration::from_millis(800), "{delay:?}");
        }
    }
}
