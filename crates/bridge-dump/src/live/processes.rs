//! Who the processes are, as far as `/proc` tells.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use bridge_dump::cells::printable;

use super::place::place;

/// `PROC_PID_INIT_INO` of the kernel: the maps' PIDs are of that namespace, and in another one `/proc` has other processes under them.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// A process may take another command or cgroup, and a PID another process.
const TRUSTED_FOR: Duration = Duration::from_secs(10);

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Who {
    /// Its command line, or its name; empty when it is not to be seen.
    pub(super) command: String,
    /// Its container, pod or service.
    pub(super) place: String,
}

/// What has been looked up.
#[derive(Debug)]
pub(super) struct Processes {
    visible: bool,
    known: HashMap<u32, (Instant, Who)>,
}

impl Processes {
    pub(super) fn new() -> Self {
        let namespace = fs::read_link("/proc/self/ns/pid");
        Self { visible: namespace.is_ok_and(|link| link.as_os_str() == INITIAL_PID_NAMESPACE), known: HashMap::new() }
    }

    /// Whether the maps' PIDs can be looked up from here.
    pub(super) fn are_visible(&self) -> bool {
        self.visible
    }

    /// Who process `pid` is.
    pub(super) fn who(&mut self, pid: u32, now: Instant) -> Who {
        if !self.visible {
            return Who::default();
        }
        match self.known.get(&pid) {
            Some((looked, who)) if now.duration_since(*looked) < TRUSTED_FOR => who.clone(),
            _ => {
                let who = look_up(pid);
                self.known.insert(pid, (now, who.clone()));
                who
            }
        }
    }

    /// Forgets those that are not among `pids`, which are sorted.
    pub(super) fn keep(&mut self, pids: &[u32]) {
        self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
    }
}

fn look_up(pid: u32) -> Who {
    let read = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let command = command(&read("cmdline"), &read("comm"));
    Who { command, place: place(&String::from_utf8_lossy(&read("cgroup"))) }
}

/// The command line without the program's folder, or the name of a process that has none.
fn command(cmdline: &[u8], comm: &[u8]) -> String {
    let line = String::from_utf8_lossy(cmdline);
    let mut words = line.split('\0').filter(|word| !word.is_empty());
    let command = match words.next() {
        None => String::from_utf8_lossy(comm).trim_end_matches('\n').to_owned(),
        Some(program) => {
            let name = program.rsplit_once('/').map_or(program, |(_, name)| name);
            [name].into_iter().chain(words).collect::<Vec<_>>().join(" ")
        }
    };
    printable(&command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_in_one_line_without_its_folder() {
        assert_eq!(command(b"/usr/bin/python3\0train.py\0--lr\x001e-4\0", b"python3\n"), "python3 train.py --lr 1e-4");
        assert_eq!(command(b"", b"kworker/0:1\n"), "kworker/0:1");
        assert_eq!(command(b"", b""), "");
        assert_eq!(command(b"a\x1b[31m\0b\nc\0", b""), "a?[31m b?c");
    }

    #[test]
    fn a_process_is_looked_up_once_and_forgotten_when_it_is_gone() {
        let mut processes = Processes { visible: true, known: HashMap::new() };
        let (now, own) = (Instant::now(), std::process::id());
        let who = processes.who(own, now);
        assert!(!who.command.is_empty());
        processes.known.insert(own, (now, Who { command: "remembered".to_owned(), ..who }));
        assert_eq!(processes.who(own, now + TRUSTED_FOR / 2).command, "remembered");
        assert_ne!(processes.who(own, now + TRUSTED_FOR).command, "remembered");
        processes.keep(&[]);
        assert!(processes.known.is_empty());
    }

    #[test]
    fn in_another_pid_namespace_nobody_is_named() {
        let mut processes = Processes { visible: false, known: HashMap::new() };
        assert_eq!(processes.who(std::process::id(), Instant::now()), Who::default());
    }
}
