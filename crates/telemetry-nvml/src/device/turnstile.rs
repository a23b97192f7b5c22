//! Whose turn it is to call the driver.
//!
//! A driver has locks of its own, so calls for several GPUs at once queue inside it, before the programs that use the GPUs, and each seems
//! to cost what the others do. One at a time they cost what they cost.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// One caller at a time passes, unless it takes too long. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Turnstile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    left: Condvar,
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// Since when whoever is inside has been there.
    since: Option<Instant>,
    /// Who wait: where nobody does, that somebody has left need not be told, which takes a system call.
    waiting: u32,
}

/// Whoever has it is inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    shared: Arc<Shared>,
    since: Instant,
}

impl Turnstile {
    /// Whoever is inside for longer than `patience` does not keep the others waiting: a call that hangs is one GPU's trouble.
    pub(crate) fn new(patience: Duration) -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), left: Condvar::new(), patience }))
    }

    /// Passes if nobody is inside.
    pub(crate) fn try_pass(&self) -> Option<Pass> {
        let mut state = self.0.lock();
        self.0.time_left(state.since).is_zero().then(|| Pass::begin(&self.0, &mut state))
    }

    /// Waits until nobody is inside, or for no longer than the patience with each who is.
    pub(crate) fn pass(&self) -> Pass {
        let mut state = self.0.lock();
        loop {
            let time_left = self.0.time_left(state.since);
            if time_left.is_zero() {
                return Pass::begin(&self.0, &mut state);
            }
            state.waiting += 1;
            state = self.0.left.wait_timeout(state, time_left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to have patience with whoever is inside.
    fn time_left(&self, since: Option<Instant>) -> Duration {
        since.map_or(Duration::ZERO, |since| self.patience.saturating_sub(since.elapsed()))
    }
}

impl Pass {
    fn begin(shared: &Arc<Shared>, state: &mut State) -> Self {
        let since = Instant::now();
        state.since = Some(since);
        Self { shared: Arc::clone(shared), since }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // Unless somebody lost patience with this one.
        if state.since == Some(self.since) {
            state.since = None;
            if state.waiting > 0 {
                self.shared.left.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    const FOR_EVER: Duration = Duration::from_secs(3_600);

    #[test]
    fn one_passes_at_a_time() {
        let turnstile = Turnstile::new(FOR_EVER);
        let inside = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let pass = turnstile.pass();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(pass);
                    }
                });
            }
        });
        let pass = turnstile.try_pass().unwrap();
        assert!(turnstile.try_pass().is_none());
        drop(pass);
        assert!(turnstile.try_pass().is_some());
    }

    #[test]
    fn who_stays_too_long_is_passed_by_and_cannot_end_the_next_ones_pass() {
        let turnstile = Turnstile::new(Duration::from_millis(20));
        let stuck = turnstile.pass();
        let start = Instant::now();
        let next = turnstile.pass();
        assert!(start.elapsed() >= Duration::from_millis(19));
        drop(stuck);
        let patient = Turnstile(Arc::clone(&turnstile.0));
        assert!(turnstile.0.lock().since.is_some(), "the next one is inside");
        drop(next);
        assert!(patient.try_pass().is_some());
    }
}
