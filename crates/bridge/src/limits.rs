//! How much patience the loop has.

use std::time::Duration;

/// How long, how often and after what the loop tries again, and when it gives up. The defaults are those of a node agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The delay before a source that failed is tried again; each further one is twice as long.
    pub first_retry: Duration,
    /// The longest of these delays.
    pub longest_retry: Duration,
    /// A source that has been published for this long starts with the first delay again when it fails; one that fails sooner goes on where it was.
    pub steady_after: Duration,
    /// A source that fails this often in a row, other than by not being there, ends the bridge with [`crate::BridgeError::GaveUp`]; while another is
    /// published, it is tried again after the longest delay instead.
    pub most_failures: u32,
    /// A driver that initialises takes seconds; one that takes longer than this hangs.
    pub open: Duration,
    /// After so long in opening that is said.
    pub slow_open: Duration,
    /// A sampler none of whose devices has answered for this long, or for 20 intervals, is ended and started anew.
    pub stuck: Duration,
    /// What happened is summarised this often, and that invented data is published in place of real is said again.
    pub report: Duration,
}

impl Default for Limits {
    /// 1 s, 30 s, 1 min, 8 failures (with these delays after a minute and a half at the earliest), 1 min, 5 s, 10 s, 10 min.
    fn default() -> Self {
        Self {
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(30),
            steady_after: Duration::from_secs(60),
            most_failures: 8,
            open: Duration::from_secs(60),
            slow_open: Duration::from_secs(5),
            stuck: Duration::from_secs(10),
            report: Duration::from_secs(600),
        }
    }
}
