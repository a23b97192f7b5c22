//! What the two processes take from the machine.

use e2e::processes::{anonymous_kib, descriptor_count, thread_count};

use crate::script::DEVICES;

/// Above the first measurement, for allocators that keep what they were given back.
const DAEMON_MARGIN_KIB: u64 = 2 << 10;
/// The simulated library lives in the sampler and reads megabytes of JSON at each change.
const SAMPLER_MARGIN_KIB: u64 = 16 << 10;
/// Its first, and for each GPU one that asks and one for a call that blocks. They come and go as they are needed.
const MOST_SAMPLER_THREADS: usize = 1 + 2 * DEVICES;

/// At one moment at which nothing goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) daemon: Process,
    pub(crate) sampler: Process,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Resident and no file's.
    pub(crate) memory_kib: u64,
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
}

impl Process {
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, memory_kib: anonymous_kib(pid), threads: thread_count(pid), descriptors: descriptor_count(pid) }
    }
}

impl Usage {
    /// In what it is more than it was at the end of the first scene: a kind and the values.
    pub(crate) fn compare(&self, before: &Self) -> Vec<(&'static str, String)> {
        let mut more = Vec::new();
        let mut demand = |holds: bool, kind, what: String| {
            if !holds {
                more.push((kind, what));
            }
        };
        let same = |now: usize, before: usize| format!("{now}, {before} at the beginning");
        let within = |now: u64, before: u64, margin: u64| now <= before + margin;
        let (daemon, sampler) = ((&self.daemon, &before.daemon), (&self.sampler, &before.sampler));
        demand(
            within(daemon.0.memory_kib, daemon.1.memory_kib, DAEMON_MARGIN_KIB),
            "memory of the daemon",
            format!("{} KiB, {} KiB at the beginning", daemon.0.memory_kib, daemon.1.memory_kib),
        );
        demand(
            within(sampler.0.memory_kib, sampler.1.memory_kib, SAMPLER_MARGIN_KIB),
            "memory of the sampler",
            format!("{} KiB, {} KiB at the beginning", sampler.0.memory_kib, sampler.1.memory_kib),
        );
        demand(daemon.0.threads == daemon.1.threads, "threads of the daemon", same(daemon.0.threads, daemon.1.threads));
        let (now, most) = (sampler.0.threads, MOST_SAMPLER_THREADS);
        demand(now <= most, "threads of the sampler", format!("{now}, {most} are the most that it may need"));
        for (kind, (now, before)) in [("file descriptors of the daemon", daemon), ("file descriptors of the sampler", sampler)] {
            demand(now.descriptors == before.descriptors, kind, same(now.descriptors, before.descriptors));
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(memory_kib: u64, threads: usize, descriptors: usize) -> Usage {
        let process = Process { pid: 1, memory_kib, threads, descriptors };
        Usage { daemon: process, sampler: process }
    }

    #[test]
    fn more_than_at_the_beginning_is_told_with_both_values() {
        let before = usage(1_000, 3, 9);
        assert_eq!(usage(900, 3, 9).compare(&before), []);
        assert_eq!(usage(1_000 + DAEMON_MARGIN_KIB, 3, 9).compare(&before), []);
        let more = usage(1_001 + DAEMON_MARGIN_KIB, 3, 9).compare(&before);
        assert_eq!(more, [("memory of the daemon", "3049 KiB, 1000 KiB at the beginning".to_owned())]);
        let kinds: Vec<_> = usage(1_000, 4, 10).compare(&before).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["threads of the daemon", "file descriptors of the daemon", "file descriptors of the sampler"]);
        let kinds: Vec<_> = usage(1_000, 10, 9).compare(&before).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["threads of the daemon", "threads of the sampler"]);
    }
}
