//! Calls that go wrong.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Code;
use crate::clock;

/// A call that goes wrong, of one device or of the whole library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The symbol; with a `*` at its end, all that begin so.
    pub call: String,
    /// What happens.
    pub effect: Effect,
    /// So many calls go well first, counted from the moment at which the scenario is read.
    #[serde(default)]
    pub after_calls: u64,
    /// It happens so often; absent: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// `CLOCK_BOOTTIME` in ns before which all goes well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// `CLOCK_BOOTTIME` in ns from which all goes well again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

/// What a faulty call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Returns a code, after the call's cost.
    Return(Code),
    /// Does not return.
    Hang {
        /// Uses the CPU instead of sleeping.
        #[serde(default)]
        spin: bool,
        /// Not even when the scenario changes; else it goes on as the new scenario says.
        #[serde(default)]
        for_ever: bool,
    },
    /// Ends the process by SIGSEGV.
    Crash,
}

impl Fault {
    /// Every call of `call` has this effect.
    pub fn new(call: &str, effect: Effect) -> Self {
        Self { call: call.to_owned(), effect, after_calls: 0, times: None, from_ns: None, until_ns: None }
    }

    /// Every call of `call` returns a code.
    pub fn error(call: &str, code: Code) -> Self {
        Self::new(call, Effect::Return(code))
    }

    /// Every call of `call` sleeps until the scenario changes.
    pub fn hang(call: &str) -> Self {
        Self::new(call, Effect::Hang { spin: false, for_ever: false })
    }

    /// Every call of `call` ends the process by SIGSEGV.
    pub fn crash(call: &str) -> Self {
        Self::new(call, Effect::Crash)
    }

    /// Only after so many calls that go well.
    #[must_use]
    pub const fn after_calls(mut self, calls: u64) -> Self {
        self.after_calls = calls;
        self
    }

    /// Only so many times.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Only from some time after now.
    #[must_use]
    pub fn starting_in(mut self, delay: Duration) -> Self {
        self.from_ns = Some(later(delay));
        self
    }

    /// Only until some time after now.
    #[must_use]
    pub fn ending_in(mut self, delay: Duration) -> Self {
        self.until_ns = Some(later(delay));
        self
    }

    /// Whether it is in force at a `CLOCK_BOOTTIME`.
    pub(crate) fn in_force(&self, boottime_ns: u64) -> bool {
        self.from_ns.is_none_or(|from| boottime_ns >= from) && self.until_ns.is_none_or(|until| boottime_ns < until)
    }
}

fn later(delay: Duration) -> u64 {
    clock::boottime_ns().saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
}
