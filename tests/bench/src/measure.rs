//! One case, measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nvml_sim::stats::Stats;
use serde::{Deserialize, Serialize};

use crate::case::{Case, Machine, Source};
use crate::counters::{self, Counters, What};
use crate::process::{self, Memory, Usage};
use crate::subject::Subject;
use crate::watch::{Spread, Updates, watch};

/// The simulated library sleeps through all but 100 µs of a cost and spins through the rest; half of that, since a sleep ends late. See `CostMode::Sleep`.
const SPUN: Duration = Duration::from_micros(50);
/// What the simulated library itself asks of the kernel: whether its scenario was changed, and to sleep. The bridge does neither in its sampler.
const LIBRARYS_CALLS: [&str; 4] = ["statx", "newfstatat", "nanosleep", "clock_nanosleep"];

/// How long is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    pub(crate) counting: Duration,
}

/// What came out of a case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) poll_interval_ms: f64,
    pub(crate) updates: Updates,
    pub(crate) cpu: Cpu,
    pub(crate) context_switches_per_tick: f64,
    pub(crate) system_calls: SystemCalls,
    pub(crate) allocations: Allocations,
    pub(crate) memory: Memory,
    /// Of the memory, what a program that does nothing but load the library and call it takes more than before.
    pub(crate) library_kib: u64,
    pub(crate) nvml: Nvml,
    pub(crate) started_in_ms: f64,
    pub(crate) ended_in_ms: f64,
}

/// CPU time in milliseconds a second, daemon and sampler together.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cpu {
    pub(crate) total: f64,
    pub(crate) user: f64,
    pub(crate) system: f64,
    /// The library's part, from its account.
    pub(crate) library: f64,
    /// The rest: the bridge's own.
    pub(crate) own: f64,
    pub(crate) daemon: f64,
    /// Microseconds of CPU that the publishing thread takes a round, reading the sampler's message included.
    pub(crate) publisher_us_per_round: f64,
}

/// System calls a tick.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SystemCalls {
    /// Of the publishing thread.
    pub(crate) publisher: f64,
    /// Of all threads of both processes, without the library's own.
    pub(crate) all: f64,
    /// The library's own.
    pub(crate) library: f64,
    /// By thread (lanes taken together) and name.
    pub(crate) by_name: BTreeMap<String, f64>,
}

/// Heap allocations a tick.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Allocations {
    pub(crate) publisher: f64,
    /// In the lanes, in the bridge's own code.
    pub(crate) lanes: f64,
    /// In other threads, in the bridge's own code.
    pub(crate) others: f64,
    pub(crate) library: f64,
}

/// What the library was asked, for each GPU and second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Nvml {
    pub(crate) calls: f64,
    /// Time in its calls.
    pub(crate) ms: f64,
    /// Of that, waiting for the driver's one lock.
    pub(crate) waiting_ms: f64,
}

/// Measures a case.
pub(crate) fn measure(program: &Path, case: &Case, patience: &Patience) -> Result<Measured> {
    let mut subject = Subject::start(program, case)?;
    // While every call still returns.
    let library_kib = subject.library().map_or(Ok(0), |library| library_memory(&library.path()))?;
    let machine = match case.source {
        Source::Simulated(machine) => Some(machine),
        Source::Mock | Source::LargeMock(..) | Source::Amd { .. } => None,
    };
    if machine.is_some_and(|machine| machine.one_hangs) {
        subject.hang_one()?;
    }
    thread::sleep(patience.warm_up);

    let before = Reading::take(&subject)?;
    let updates = watch(&subject.reader, case.interval, patience.window)?;
    let after = Reading::take(&subject)?;
    let memory = memory(&subject)?;
    let mut measured = Measured {
        name: case.name.clone(),
        poll_interval_ms: case.interval.as_secs_f64() * 1e3,
        updates,
        memory,
        library_kib,
        started_in_ms: subject.started_in.as_secs_f64() * 1e3,
        ..Measured::default()
    };
    compare(&before, &after, machine, &mut measured);
    measured.system_calls = count_system_calls(&subject, patience.counting)?;
    measured.allocations = count_allocations(&subject, patience.counting)?;
    measured.ended_in_ms = subject.stop()?.as_secs_f64() * 1e3;
    Ok(measured)
}

