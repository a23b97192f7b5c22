//! The processes on the GPUs, and who was there when.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nvml_sim::scenario::{Load, Process};

use crate::dice::Dice;

/// Above the kernel's largest process id; from here on they only grow, so that of two processes the older one is known.
pub(crate) const FIRST_PID: u32 = 1 << 30;
/// How many there usually are.
const USUAL: (u64, u64) = (300, 1_800);
/// Too many.
const CROWD: u64 = 4_400;
/// How many leave at most from one moment to the next, and as many come.
const MOST_LEAVING: u64 = 250;
/// Every eighth is on all GPUs, every fourth is sampled.
const ON_ALL: u32 = 8;
const SAMPLED: u32 = 4;
/// Real ones at a time; each is a program that sleeps.
const REAL: usize = 60;
const REAL_MEMORY: u64 = 7 << 20;
const MIB: u64 = 1 << 20;

/// Who is on the GPUs at the moment.
#[derive(Debug)]
pub(crate) struct Crowd {
    dice: Dice,
    /// The invented ones that are there.
    present: std::ops::Range<u32>,
    real: VecDeque<Child>,
    /// On the first GPU for ever: it makes the events that a consumer waits for.
    worker: u32,
}

/// What a worker holds.
pub(crate) const WORKER_MEMORY: u64 = 1 << 30;

impl Crowd {
    pub(crate) fn gather(seed: u64, worker: u32) -> Self {
        let mut crowd = Self { dice: Dice::new(seed, 2), present: FIRST_PID..FIRST_PID, real: VecDeque::new(), worker };
        crowd.real.extend((0..REAL).map(|_| sleeper()));
        crowd.advance(false);
        crowd
    }

    /// The next moment: some leave, some come. Real ones that have ended are returned.
    pub(crate) fn advance(&mut self, crowded: bool) -> Vec<u32> {
        let count = u64::from(self.present.end - self.present.start);
        let wanted = if crowded { CROWD } else { self.dice.between(USUAL.0, USUAL.1) };
        let leaving = self.dice.below(MOST_LEAVING).min(count) + count.saturating_sub(wanted).min(2_000);
        let coming = self.dice.below(MOST_LEAVING) + wanted.saturating_sub(count).min(2_000);
        let step = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        self.present.start = (self.present.start + step(leaving)).min(self.present.end);
        self.present.end += step(coming);

        let mut ended = Vec::new();
        for _ in 0..self.dice.below(4) {
            if let Some(mut sleeper) = self.real.pop_front() {
                ended.push(sleeper.id());
                end(&mut sleeper);
            }
            self.real.push_back(sleeper());
        }
        ended
    }

    /// The processes on one of so many devices.
    pub(crate) fn on(&self, device: usize, devices: usize) -> Vec<Process> {
        let invented = self.present.clone().filter(|pid| is_on(*pid, device, devices)).map(|pid| {
            let process = Process::compute(pid, memory(pid));
            if pid.is_multiple_of(SAMPLED) { process.busy(Load::all(pid % 101, 50, 7, 3)) } else { process }
        });
        let mut processes: Vec<Process> = invented.collect();
        processes.extend(
            self.real.iter().map(Child::id).filter(|pid| *pid as usize % devices == device).map(|pid| Process::compute(pid, REAL_MEMORY)),
        );
        if device == 0 {
            processes.push(Process::compute(self.worker, WORKER_MEMORY).busy(Load::new(40, 20)));
        }
        processes
    }

    /// The key and the memory of every record that belongs into `gpu_per_pid_per_device`.
    pub(crate) fn records(&self, devices: usize) -> BTreeSet<(u32, u32, u64)> {
        (0..devices)
            .flat_map(|device| {
                self.on(device, devices).into_iter().map(move |process| (process.pid, device as u32, process.used_memory.unwrap_or(0)))
            })
            .collect()
    }

    pub(crate) fn present(&self) -> std::ops::Range<u32> {
        self.present.clone()
    }

    pub(crate) fn real(&self) -> impl Iterator<Item = u32> {
        self.real.iter().map(Child::id)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.real.iter_mut().for_each(end);
    }
}

