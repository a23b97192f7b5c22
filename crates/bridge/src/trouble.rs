//! A failure that goes on: said when it begins, once a minute with its count, and when it is over.

use std::time::{Duration, Instant};

use map_publisher::PublishError;

use crate::error::chain;

const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// One thing that may fail again and again.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// As in "cannot …".
    doing: &'static str,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    count: u64,
    said_at: Instant,
}

impl Trouble {
    pub(crate) fn with(doing: &'static str) -> Self {
        Self { doing, current: None }
    }

    pub(crate) fn failed(&mut self, error: &PublishError) {
        let doing = self.doing;
        match self.count(Instant::now()) {
            None => {}
            Some(1) => log::error!("cannot {doing}: {}", chain(error)),
            Some(count) => log::error!("cannot {doing}, {count} times so far: {}", chain(error)),
        }
    }

    /// Counts one more; how many that makes, if it is to be said.
    fn count(&mut self, now: Instant) -> Option<u64> {
        let Some(current) = &mut self.current else {
            self.current = Some(Current { count: 1, said_at: now });
            return Some(1);
        };
        current.count += 1;
        (now.saturating_duration_since(current.said_at) >= REPEAT_INTERVAL).then(|| {
            current.said_at = now;
            current.count
        })
    }

    pub(crate) fn worked(&mut self) {
        if let Some(Current { count, .. }) = self.current.take() {
            log::info!("can {} again after {count} failures", self.doing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_at_first_then_once_a_minute_and_from_the_start_when_it_was_over() {
        let (mut trouble, begun) = (Trouble::with("publish"), Instant::now());
        let said: Vec<_> = [0, 1, 59, 60, 61, 119, 120].map(|s| trouble.count(begun + Duration::from_secs(s))).into();
        assert_eq!(said, [Some(1), None, None, Some(4), None, None, Some(7)]);
        trouble.worked();
        assert_eq!(trouble.count(begun + Duration::from_secs(121)), Some(1));
    }
}
