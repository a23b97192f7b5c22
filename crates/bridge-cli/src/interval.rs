//! The time between polls.

use std::{fmt, time::Duration};

use thiserror::Error;

use crate::duration::{self, DurationError};

/// The time between polls, as it was asked for: more than zero, at most an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PollInterval(Duration);

/// Why a text is no poll interval.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IntervalError {
    /// Not a duration.
    #[error("{0}; {ACCEPTED}")]
    Duration(DurationError),
    /// Zero or less.
    #[error("must be greater than zero; {ACCEPTED}")]
    NotPositive,
    /// More than an hour.
    #[error("must be at most 1h; {ACCEPTED}")]
    TooLong,
}

const ACCEPTED: &str = "accepted: a duration of at most 1h such as 100ms, 1.5s or 1m30s (units: ns, us, ms, s, m, h)";

impl PollInterval {
    /// The shortest interval that is used.
    pub const SHORTEST: Duration = Duration::from_millis(1);
    /// The longest interval that is accepted.
    pub const LONGEST: Duration = Duration::from_secs(3600);
    /// Above this, consumers that call data older than 300 ms stale see gaps.
    pub const LONGEST_FRESH: Duration = Duration::from_millis(150);

    /// Reads a Go duration.
    ///
    /// # Errors
    /// When it is none, not greater than zero, or more than an hour.
    pub fn parse(text: &str) -> Result<Self, IntervalError> {
        let nanoseconds = match duration::parse(text) {
            Ok(nanoseconds) => u64::try_from(nanoseconds).unwrap_or(0),
            Err(DurationError::TooLong) if text.starts_with('-') => 0,
            Err(DurationError::TooLong) => return Err(IntervalError::TooLong),
            Err(error) => return Err(IntervalError::Duration(error)),
        };
        match Duration::from_nanos(nanoseconds) {
            Duration::ZERO => Err(IntervalError::NotPositive),
            interval if interval > Self::LONGEST => Err(IntervalError::TooLong),
            interval => Ok(Self(interval)),
        }
    }

    /// What was asked for.
    pub const fn requested(self) -> Duration {
        self.0
    }

    /// What is used: what was asked for, but not less than 1 ms.
    pub fn effective(self) -> Duration {
        self.0.max(Self::SHORTEST)
    }
}

/// How old the newest round may be, for `--health`: more than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxAge(Duration);

impl MaxAge {
    /// Reads a Go duration.
    ///
    /// # Errors
    /// When it is none, or not greater than zero.
    pub fn parse(text: &str) -> Result<Self, String> {
        const ACCEPTED: &str = "accepted: a duration such as 500ms, 1.5s or 1m30s (units: ns, us, ms, s, m, h)";
        match duration::parse(text).map(u64::try_from) {
            Ok(Ok(nanoseconds)) if nanoseconds > 0 => Ok(Self(Duration::from_nanos(nanoseconds))),
            Ok(_) => Err(format!("must be greater than zero; {ACCEPTED}")),
            Err(error) => Err(format!("{error}; {ACCEPTED}")),
        }
    }

    /// The age.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Display for PollInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{IntervalError, PollInterval};
    use crate::duration::DurationError;

    #[track_caller]
    fn check(text: &str, requested: Duration, effective: Duration) {
        let interval = PollInterval::parse(text).unwrap();
        assert_eq!((interval.requested(), interval.effective()), (requested, effective), "{text:?}");
    }

    #[test]
    fn an_interval_in_range_is_used_as_it_is() {
        for (text, expected) in [("1ms", 1), ("100ms", 100), ("500ms", 500), ("1h", 3_600_000), ("60m", 3_600_000), ("59m60s", 3_600_000)] {
            check(text, Duration::from_millis(expected), Duration::from_millis(expected));
        }
    }

    #[test]
    fn an_interval_below_a_millisecond_becomes_one() {
        check("1ns", Duration::from_nanos(1), Duration::from_millis(1));
        check("999999ns", Duration::from_nanos(999_999), Duration::from_millis(1));
        check(".2ms", Duration::from_micros(200), Duration::from_millis(1));
    }

    #[test]
    fn zero_negative_and_too_long_intervals_are_refused() {
        for text in ["0", "-0", "+0", "0s", "0ms", "0.1ns", "-5s", "-1ns", "-9223372036854775808ns", "-99999999999999999999s"] {
            assert_eq!(PollInterval::parse(text), Err(IntervalError::NotPositive), "{text:?}");
        }
        for text in ["1h1ns", "61m", "2h", "9999999h", "99999999999999999999s"] {
            assert_eq!(PollInterval::parse(text), Err(IntervalError::TooLong), "{text:?}");
        }
        assert_eq!(PollInterval::parse("100"), Err(IntervalError::Duration(DurationError::MissingUnit)));
    }

    #[test]
    fn an_interval_is_shown_with_a_unit() {
        assert_eq!(PollInterval::parse("1m30s").unwrap().to_string(), "90s");
        assert_eq!(PollInterval::parse("0.5s").unwrap().to_string(), "500ms");
    }
}
