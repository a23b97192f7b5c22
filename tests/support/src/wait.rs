//! Bounded waits that say what they waited for.

use std::thread;
use std::time::{Duration, Instant};

/// Long enough for anything that is going to happen, on a busy machine with two cores.
pub const WAIT: Duration = Duration::from_secs(20);

const STEP: Duration = Duration::from_millis(5);

/// Asks until there is an answer; `None` when there is none in time.
pub fn until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(STEP);
    }
}

/// Asks until there is an answer, for at most [`WAIT`].
///
/// # Panics
/// When there is none in time, with what was waited for.
#[track_caller]
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    until(WAIT, ask).unwrap_or_else(|| panic!("waited {} s in vain for: {what}", WAIT.as_secs()))
}
