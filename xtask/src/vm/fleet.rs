//! `test-kernels`: all machines, side by side as far as this one has CPUs, and within a limit.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::machine::{Console, Outcome};
use super::plan::Built;
use super::{NotRun, Ready, folder, kernel, prepare};
use crate::say::say;

/// Kernel and CPUs of each machine. The last is there for the demand that nothing be lost with many CPUs.
const MACHINES: &[(&str, u32)] = &[("5.10", 1), ("6.1", 1), ("6.12", 1), ("6.1", 48)];
/// From the first machine's start to the last one's end.
const TOTAL_LIMIT: Duration = Duration::from_secs(25 * 60);
/// For one machine. With two of them on two busy CPUs each takes about half of this.
const MACHINE_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Side by side: each has a processor of its own to keep busy, and a gigabyte.
const MOST_AT_A_TIME: usize = 3;
/// Of the console, for a program that failed.
const LINES_SHOWN: usize = 60;

/// What became of a machine.
#[derive(Debug)]
enum Fate {
    Passed,
    Failed(String),
    NotRun(String),
}

/// Runs the tests on every kernel of [`MACHINES`].
///
/// # Errors
/// As [`super::run`]. Machines that can be had are run, whatever becomes of the others.
pub(crate) fn test_kernels() -> Result<()> {
    prepare()?;
    let (folder, built) = (folder()?, Built::build()?);
    // One after the other: apt allows no two of itself.
    let machines: Vec<_> = MACHINES.iter().map(|(version, smp)| (*version, *smp, ready(version, *smp, &folder, &built))).collect();

    let begun = Instant::now();
    let fates = Mutex::new(Vec::new());
    let (alone, beside): (Vec<_>, Vec<_>) = (0..machines.len()).partition(|index| machines[*index].1 > 1);
    let run_all = |indices: Vec<usize>, at_a_time: usize| {
        let queue = Mutex::new(VecDeque::from(indices));
        let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        thread::scope(|scope| {
            for _ in 0..at_a_time {
                scope.spawn(|| {
                    while let Some(index) = take() {
                        let start = Instant::now();
                        let fate = fate(machines[index].2.as_ref(), begun);
                        fates.lock().unwrap_or_else(PoisonError::into_inner).push((index, fate, start.elapsed()));
                    }
                });
            }
        });
    };
    run_all(beside, thread::available_parallelism().map_or(1, usize::from).min(MOST_AT_A_TIME));
    run_all(alone, 1);

    let mut fates = fates.into_inner().unwrap_or_else(PoisonError::into_inner);
    fates.sort_by_key(|(index, ..)| *index);
    say!("\n== summary, after {:.0} s", begun.elapsed().as_secs_f64());
    for (index, fate, took) in &fates {
        let (version, smp, _) = machines[*index];
        let name = format!("Linux {version}, {smp} {}", if smp == 1 { "CPU" } else { "CPUs" });
        match fate {
            Fate::Passed => say!("{name:<24}{:>7.0} s  passed", took.as_secs_f64()),
            Fate::Failed(what) => say!("{name:<24}{:>7.0} s  FAILED: {what}", took.as_secs_f64()),
            Fate::NotRun(why) => say!("{name:<24}          not run: {why}"),
        }
    }
    conclude(fates.into_iter().map(|(_, fate, _)| fate))
}

fn ready(version: &str, smp: u32, folder: &Path, built: &Built) -> Result<Ready> {
    let version = version.parse().map_err(anyhow::Error::msg)?;
    Ready::make(&kernel::get(version, folder)?, smp, None, built)
}