/// Starts and stops a case's bridge some times: milliseconds to the first round, and to the end.
pub(crate) fn start_and_stop(program: &Path, case: &Case, times: usize) -> Result<(Spread, Spread)> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let subject = Subject::start(program, case)?;
        starts.push(subject.started_in.as_secs_f64() * 1e3);
        thread::sleep(2 * case.interval);
        ends.push(subject.stop()?.as_secs_f64() * 1e3);
    }
    Ok((Spread::of(starts), Spread::of(ends)))
}

/// CPU time in ms a second of a program that does nothing but wait for ticks of that interval, on the publisher's CPU.
pub(crate) fn waiting(interval: Duration, patience: &Patience) -> Result<f64> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut child =
        Command::new(program).arg("idle").arg(interval.as_micros().to_string()).spawn().context("cannot start this program again")?;
    let measured = (|| {
        thread::sleep(patience.warm_up);
        let (before, begun) = (Usage::of(child.id())?, std::time::Instant::now());
        thread::sleep(patience.window);
        let used = Usage::of(child.id())?.since(before);
        Ok(used.on_cpu_ns as f64 / 1e6 / begun.elapsed().as_secs_f64())
    })();
    child.kill().and_then(|()| child.wait()).context("cannot end it")?;
    measured
}

/// Everything that only grows, at one moment.
struct Reading {
    at: std::time::Instant,
    daemon: Usage,
    sampler: Usage,
    publisher_ns: u64,
    rounds: u64,
    stats: Option<Stats>,
}

impl Reading {
    fn take(subject: &Subject) -> Result<Self> {
        let stats = subject.library().map(nvml_sim::library::Installed::stats).transpose().context("cannot read the library's account")?;
        Ok(Self {
            at: std::time::Instant::now(),
            daemon: Usage::of(subject.pid())?,
            sampler: subject.sampler().map(Usage::of).transpose()?.unwrap_or_default(),
            publisher_ns: process::thread_on_cpu_ns(subject.pid(), subject.pid())?,
            rounds: subject.rounds()?,
            stats,
        })
    }
}

fn compare(before: &Reading, after: &Reading, machine: Option<Machine>, measured: &mut Measured) {
    let seconds = (after.at - before.at).as_secs_f64();
    let rounds = (after.rounds - before.rounds).max(1) as f64;
    let daemon = after.daemon.since(before.daemon);
    let usage = daemon.plus(after.sampler.since(before.sampler));
    let stats = after.stats.as_ref().zip(before.stats.as_ref()).map(|(after, before)| after.since(before));

    let per_second = |ns: u64| ns as f64 / 1e6 / seconds;
    let library_ns: u64 = stats.iter().flat_map(Stats::called).map(|(_, count)| library_cpu_ns(&count)).sum();
    let total = per_second(usage.on_cpu_ns);
    let system = total * usage.system_ticks as f64 / (usage.system_ticks + usage.user_ticks).max(1) as f64;
    let library = per_second(library_ns);
    measured.cpu = Cpu {
        total,
        user: total - system,
        system,
        library,
        own: total - library,
        daemon: per_second(daemon.on_cpu_ns),
        publisher_us_per_round: (after.publisher_ns - before.publisher_ns) as f64 / 1e3 / rounds,
    };
    measured.context_switches_per_tick = usage.context_switches as f64 / rounds;
    if let (Some(stats), Some(machine)) = (stats, machine) {
        let total = stats.total();
        let gpu_seconds = machine.gpus as f64 * seconds;
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / gpu_seconds;
        measured.nvml = Nvml { calls: total.calls as f64 / gpu_seconds, ms: ms(total.time), waiting_ms: ms(total.waiting) };
    }
}

/// CPU time in the library's calls: all of it where calls cost nothing, else about what is spun at the end of each.
fn library_cpu_ns(count: &nvml_sim::stats::Count) -> u64 {
    let mean = count.time.saturating_sub(count.waiting).as_nanos() as u64 / count.returns.max(1);
    count.returns * mean.min(SPUN.as_nanos() as u64)
}

fn memory(subject: &Subject) -> Result<Memory> {
    let daemon = Memory::of(subject.pid())?;
    Ok(match subject.sampler() {
        Some(sampler) => daemon.plus(Memory::of(sampler)?),
        None => daemon,
    })
}

