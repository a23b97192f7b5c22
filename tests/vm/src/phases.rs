//! The ways in which maps come to a publisher, and what must hold in each.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context as _, Result, bail};
use gpu_types::bytes::Record;
use gpu_types::maps;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use map_publisher::cpu::bind_to_lowest;
use map_publisher::{Options, Published, Publisher, Records};
use map_reader::{Reader, boottime_now_ns};
use test_support::Bpffs;

use crate::Args;
use crate::demand::Amiss;
use crate::rounds::Rounds;
use crate::wander::{self, Wanderer, among_wanderers};

const WANDERERS: usize = 4;

pub(crate) fn steady(args: &Args) -> Result<()> {
    let pins = Bpffs::mount();
    phase("new maps", pins.path(), args, None)?;
    phase("the same maps after a restart", pins.path(), args, None)
}

pub(crate) fn moved(args: &Args) -> Result<()> {
    let pins = Bpffs::mount();
    phase("new maps", pins.path(), args, None)?;
    phase("the same maps after a restart on another CPU", pins.path(), args, wander::cpus()?.last().copied())
}

pub(crate) fn inherited(args: &Args) -> Result<()> {
    let pins = Bpffs::mount();
    drop(open(pins.path())?);
    write_wandering(pins.path(), args)?;
    phase("maps left by a writer that wandered", pins.path(), args, None)
}

pub(crate) fn control(args: &Args) -> Result<()> {
    let pins = Bpffs::mount();
    drop(open(pins.path())?);
    let lost = write_wandering(pins.path(), args)?;
    println!("a writer that wanders: {lost} of {} rounds with processes missing", args.rounds);
    if lost == 0 {
        bail!("a writer that wanders lost nothing here: on this machine the demand proves nothing");
    }
    Ok(())
}

/// One run of a publisher, on this CPU or on the lowest: every round must be complete.
fn phase(name: &str, dir: &Path, args: &Args, cpu: Option<usize>) -> Result<()> {
    let (orders, ordered) = sync_channel(0);
    let (answers, answered) = sync_channel(0);
    let (incomplete, rewritten) = thread::scope(|scope| {
        let publisher = thread::Builder::new().name("publisher".into());
        let publisher =
            publisher.spawn_scoped(scope, move || publish(dir, args, cpu, &ordered, &answers)).context("cannot start a thread")?;
        // Another thread, too, since it wanders: those that are started later inherit the CPUs of their starter.
        let demanded = joined(scope.spawn(move || demand_all(dir, args, &orders, &answered)));
        // Why the publisher ended early, if it did, is said by itself and not by those who waited for it.
        joined(publisher).and(demanded)
    })
    .with_context(|| name.to_owned())?;

    println!("{name}: {} of {} rounds complete, {rewritten} entries written again", args.rounds as usize - incomplete.len(), args.rounds);
    if let Some((round, amiss)) = incomplete.first() {
        bail!("{name}: {} rounds incomplete, the first of them is round {round}: {amiss}", incomplete.len());
    }
    Ok(())
}

/// The publishing thread: a round for each order.
fn publish(dir: &Path, args: &Args, cpu: Option<usize>, orders: &Receiver<()>, answers: &SyncSender<(Records, Published)>) -> Result<()> {
    if let Some(cpu) = cpu {
        wander::move_to(cpu)?;
    }
    bind_to_lowest().context("cannot bind the publishing thread")?;
    let mut publisher = open(dir)?;
    let mut rounds = Rounds::new(args.processes, args.churn, boottime_now_ns()?);
    while orders.recv().is_ok() {
        let records = rounds.advance();
        let published = publisher.publish(&records).context("cannot publish")?;
        if answers.send((records, published)).is_err() {
            break;
        }
    }
    // Not closed: the maps stay as a killed bridge leaves them.
    Ok(())
}

/// Orders rounds and looks at each, each time from another CPU. Returns the incomplete ones, and how many entries were written again.
fn demand_all(
    dir: &Path,
    args: &Args,
    orders: &SyncSender<()>,
    answers: &Receiver<(Records, Published)>,
) -> Result<(Vec<(u32, Amiss)>, usize)> {
    const GONE: &str = "the publishing thread has ended";
    let next = || {
        orders.send(()).context(GONE)?;
        answers.recv().context(GONE)
    };
    let (mut incomplete, mut rewritten) = (Vec::new(), 0);
    let (mut records, mut published) = next()?;
    let reader = Reader::open(dir);
    let some_pid = records.processes.first().map_or(0, |(pid, _)| *pid) + args.processes / 2;
    let consume = || {
        // What it finds is no matter: a consumer's look at an entry is what moves it in the map's order.
        reader.process(some_pid).ok();
    };
    let mut place = Wanderer::new(0)?;
    among_wanderers(WANDERERS, consume, || {
        for round in 1..=args.rounds {
            if round > 1 {
                (records, published) = next()?;
            }
            place.step()?;
            let amiss = Amiss::look(&reader, &records)?;
            if amiss != Amiss::default() {
                incomplete.push((round, amiss));
            }
            rewritten += published.rewritten;
        }
        Ok((incomplete, rewritten))
    })
}

/// Writes rounds as they come, each on another CPU. Returns in how many of them something was missing afterwards.
fn write_wandering(dir: &Path, args: &Args) -> Result<u32> {
    let open = |name| MapHandle::from_pinned_path(dir.join(name)).with_context(|| format!("cannot open {name}"));
    let (processes, process_devices) = (open(maps::GPU_PER_PID)?, open(maps::GPU_PER_PID_PER_DEVICE)?);
    let reader = Reader::open(dir);
    let mut rounds = Rounds::new(args.processes, args.churn, boottime_now_ns()?);
    let work = move || -> Result<u32> {
        let mut place = Wanderer::new(0)?;
        let mut lost = 0;
        let mut last = Records::default();
        for _ in 0..args.rounds {
            place.step()?;
            let records = rounds.advance();
            replace(&processes, &last.processes, &records.processes)?;
            replace(&process_devices, &last.process_devices, &records.process_devices)?;
            lost += u32::from(Amiss::look(&reader, &records)?.missing > 0);
            last = records;
        }
        Ok(lost)
    };
    thread::scope(|scope| joined(scope.spawn(work)))
}

/// Upserts all of `new` and deletes what only `old` has.
fn replace<K: Record + Ord, V: Record>(map: &MapHandle, old: &[(K, V)], new: &[(K, V)]) -> Result<()> {
    for (key, value) in new {
        map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).context("cannot write an entry")?;
    }
    for (key, _) in old.iter().filter(|(key, _)| new.binary_search_by(|(other, _)| other.cmp(key)).is_err()) {
        // It may have been lost.
        map.delete(key.as_bytes()).ok();
    }
    Ok(())
}

fn open(dir: &Path) -> Result<Publisher> {
    Publisher::open(&Options::new(dir, std::process::id(), boottime_now_ns()?)).context("cannot open the publisher")
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a thread panicked"))
}