/// Runs it, and says how it was.
fn fate(ready: Result<&Ready, &anyhow::Error>, begun: Instant) -> Fate {
    let ready = match ready {
        Ok(ready) => ready,
        Err(error) => match error.downcast_ref::<NotRun>() {
            Some(NotRun(why)) => return Fate::NotRun(why.clone()),
            None => return Fate::Failed(format!("{error:#}")),
        },
    };
    let left = TOTAL_LIMIT.saturating_sub(begun.elapsed());
    if left.is_zero() {
        return Fate::Failed(format!("no time was left: all machines together may take {} min", TOTAL_LIMIT.as_secs() / 60));
    }
    let outcomes = match ready.run(Console::Kept, MACHINE_LIMIT.min(left)) {
        Ok(outcomes) => outcomes,
        Err(error) => return Fate::Failed(format!("{error:#}")),
    };
    let console = fs::read_to_string(ready.console_log()).unwrap_or_default();
    say!("{}", describe(&ready.name, &outcomes, &console));
    let failed: Vec<&str> = outcomes.iter().filter(|(_, outcome)| !outcome.is_passed()).map(|(name, _)| name.as_str()).collect();
    if failed.is_empty() { Fate::Passed } else { Fate::Failed(failed.join(", ")) }
}

/// A line for each program, and what the console showed of the first that failed.
fn describe(machine: &str, outcomes: &[(String, Outcome)], console: &str) -> String {
    let mut text = format!("\n== {machine}");
    for (name, outcome) in outcomes {
        text += &format!("\n{name:<36} {outcome}");
    }
    if let Some((name, _)) = outcomes.iter().find(|(_, outcome)| !outcome.is_passed()) {
        let shown = last_lines_of(name, console);
        text += &format!("\nthe console's last lines of {name}:\n  {}", shown.join("\n  "));
    }
    text
}

/// What the console showed from the heading of a program to that of the next; of a program that was not begun the console's end.
fn last_lines_of<'a>(name: &str, console: &'a str) -> Vec<&'a str> {
    let heading = format!("== {name}");
    let own: Vec<&str> = console.lines().skip_while(|line| line.trim_end() != heading).collect();
    let end = own.iter().skip(1).position(|line| line.starts_with("== ")).map_or(own.len(), |position| position + 1);
    let lines = if own.is_empty() { console.lines().collect() } else { own[..end].to_vec() };
    lines[lines.len().saturating_sub(LINES_SHOWN)..].to_vec()
}

fn conclude(fates: impl Iterator<Item = Fate>) -> Result<()> {
    let mut not_run = None;
    let mut failed = 0;
    for fate in fates {
        match fate {
            Fate::Passed => {}
            Fate::Failed(_) => failed += 1,
            Fate::NotRun(why) => not_run = not_run.or(Some(why)),
        }
    }
    match not_run {
        _ if failed > 0 => bail!("kernel tests failed on {failed} of {} machines", MACHINES.len()),
        Some(why) => Err(NotRun(why).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_program_that_failed_its_own_lines_are_shown() {
        let console = "Linux\n== a/one\n1\n== a/two\r\n2\n3\n== a/three\n4\n";
        assert_eq!(last_lines_of("a/two", console), ["== a/two", "2", "3"]);
        assert_eq!(last_lines_of("a/three", console), ["== a/three", "4"]);
        assert_eq!(last_lines_of("a/four", console).len(), 8, "it was not begun");
        let outcomes = [("a/one".to_owned(), Outcome::Passed(Duration::from_secs(3))), ("a/two".to_owned(), Outcome::Failed(101))];
        let text = describe("Linux 9", &outcomes, console);
        assert!(text.contains("passed in 3 s") && text.contains("FAILED with status 101") && text.ends_with("\n  2\n  3"), "{text}");
    }

    #[test]
    fn what_failed_counts_more_than_what_was_not_run() {
        let not_run = || Fate::NotRun("no mirror".to_owned());
        assert!(conclude([Fate::Passed, Fate::Passed].into_iter()).is_ok());
        let error = conclude([Fate::Passed, not_run()].into_iter()).expect_err("one was not run");
        assert!(error.is::<NotRun>() && error.to_string().contains("no mirror"), "{error}");
        let error = conclude([not_run(), Fate::Failed(String::new())].into_iter()).expect_err("one failed");
        assert!(!error.is::<NotRun>(), "{error}");
    }
}