fn count_system_calls(subject: &Subject, duration: Duration) -> Result<SystemCalls> {
    let counters = Counters::start(What::SystemCalls, subject.pid(), subject.sampler(), None)?;
    let (before, rounds) = (counters.system_calls(), subject.rounds()?);
    thread::sleep(duration);
    let (after, rounds) = (counters.system_calls(), (subject.rounds()? - rounds).max(1) as f64);
    let roles = roles(subject)?;
    let mut calls = SystemCalls::default();
    for ((tid, number), count) in &after {
        let count = (count - before.get(&(*tid, *number)).unwrap_or(&0)) as f64 / rounds;
        if count == 0.0 {
            continue;
        }
        let role = roles.get(tid).copied().unwrap_or(Role::Other);
        let name = counters::name(*number);
        if role.is_sampling() && LIBRARYS_CALLS.contains(&name.as_str()) {
            calls.library += count;
            continue;
        }
        calls.all += count;
        if role == Role::Publisher {
            calls.publisher += count;
        }
        *calls.by_name.entry(format!("{}: {name}", role.name())).or_default() += count;
    }
    Ok(calls)
}

fn count_allocations(subject: &Subject, duration: Duration) -> Result<Allocations> {
    let library = subject.library().map(nvml_sim::library::Installed::path);
    let counters = Counters::start(What::Allocations, subject.pid(), subject.sampler(), library.as_deref())?;
    let (before, rounds) = (counters.allocations(), subject.rounds()?);
    thread::sleep(duration);
    let (after, rounds) = (counters.allocations(), (subject.rounds()? - rounds).max(1) as f64);
    let roles = roles(subject)?;
    let mut allocations = Allocations::default();
    for ((tid, by_library), count) in &after {
        let count = (count - before.get(&(*tid, *by_library)).unwrap_or(&0)) as f64 / rounds;
        let place = match roles.get(tid) {
            _ if *by_library => &mut allocations.library,
            Some(Role::Publisher) => &mut allocations.publisher,
            Some(Role::Lane) => &mut allocations.lanes,
            _ => &mut allocations.others,
        };
        *place += count;
    }
    Ok(allocations)
}

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Publisher,
    Relay,
    Lane,
    Other,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Relay => "relay",
            Self::Lane => "lanes",
            Self::Other => "others",
        }
    }

    /// Whether such a thread calls the library.
    fn is_sampling(self) -> bool {
        matches!(self, Self::Lane | Self::Relay | Self::Other)
    }
}

fn roles(subject: &Subject) -> Result<BTreeMap<u32, Role>> {
    let mut roles = BTreeMap::new();
    for process in [Some(subject.pid()), subject.sampler()].into_iter().flatten() {
        for (tid, name) in process::threads(process)? {
            let role = match tid {
                _ if name.starts_with("lane") => Role::Lane,
                _ if tid == subject.pid() => Role::Publisher,
                _ if tid == process => Role::Relay,
                _ => Role::Other,
            };
            roles.insert(tid, role);
        }
    }
    Ok(roles)
}

/// What loading the library and calling it costs a program that does nothing else: see [`load_library`].
fn library_memory(library: &Path) -> Result<u64> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let output = Command::new(own).arg("load-library").arg(library).output().context("cannot start this program again")?;
    if !output.status.success() {
        bail!("cannot load the library for its memory: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("not a number of KiB: {text}"))
}

/// Loads a library, asks each device what a bridge asks most, and returns by how many KiB this process has grown.
pub(crate) fn load_library(library: &Path) -> Result<u64> {
    let own = std::process::id();
    let before = Memory::of(own)?;
    let nvml = nvml_wrapper::Nvml::builder().lib_path(library.as_os_str()).init().context("cannot open the library")?;
    for index in 0..nvml.device_count().context("no count of devices")? {
        let device = nvml.device_by_index(index).context("no device")?;
        // Whatever they answer: they are called for what they leave in memory.
        drop((
            device.memory_info(),
            device.utilization_rates(),
            device.running_compute_processes(),
            device.process_utilization_stats(None),
        ));
    }
    let after = Memory::of(own)?;
    Ok(after.together_kib.saturating_sub(before.together_kib))
}