fn is_on(pid: u32, device: usize, devices: usize) -> bool {
    pid.is_multiple_of(ON_ALL) || pid as usize % devices == device
}

fn memory(pid: u32) -> u64 {
    u64::from(pid % 1_000 + 1) * MIB
}

fn sleeper() -> Child {
    let mut sleep = Command::new("sleep");
    sleep.arg("infinity").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap_or_else(|error| panic!("cannot start sleep: {error}"))
}

fn end(sleeper: &mut Child) {
    // Both fail only for a process that is already gone.
    sleeper.kill().ok();
    sleeper.wait().ok();
}

/// Who was there when, for readers that see the maps at any moment.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    /// When which of the invented ones were there, the oldest first.
    moments: VecDeque<(u64, std::ops::Range<u32>)>,
    /// When real ones were last there.
    gone: HashMap<u32, u64>,
}

/// Longer than anything is looked back.
const REMEMBERED: Duration = Duration::from_secs(120);

impl Attendance {
    /// From now on these are there; those `ended` are not any more.
    pub(crate) fn note(&mut self, boottime_ns: u64, crowd: &Crowd, ended: &[u32]) {
        self.moments.push_back((boottime_ns, crowd.present()));
        let horizon = boottime_ns.saturating_sub(REMEMBERED.as_nanos() as u64);
        while self.moments.front().is_some_and(|(at, _)| *at < horizon) {
            self.moments.pop_front();
        }
        self.gone.extend(ended.iter().map(|pid| (*pid, boottime_ns)));
        // The kernel gives a number again.
        for pid in crowd.real() {
            self.gone.remove(&pid);
        }
    }

    /// For how long a process that is seen in a round has been gone; `None` when it never was there.
    pub(crate) fn overdue(&self, pid: u32, stamp_ns: u64) -> Option<Duration> {
        let left = if pid < FIRST_PID {
            self.gone.get(&pid).copied()
        } else {
            let (_, newest) = self.moments.back()?;
            if pid >= newest.end {
                return None;
            }
            let at = self.moments.partition_point(|(_, present)| present.start <= pid);
            self.moments.get(at).map(|(left, _)| *left)
        };
        Some(Duration::from_nanos(left.map_or(0, |left| stamp_ns.saturating_sub(left))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_crowd_and_real_processes_live_as_long_as_it() {
        let worker = std::process::id();
        let (mut one, mut other) = (Crowd::gather(3, worker), Crowd::gather(3, worker));
        let mut crowded = 0;
        for number in 0..60_u32 {
            let ended = one.advance(number > 50);
            assert_eq!((ended.len(), one.present()), (other.advance(number > 50).len(), other.present()));
            assert_eq!(one.real().count(), REAL);
            crowded = one.present().len();
        }
        assert!(crowded > 4_096, "{crowded}");
        let invented = one.records(3).into_iter().filter(|(pid, ..)| *pid >= FIRST_PID).count();
        assert!(invented > crowded && invented < crowded * 2, "{invented} records of {crowded}");
        let sleeper = one.real().next().expect("a real one");
        drop(one);
        assert!(!e2e::processes::is_alive(sleeper));
    }

    #[test]
    fn attendance_tells_for_how_long_a_process_has_been_gone() {
        let mut attendance = Attendance::default();
        let crowd = |present| Crowd { dice: Dice::new(0, 0), present, real: VecDeque::new(), worker: 1 };
        let pid = |number| FIRST_PID + number;
        attendance.note(1_000, &crowd(pid(0)..pid(10)), &[]);
        attendance.note(2_000, &crowd(pid(5)..pid(20)), &[77]);
        let overdue = |pid, stamp| attendance.overdue(pid, stamp).map(|time| time.as_nanos());
        assert_eq!(overdue(pid(4), 2_500), Some(500));
        assert_eq!(overdue(pid(4), 1_500), Some(0), "the round is from before");
        assert_eq!(overdue(pid(5), 9_000), Some(0));
        assert_eq!(overdue(pid(20), 9_000), None, "not there yet");
        assert_eq!((overdue(77, 2_700), overdue(78, 2_700)), (Some(700), Some(0)));
    }
}
