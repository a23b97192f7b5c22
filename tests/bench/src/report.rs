//! What a run of the bench leaves behind: JSON, a table, a comparison.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::lookup::Lookups;
use crate::measure::Measured;
use crate::watch::Spread;

/// Everything of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) binary_bytes: u64,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) starting: Vec<Starting>,
    pub(crate) cases: Vec<Measured>,
    pub(crate) by_processes: Vec<Point>,
    pub(crate) by_gpus: Vec<Point>,
    pub(crate) lookups: Vec<Lookups>,
}

/// Where and of what it was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    /// With a `+` when the tree had changes that were not committed.
    pub(crate) commit: String,
    /// Runnable processes in the minute before: a busy machine measures itself.
    pub(crate) load: f64,
}

/// What a program takes that does nothing but wait for its ticks: less than that, nothing that wakes up so often can take on this machine.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) interval_ms: f64,
    pub(crate) cpu_ms_per_s: f64,
}

/// Milliseconds of starting and stopping.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Starting {
    pub(crate) name: String,
    /// From the start of the program to its first round.
    pub(crate) to_first_round_ms: Spread,
    /// From SIGTERM to the end.
    pub(crate) to_end_ms: Spread,
}

/// A point of a chart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) gpus: usize,
    pub(crate) processes: usize,
    pub(crate) measured: Measured,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let proc = |file: &str| fs::read_to_string(Path::new("/proc").join(file)).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let first = |text: String| text.split_whitespace().next().unwrap_or_default().to_owned();
        let cpuinfo = proc("cpuinfo");
        Self {
            cpu: after(&cpuinfo, "model name"),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_mib: first(after(&proc("meminfo"), "MemTotal")).parse::<u64>().unwrap_or(0) / 1024,
            kernel: proc("sys/kernel/osrelease").trim().to_owned(),
            commit: commit(),
            load: first(proc("loadavg")).parse().unwrap_or(0.0),
        }
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| changes.is_empty());
    if is_clean { commit } else { format!("{commit}+") }
}

impl Report {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a report of this bench", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The tables, in Markdown.
    pub(crate) fn tables(&self) -> String {
        let mut text = self.heading();
        if !self.cases.is_empty() {
            text.push_str(&table(&COLUMNS, &self.cases));
            text.push('\n');
            text.push_str(&table(&COUNTS, &self.cases));
            text.push('\n');
        }
        for Waiting { interval_ms, cpu_ms_per_s } in &self.waiting {
            text.push_str(&format!("a program that only waits for ticks of {interval_ms} ms: {cpu_ms_per_s:.2} ms/s of CPU\n"));
        }
        for Starting { name, to_first_round_ms: start, to_end_ms: end } in &self.starting {
            text.push_str(&format!(
                "start, {name}: {:.1} ms to the first round (median; {:.1} at most) · SIGTERM: {:.1} ms to the end ({:.1} at most)\n",
                start.median, start.max, end.median, end.max
            ));
        }
        for Lookups { poll_interval_ms, ns, .. } in &self.lookups {
            let costs: Vec<_> = ns.iter().map(|(name, ns)| format!("{name} {:.0} ns (p99 {:.0})", ns.median, ns.p99)).collect();
            text.push_str(&format!("lookup while the bridge writes every {poll_interval_ms} ms: {}\n", costs.join(" · ")));
        }
        text
    }

    fn heading(&self) -> String {
        let Machine { cpu, cpus, memory_mib, kernel, commit, load } = &self.machine;
        let binary_kib = self.binary_bytes / 1024;
        format!("{cpu}, {cpus} CPUs, {memory_mib} MiB, Linux {kernel}, load {load}; commit {commit}, binary {binary_kib} KiB\n\n")
    }

