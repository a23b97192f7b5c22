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
        self.failed_at(Instant::now(), error);
    }

    fn failed_at(&mut self, now: Instant, error: &PublishError) {
        let doing = self.doing;
        let Some(current) = &mut self.current else {
            log::error!("cannot {doing}: {}", chain(error));
            self.current = Some(Current { count: 1, said_at: now });
            return;
        };
        current.count += 1;
        if now.saturating_duration_since(current.said_at) >= REPEAT_INTERVAL {
            current.said_at = now;
            log::error!("cannot {doing}, {} times so far: {}", current.count, chain(error));
        }
    }

    pub(crate) fn worked(&mut self) {
        if let Some(Current { count, .. }) = self.current.take() {
            log::info!("can {} again after {count} failures", self.doing);
        }
    }
}
