//! What the kernel tells of a process: CPU time, context switches, memory, threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// The counters of a process that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time on a CPU, of all threads that live, to the nanosecond.
    pub(crate) on_cpu_ns: u64,
    /// Of all that, ended threads included, in the kernel's clock ticks.
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    pub(crate) context_switches: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let stat = read(format!("/proc/{pid}/stat"))?;
        // The name may hold spaces; it ends with the last parenthesis. utime and stime are fields 14 and 15, counted from 1.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let mut usage = Self { user_ticks: number(&fields, 11), system_ticks: number(&fields, 12), ..Self::default() };
        for task in tasks(pid)? {
            // A thread may end in between.
            let Ok(schedstat) = fs::read_to_string(task.join("schedstat")) else { continue };
            usage.on_cpu_ns += number(&schedstat.split_whitespace().collect::<Vec<_>>(), 0);
            let status = fs::read_to_string(task.join("status")).unwrap_or_default();
            usage.context_switches +=
                status_field(&status, "voluntary_ctxt_switches:") + status_field(&status, "nonvoluntary_ctxt_switches:");
        }
        Ok(usage)
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            on_cpu_ns: self.on_cpu_ns.saturating_sub(before.on_cpu_ns),
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            on_cpu_ns: self.on_cpu_ns + other.on_cpu_ns,
            user_ticks: self.user_ticks + other.user_ticks,
            system_ticks: self.system_ticks + other.system_ticks,
            context_switches: self.context_switches + other.context_switches,
        }
    }
}

/// Memory of one or more processes, in KiB.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Resident, a page that two of the processes share counted once for each.
    pub(crate) resident_kib: u64,
    /// Resident, pages of files counted once: what these processes take from the machine.
    pub(crate) together_kib: u64,
    /// Of that, what is not a file's.
    pub(crate) anonymous_kib: u64,
    pub(crate) threads: u64,
    /// Resident pages by file.
    #[serde(skip)]
    files: BTreeMap<PathBuf, u64>,
}

impl Memory {
    /// Memory of a process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let mut memory = Self { threads: tasks(pid)?.len() as u64, ..Self::default() };
        let mut file = None;
        for line in read(format!("/proc/{pid}/smaps"))?.lines() {
            match line.split_once(':') {
                Some(("Rss", value)) => {
                    let kib = leading(value);
                    memory.resident_kib += kib;
                    if let Some(file) = &file {
                        *memory.files.entry(PathBuf::clone(file)).or_default() += kib;
                    }
                }
                Some(("Anonymous", value)) => {
                    let kib = leading(value);
                    memory.anonymous_kib += kib;
                    if let Some(file) = &file {
                        // A private page of a file's mapping that was written to is nobody else's.
                        *memory.files.entry(PathBuf::clone(file)).or_default() -= kib;
                    }
                }
                _ => file = mapped_file(line).or(file.filter(|_| !is_header(line))),
            }
        }
        memory.sum_up();
        Ok(memory)
    }

    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.resident_kib += other.resident_kib;
        self.anonymous_kib += other.anonymous_kib;
        self.threads += other.threads;
        for (file, kib) in other.files {
            let together = self.files.entry(file).or_default();
            *together = (*together).max(kib);
        }
        self.sum_up();
        self
    }

    fn sum_up(&mut self) {
        self.together_kib = self.anonymous_kib + self.files.values().sum::<u64>();
    }
}

/// The processes that `pid` has started.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")?.flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended meanwhile is nobody's child.
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status_field(&status, "PPid:") == u64::from(pid) {
            children.push(child);
        }
    }
    Ok(children)
}

/// The threads of a process: their ids and names.
pub(crate) fn threads(pid: u32) -> Result<BTreeMap<u32, String>> {
    let named = |task: PathBuf| {
        let id = task.file_name()?.to_str()?.parse().ok()?;
        Some((id, fs::read_to_string(task.join("comm")).ok()?.trim_end().to_owned()))
    };
    Ok(tasks(pid)?.into_iter().filter_map(named).collect())
}

/// Where a process has a file mapped: the first and the last address.
pub(crate) fn mapping(pid: u32, is_it: impl Fn(&Path) -> bool) -> Result<Option<(PathBuf, u64, u64)>> {
    let mut found: Option<(PathBuf, u64, u64)> = None;
    for line in read(format!("/proc/{pid}/maps"))?.lines() {
        let Some(path) = mapped_file(line).filter(|path| is_it(path)) else { continue };
        let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-')) else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else { continue };
        let (_, first, last) = found.get_or_insert((path, start, end));
        (*first, *last) = ((*first).min(start), (*last).max(end));
    }
    Ok(found)
}

fn tasks(pid: u32) -> Result<Vec<PathBuf>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))?;
    Ok(tasks.flatten().map(|task| task.path()).collect())
}

fn read(path: String) -> Result<String> {
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// The path at the end of a line of `maps` or of a header of `smaps`.
fn mapped_file(line: &str) -> Option<PathBuf> {
    let (_, path) = line.split_once(" /")?;
    Some(Path::new("/").join(path))
}

/// Whether a line of `smaps` begins a mapping.
fn is_header(line: &str) -> bool {
    line.split(' ').next().is_some_and(|range| range.contains('-'))
}

fn status_field(status: &str, name: &str) -> u64 {
    status.lines().find_map(|line| line.strip_prefix(name)).map_or(0, leading)
}

fn leading(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn number(fields: &[&str], at: usize) -> u64 {
    fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Time that a thread has spent on a CPU.
pub(crate) fn thread_on_cpu_ns(pid: u32, tid: u32) -> Result<u64> {
    let schedstat = read(format!("/proc/{pid}/task/{tid}/schedstat"))?;
    Ok(number(&schedstat.split_whitespace().collect::<Vec<_>>(), 0))
}
