//! Is the bridge's process still there?

use std::fs;

use nix::{
    errno::Errno,
    sys::signal::kill,
    unistd::{Pid, SysconfVar, sysconf},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Living,
    /// By SIGSTOP or a debugger: it does nothing until somebody lets it.
    Stopped,
    /// There is none, only a zombie, or another one that was given the PID later.
    Gone,
}

/// Looks at process `pid`, which was there at `boottime_ns` (`CLOCK_BOOTTIME`), in this process's PID namespace.
pub(crate) fn look(pid: u32, boottime_ns: u64) -> Process {
    let Ok(number) = i32::try_from(pid) else { return Process::Gone };
    // kill(0) would ask the own process group.
    if number == 0 || kill(Pid::from_raw(number), None) == Err(Errno::ESRCH) {
        return Process::Gone;
    }
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100);
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => read(&stat, boottime_ns, ticks_per_second),
        // No /proc, or one that hides it: kill has seen it.
        Err(_) => Process::Living,
    }
}

/// A line of `/proc/PID/stat`. The name before the state may hold anything.
fn read(stat: &str, boottime_ns: u64, ticks_per_second: u64) -> Process {
    let mut fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let state = fields.next();
    // starttime: field 22, in clock ticks since boot. It is rounded down, so a process is not called younger than it is.
    let started = fields.nth(18).and_then(|ticks| ticks.parse::<u64>().ok());
    let started_ns = started.map(|ticks| u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1)));
    match state {
        Some("Z" | "X" | "x") => Process::Gone,
        _ if started_ns.is_some_and(|started| started > u128::from(boottime_ns)) => Process::Gone,
        Some("T" | "t") => Process::Stopped,
        _ => Process::Living,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: &str = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";

    #[track_caller]
    fn check(state: &str, started_ticks: u64, expected: Process) {
        let stat = format!("77 (a) Z (b) {state} {STARTED} {started_ticks} 0 0\n");
        assert_eq!(read(&stat, 5_000_000_000, 100), expected, "{stat}");
    }

    #[test]
    fn a_process_lives_unless_its_state_or_its_age_says_otherwise() {
        check("S", 499, Process::Living);
        check("R", 500, Process::Living);
        check("D", 0, Process::Living);
        check("T", 499, Process::Stopped);
        check("t", 499, Process::Stopped);
        check("Z", 499, Process::Gone);
        check("S", 501, Process::Gone);
    }

    #[test]
    fn what_is_no_stat_line_is_believed_to_live() {
        assert_eq!(read("", 0, 100), Process::Living);
        assert_eq!(read("1 (x", 0, 100), Process::Living);
    }

    #[test]
    fn this_process_lives_and_was_not_there_at_boot() {
        let now = map_reader::boottime_now_ns().unwrap();
        assert_eq!(look(std::process::id(), now), Process::Living);
        assert_eq!(look(std::process::id(), 1), Process::Gone);
        assert_eq!(look(0, now), Process::Gone);
        assert_eq!(look(u32::MAX, now), Process::Gone);
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while look(child.id(), u64::MAX) != Process::Gone {
            assert!(std::time::Instant::now() < deadline, "it never ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists(), "nobody has waited for it");
        child.wait().unwrap();
    }
}