    /// Each figure of the tables as a multiple of the older one.
    pub(crate) fn compared_with(&self, older: &Self) -> String {
        let before: BTreeMap<_, _> = older.cases.iter().map(|case| (case.name.as_str(), case)).collect();
        let mut text = format!("this commit, {}, as a multiple of {}:\n\n", self.machine.commit, older.machine.commit);
        for columns in [&COLUMNS[..], &COUNTS[..]] {
            let rows = self.cases.iter().filter_map(|case| Some((case, *before.get(case.name.as_str())?)));
            let ratio = |figure: fn(&Measured) -> f64, case, before| match (figure(case), figure(before)) {
                (_, before) if before.abs() < 0.005 => "-".to_owned(),
                (now, before) => format!("{:.2}", now / before),
            };
            let rows = rows.map(|(case, before)| row(&case.name, columns.iter().map(|column| ratio(column.figure, case, before))));
            text.push_str(&header(columns));
            text.extend(rows);
            text.push('\n');
        }
        text
    }
}

/// A column of figures.
struct Column {
    title: &'static str,
    figure: fn(&Measured) -> f64,
    decimals: usize,
}

const fn column(title: &'static str, decimals: usize, figure: fn(&Measured) -> f64) -> Column {
    Column { title, figure, decimals }
}

const COLUMNS: [Column; 13] = [
    column("updates/s", 1, |case| case.updates.per_second),
    column("interval ms: min", 2, |case| case.updates.interval_ms.min),
    column("median", 2, |case| case.updates.interval_ms.median),
    column("p99", 2, |case| case.updates.interval_ms.p99),
    column("max", 2, |case| case.updates.interval_ms.max),
    column("CPU ms/s: own", 2, |case| case.cpu.own),
    column("library", 2, |case| case.cpu.library),
    column("user", 2, |case| case.cpu.user),
    column("system", 2, |case| case.cpu.system),
    column("publisher µs/round", 0, |case| case.cpu.publisher_us_per_round),
    column("NVML ms/GPU s", 2, |case| case.nvml.ms),
    column("of it waiting", 2, |case| case.nvml.waiting_ms),
    column("calls/GPU s", 0, |case| case.nvml.calls),
];

const COUNTS: [Column; 13] = [
    column("system calls/tick: publisher", 1, |case| case.system_calls.publisher),
    column("all", 1, |case| case.system_calls.all),
    column("library", 1, |case| case.system_calls.library),
    column("switches/tick", 1, |case| case.context_switches_per_tick),
    column("allocations/tick: publisher", 2, |case| case.allocations.publisher),
    column("lanes", 2, |case| case.allocations.lanes),
    column("others", 2, |case| case.allocations.others),
    column("KiB: together", 0, |case| case.memory.together_kib as f64),
    column("of it library", 0, |case| case.library_kib as f64),
    column("anonymous", 0, |case| case.memory.anonymous_kib as f64),
    column("RSS sum", 0, |case| case.memory.resident_kib as f64),
    column("threads", 0, |case| case.memory.threads as f64),
    column("age ms", 2, |case| case.updates.age_ms.median),
];

fn table(columns: &[Column], cases: &[Measured]) -> String {
    let rows = cases.iter().map(|case| {
        let figures = columns.iter().map(|column| format!("{:.*}", column.decimals, (column.figure)(case)));
        row(&case.name, figures)
    });
    header(columns) + &rows.collect::<String>()
}

fn header(columns: &[Column]) -> String {
    let titles = row("case", columns.iter().map(|column| column.title.to_owned()));
    titles + "|---|" + &"---:|".repeat(columns.len()) + "\n"
}

fn row(name: &str, figures: impl Iterator<Item = String>) -> String {
    let cells: Vec<_> = std::iter::once(name.to_owned()).chain(figures).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::{Measured, Report};

    fn report(own: f64) -> Report {
        let mut case = Measured { name: "mock 100 ms".to_owned(), ..Measured::default() };
        case.cpu.own = own;
        Report { cases: vec![case], ..Report::default() }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        report(1.5).write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap().cases[0].cpu.own, 1.5);
    }

    #[test]
    fn a_comparison_gives_multiples_and_none_of_nothing() {
        let compared = report(1.5).compared_with(&report(3.0));
        let line = compared.lines().find(|line| line.contains("mock 100 ms")).unwrap();
        assert_eq!(line.split(" | ").nth(6), Some("0.50"));
        assert_eq!(line.split(" | ").nth(1), Some("-"));
    }
}
