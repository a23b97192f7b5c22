//! What cargo's test output says, added up.

use std::fmt;
use std::time::Duration;

/// The suites of one run of `cargo test`, read line by line.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    suites: Vec<Suite>,
}

/// One test binary, or one crate's documentation tests.
#[derive(Debug, Default, PartialEq)]
struct Suite {
    name: String,
    passed: u64,
    failed: u64,
    ignored: u64,
    time: Duration,
    /// False until its closing line was seen. A suite that crashed has none.
    ended: bool,
}

impl Summary {
    /// Takes in one line of output.
    pub(crate) fn line(&mut self, line: &str) {
        let line = without_colors(line);
        if let Some(name) = suite_name(line.trim()) {
            self.suites.push(Suite { name, ..Suite::default() });
        } else if let Some(result) = line.strip_prefix("test result: ") {
            // A crate's documentation tests may close with two such lines under one heading.
            if let Some(suite) = self.suites.last_mut() {
                suite.add(result);
            }
        }
    }

    pub(crate) fn passed(&self) -> u64 {
        self.suites.iter().map(|suite| suite.passed).sum()
    }

    /// Failed tests, and one for each suite that ended without a result.
    pub(crate) fn failed(&self) -> u64 {
        self.suites.iter().map(Suite::failures).sum()
    }

    /// The closing line; `unexplained` failures are those that cargo reported and no suite shows.
    pub(crate) fn closing_line(&self, unexplained: u64) -> String {
        let ignored: u64 = self.suites.iter().map(|suite| suite.ignored).sum();
        let skipped = if ignored > 0 { format!(", {ignored} skipped") } else { String::new() };
        format!("{} passed, {} failed{skipped}", self.passed(), self.failed() + unexplained)
    }
}

/// The suites that ran a test, one a line.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for suite in self.suites.iter().filter(|suite| suite.passed + suite.ignored + suite.failures() > 0) {
            write!(f, "{:>8.1} s {:>5} passed", suite.time.as_secs_f64(), suite.passed)?;
            match suite.failures() {
                _ if !suite.ended => write!(f, "  ended without a result")?,
                0 => {}
                failures => write!(f, " {failures:>5} FAILED")?,
            }
            writeln!(f, "  {}", suite.name)?;
        }
        Ok(())
    }
}

impl Suite {
    fn failures(&self) -> u64 {
        if self.ended { self.failed } else { self.failed + 1 }
    }

    /// Reads `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.05s`.
    fn add(&mut self, result: &str) {
        self.ended = true;
        let parts = result.split_once(". ").map_or(result, |(_, parts)| parts);
        for part in parts.split("; ") {
            if let Some(seconds) = part.strip_prefix("finished in ").and_then(|rest| rest.trim().strip_suffix('s')) {
                self.time += seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default();
            } else if let Some((number, what)) = part.split_once(' ') {
                let number = number.parse().unwrap_or(0);
                match what {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        }
    }
}

/// The suite that a line of cargo's opens: `Running tests/abi.rs (target/debug/deps/abi-0123456789abcdef)` or `Doc-tests telemetry`.
fn suite_name(line: &str) -> Option<String> {
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{package}, documentation"));
    }
    let (source, rest) = line.strip_prefix("Running ")?.rsplit_once(" (")?;
    let binary = rest.strip_suffix(')')?;
    let file = binary.rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
    let source = source.strip_prefix("unittests ").map_or(source.to_owned(), |path| format!("units of {path}"));
    Some(format!("{name}, {source}"))
}

/// The line less its terminal escape sequences (`ESC [ … letter`).
fn without_colors(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
     Running unittests src/lib.rs (target/debug/deps/telemetry-81e7b3b5ad0a5a60)

running 2 tests
test mock::tests::a ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s

     Running tests/abi.rs (/elsewhere/target/debug/deps/abi-layout-0123456789abcdef)
test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 61.20s

error: test failed, to rerun pass `-p gpu-types --test abi-layout`
   Doc-tests telemetry
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s
";

    fn read(output: &str) -> Summary {
        let mut summary = Summary::default();
        output.lines().for_each(|line| summary.line(line));
        summary
    }

    #[test]
    fn suites_are_named_timed_and_added_up() {
        let summary = read(RUN);
        assert_eq!(summary.closing_line(0), "8 passed, 1 failed, 1 skipped");
        assert_eq!(
            summary.to_string(),
            "     0.1 s     2 passed  telemetry, units of src/lib.rs\n    61.2 s     3 passed     1 FAILED  abi-layout, tests/abi.rs\n     0.8 s     3 passed  \
             telemetry, documentation\n"
        );
    }

    #[test]
    fn a_suite_that_crashed_counts_as_a_failure() {
        let summary = read("     Running tests/a.rs (target/debug/deps/a-00)\nrunning 1 test\nerror: test failed (signal: 11)\n");
        assert_eq!(summary.closing_line(0), "0 passed, 1 failed");
        assert!(summary.to_string().contains("ended without a result"));
    }

    #[test]
    fn colors_do_not_hide_a_result() {
        let run = "\u{1b}[1m\u{1b}[92m     Running\u{1b}[0m tests/a.rs (target/debug/deps/a-00)\ntest result: \u{1b}[32mok\u{1b}[m. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(read(run).closing_line(0), "4 passed, 0 failed");
    }

    #[test]
    fn a_failure_that_no_suite_shows_is_counted() {
        assert_eq!(read("error: could not compile `bridge`").closing_line(1), "0 passed, 1 failed");
    }

    #[test]
    fn a_tests_own_output_is_no_result() {
        let summary = read(
            "     Running tests/a.rs (target/debug/deps/a-00)\nthe test result: ok. 9 passed\nRunning late\ntest result: ok. 1 passed; 0 failed; finished in 0.00s",
        );
        assert_eq!(summary.closing_line(0), "1 passed, 0 failed");
    }
}
