//! What is said again and again: that data is invented, and what happened meanwhile.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use bridge::Limits;
use common::{INTERVAL, Script, Setup, fall_back_to, log_lines::LINES, wait_for};
use log::Level;
use test_support::eventually;

const PID: u32 = 4_000_001;
const REPORT: Duration = Duration::from_millis(200);

fn count(level: Level, part: &str) -> usize {
    LINES.count(level, part)
}

#[test]
fn invented_data_is_recalled_at_every_report_until_it_is_real_and_the_summary_goes_on() {
    LINES.collect();
    let (real, invented) = (Script::new(1), Script::new(2));
    real.change(|state| state.closed = Some("no driver today"));
    // Tried in the background all the time.
    let limits = Limits { report: REPORT, first_retry: INTERVAL, longest_retry: INTERVAL, ..Limits::default() };
    let began = Instant::now();
    let running = Setup { limits, when_unavailable: fall_back_to(&invented), ..Setup::default() }.start(&real);
    wait_for(&running.reader(), &[0, 1], &[PID]);
    assert_eq!(count(Level::Warn, "no driver today; THE PUBLISHED DATA IS INVENTED"), 1);
    eventually("three reminders", || (count(Level::Warn, "still invented: scripted cannot be opened") >= 3).then_some(()));
    assert!(began.elapsed() >= REPORT * 3, "three reminders in {:?}", began.elapsed());
    assert!(real.attempts() > 5, "tried {} times", real.attempts());
    assert_eq!(count(Level::Warn, "THE PUBLISHED DATA IS INVENTED"), 1, "failed attempts are not told one by one");

    real.change(|state| state.closed = None);
    wait_for(&running.reader(), &[0], &[PID]);
    let (reminders, summaries) = (count(Level::Warn, "still invented"), count(Level::Info, "rounds, "));
    eventually("two more summaries", || (count(Level::Info, "rounds, ") >= summaries + 2).then_some(()));
    assert_eq!(count(Level::Warn, "still invented"), reminders, "said of real data");
    // Nothing else in steady state.
    let before = LINES.all().len();
    thread::sleep(REPORT * 2);
    let lines = LINES.all()[before..].to_vec();
    assert!(lines.iter().all(|(_, line)| line.contains("rounds, ")), "{lines:?}");
    running.stop().1.unwrap();
}
