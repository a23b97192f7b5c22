//! Everything at once, for less than a minute: `cargo xtask soak` does it for longer, with release builds.

#![allow(clippy::print_stdout, reason = "shown when the test fails")]

use std::time::Duration;

use soak::Settings;

#[test]
fn forty_five_seconds_of_everything_at_once_are_withstood() {
    // Slower than usual: what describes the processes is made and read by programs that were not optimized.
    let settings = Settings { length: Duration::from_secs(45), seed: 1, pace: Duration::from_millis(250) };
    let report = soak::run(&settings, |line| println!("{line}"));
    assert_eq!(report.violations(), 0, "{report}");
}
