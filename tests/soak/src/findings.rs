//! What is found while it runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Collects, from all threads.
#[derive(Debug)]
pub(crate) struct Findings {
    begun: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    violations: BTreeMap<&'static str, Violation>,
    /// What is going on, for whoever reads of a violation.
    now: String,
}

/// One kind of thing that is not as it must be.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    /// Since the start, the first of them.
    pub(crate) at: Duration,
    pub(crate) during: String,
    /// With the values.
    pub(crate) what: String,
    pub(crate) count: u64,
}

impl Findings {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), inner: Mutex::default() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// What is going on from now on.
    pub(crate) fn now(&self, what: String) {
        self.lock().now = what;
    }

    /// Something of this kind is not as it must be. The first of a kind is kept.
    pub(crate) fn violation(&self, kind: &'static str, what: String) {
        let at = self.elapsed();
        let mut inner = self.lock();
        let during = inner.now.clone();
        inner.violations.entry(kind).or_insert(Violation { at, during, what, count: 0 }).count += 1;
    }

    pub(crate) fn violations(&self) -> BTreeMap<&'static str, Violation> {
        self.lock().violations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
