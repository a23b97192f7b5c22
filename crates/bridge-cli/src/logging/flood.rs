//! What one place in the program says over and over: written at first, then counted, with one line a minute.

use std::{
    collections::HashMap,
    fmt,
    time::{Duration, Instant},
};

use log::Level;

/// How often a count is told.
const WINDOW: Duration = Duration::from_secs(60);
/// As many lines of one place are written within a minute: each of 16 devices may have its own.
const BURST: u32 = 20;

/// A place in the program that logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub(super) file: &'static str,
    pub(super) line: u32,
    pub(super) level: Level,
}

/// The places that have logged.
#[derive(Debug, Default)]
pub(super) struct Floods(HashMap<Site, Window>);

#[derive(Debug)]
struct Window {
    since: Instant,
    written: u32,
    left_out: u64,
    newest: String,
    /// The minute before had too many: this one's are only counted.
    goes_on: bool,
}

/// What was left out of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) level: Level,
    count: u64,
    newest: String,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} more like this within a minute: {}", self.count, self.newest)
    }
}

impl Floods {
    /// Whether a message may be written; one that may not is counted.
    pub(super) fn admit(&mut self, site: Site, now: Instant, message: &fmt::Arguments<'_>) -> bool {
        let window =
            self.0.entry(site).or_insert_with(|| Window { since: now, written: 0, left_out: 0, newest: String::new(), goes_on: false });
        if now.saturating_duration_since(window.since) >= WINDOW {
            // That one of `over` has been told of this window is all that can have happened to it.
            *window = Window { since: now, written: 0, left_out: 0, newest: String::new(), goes_on: false };
        }
        if !window.goes_on && window.written < BURST {
            window.written += 1;
            return true;
        }
        window.left_out += 1;
        window.newest = message.to_string();
        false
    }

    /// The floods whose minute is over, to be told of. To be called before [`Floods::admit`].
    pub(super) fn over(&mut self, now: Instant) -> Vec<Summary> {
        let mut summaries = Vec::new();
        for (site, window) in &mut self.0 {
            if window.left_out > 0 && now.saturating_duration_since(window.since) >= WINDOW {
                let newest = std::mem::take(&mut window.newest);
                summaries.push(Summary { level: site.level, count: window.left_out, newest });
                *window = Window { since: now, written: 0, left_out: 0, newest: String::new(), goes_on: true };
            }
        }
        summaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: Site = Site { file: "a.rs", line: 7, level: Level::Warn };
    const OTHER: Site = Site { line: 8, ..SITE };

    /// Says `text` as the logger does. What is written.
    fn say(floods: &mut Floods, site: Site, at: Instant, text: &str) -> Vec<String> {
        let mut lines: Vec<String> = floods.over(at).iter().map(ToString::to_string).collect();
        if floods.admit(site, at, &format_args!("{text}")) {
            lines.push(text.to_owned());
        }
        lines
    }

    #[test]
    fn ten_a_second_for_five_minutes_are_a_burst_and_a_count_a_minute() {
        let (mut floods, start) = (Floods::default(), Instant::now());
        let lines: Vec<String> = (0..3_000)
            .flat_map(|tick| say(&mut floods, SITE, start + Duration::from_millis(tick * 100), &format!("tick {tick}")))
            .collect();
        let (burst, counts) = lines.split_at(BURST as usize);
        assert!(burst.iter().enumerate().all(|(tick, line)| *line == format!("tick {tick}")), "{burst:?}");
        assert_eq!(
            counts,
            [
                "580 more like this within a minute: tick 599",
                "600 more like this within a minute: tick 1199",
                "600 more like this within a minute: tick 1799",
                "600 more like this within a minute: tick 2399",
            ]
        );
    }

    #[test]
    fn what_is_rare_is_written_each_time() {
        let (mut floods, start) = (Floods::default(), Instant::now());
        for n in 0..200 {
            assert_eq!(say(&mut floods, SITE, start + Duration::from_secs(4 * n), "rare"), ["rare"], "{n}");
        }
    }

    #[test]
    fn places_do_not_speak_for_each_other_but_tell_what_was_left_out() {
        let (mut floods, start) = (Floods::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(say(&mut floods, SITE, start, "flood"), ["flood"]);
        }
        assert_eq!(say(&mut floods, SITE, start, "flood"), [""; 0]);
        assert_eq!(say(&mut floods, OTHER, start, "other"), ["other"]);
        // The flood has ended, and another place speaks a minute later.
        assert_eq!(say(&mut floods, OTHER, start + WINDOW, "other"), ["1 more like this within a minute: flood", "other"]);
        // After a quiet minute everything is written again.
        assert_eq!(say(&mut floods, SITE, start + 2 * WINDOW, "again"), ["again"]);
    }
}
