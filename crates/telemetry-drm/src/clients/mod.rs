//! Who uses the cards: DRM clients from `/proc/PID/fdinfo`, and compute processes from kfd.
//!
//! Every 5 s at most all of /proc is looked through for open device files of the cards: what is found is for all cards, whichever of them
//! asked. Known clients are read by themselves, each card's when that card is asked: that one pays for no more than its own. A client is
//! counted once, however many processes hold it.

mod client;
mod fdinfo;
mod files;
mod index;
mod kfd;
mod minors;
mod usage;

use std::{
    cell::Cell,
    mem,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use log::{debug, info, warn};
use rustix::fs::{CWD, Mode, OFlags, openat};
use telemetry::{Now, Process, ProcessUtilization, Stamp};

use client::{CardClients, Reader};
use files::TEXT_BYTES;
use index::{Index, IndexError};
use kfd::Kfd;
use usage::Shares;

use crate::{cost::thread_time, pci::PciAddress};

/// How long a look through all of /proc stands.
pub(crate) const INDEX_PERIOD: Duration = Duration::from_secs(5);
/// Two questions about a card within this time are one; shorter samples would be noise.
const SAMPLE_PERIOD: Duration = Duration::from_millis(10);
/// Who asks waits for a look or a reading and rations what it waits for, but for no longer than this: what takes longer is rationed here,
/// to the same share of time.
const LONG: Duration = Duration::from_millis(100);
const TIMES_OF_COST: u32 = 250;
/// Of clients beyond these, the file is opened at each reading. A kept one costs a sixth of the time and one of the 1,024 files that a
/// process may usually have open; it keeps nothing of its process alive.
const MOST_KEPT_FILES: usize = 256;

/// A card whose clients are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CardKey {
    pub(crate) address: PciAddress,
    /// Whether it has no memory of its own but uses the system's (an APU's carve-out is no more than a part of it).
    pub(crate) is_integrated: bool,
}

/// Whose processes /proc shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    /// Not looked yet.
    Unknown,
    Everybody,
    Denied,
    ForeignNamespace,
}

/// Clients and compute processes of all cards. Cards are named by their place in the list given to [`new`](Self::new).
#[derive(Debug)]
pub(crate) struct Clients {
    path: PathBuf,
    root: Option<OwnedFd>,
    addresses: Vec<PciAddress>,
    cards: Vec<CardClients>,
    index: Index,
    indexed_ns: Option<u64>,
    index_rest: Duration,
    kfd: Kfd,
    visibility: Visibility,
    answers: Vec<Cell<Option<bool>>>,
    text: Box<[u8; TEXT_BYTES]>,
}

impl Clients {
    /// For these cards, with `sys/` and `proc/` below `root`.
    pub(crate) fn new(root: &Path, cards: &[CardKey]) -> Self {
        Self {
            path: root.to_owned(),
            root: None,
            addresses: cards.iter().map(|card| card.address).collect(),
            cards: cards.iter().map(|card| CardClients::new(card.is_integrated)).collect(),
            index: Index::default(),
            indexed_ns: None,
            index_rest: Duration::ZERO,
            kfd: Kfd::new(cards.len()),
            visibility: Visibility::Unknown,
            answers: vec![Cell::new(None); cards.len()],
            text: Box::new([0; TEXT_BYTES]),
        }
    }

    /// How long until a look through all of /proc is due.
    pub(crate) fn look_due_in(&self, now: Now) -> Duration {
        let Some(indexed_ns) = self.indexed_ns else { return Duration::ZERO };
        let age = Duration::from_nanos(now.boottime_ns.saturating_sub(indexed_ns));
        INDEX_PERIOD.max(self.index_rest).saturating_sub(age)
    }

    /// Looks through all of /proc for clients of all cards, if that [is due](Self::look_due_in).
    /// `may_read` says of each card whether its clients' fdinfo may be read now: that of a card which sleeps, or would be woken, may not. It
    /// is asked once a card at most, and only when something of that card is there to be read.
    pub(crate) fn look(&mut self, now: Now, may_read: &dyn Fn(usize) -> bool) {
        if !self.look_due_in(now).is_zero() {
            return;
        }
        let start = thread_time();
        self.indexed_ns = Some(now.boottime_ns);
        if let Some(root) = self.open_root() {
            let answers = self.take_answers();
            self.take_index(&root, &|card| once(&answers, card, may_read));
            self.answers = answers;
            self.root = Some(root);
        }
        self.index_rest = rest_after(thread_time() - start);
    }

    /// Whether [`refresh`](Self::refresh) has nothing to ask the driver of `card`.
    pub(crate) fn are_at_rest(&self, card: usize, now: Now) -> bool {
        self.visibility != Visibility::Everybody
            || (self.cards[card].is_empty() && !self.kfd.is_due(card, now.boottime_ns))
            || self.is_fresh(card, now)
    }

    fn is_fresh(&self, card: usize, now: Now) -> bool {
        let card = &self.cards[card];
        let period = SAMPLE_PERIOD.max(card.rest);
        card.refreshed_ns().is_some_and(|refreshed_ns| u128::from(now.boottime_ns.saturating_sub(refreshed_ns)) < period.as_nanos())
    }

    /// Reads the known clients of `card`; called again for it within a few milliseconds, does nothing. `may_read` is asked once, and only when
    /// there is something to read.
    pub(crate) fn refresh(&mut self, card: usize, now: Now, may_read: &dyn Fn(usize) -> bool) {
        if self.is_fresh(card, now) {
            return;
        }
        let start = thread_time();
        let Some(root) = self.open_root() else { return };
        let answers = self.take_answers();
        let may_read = |card: usize| once(&answers, card, may_read);
        self.read_clients(card, now, &root, &may_read);
        self.kfd.drop_departed(&root, card);
        if self.visibility == Visibility::Everybody
            && self.kfd.is_due(card, now.boottime_ns)
            && may_read(card)
            && self.kfd.read(&root, card, now, &mut self.text)
        {
            self.cards[card].note_progress();
        }
        self.cards[card].finish(now, answers[card].get() != Some(false), rest_after(thread_time() - start));
        self.answers = answers;
        self.root = Some(root);
    }

    /// Drops those of `card` that are gone, without reading fdinfo.
    pub(crate) fn drop_departed(&mut self, card: usize) {
        if self.cards[card].is_empty() && self.kfd.processes(card).is_empty() {
            return;
        }
        let Some(root) = self.open_root() else { return };
        self.kfd.drop_departed(&root, card);
        let (cards, reader) = self.reader(&root);
        cards[card].drop_departed(reader);
        self.root = Some(root);
    }

    /// Puts the processes that use `card` into `processes`, by PID: none where not all can be seen.
    pub(crate) fn processes_of(&self, card: usize, processes: &mut Vec<Process>) {
        processes.clear();
        if self.visibility != Visibility::Everybody {
            return;
        }
        let mut compute = self.kfd.processes(card).iter().peekable();
        let clients = &self.cards[card];
        let computed = self.kfd.sampled(card);
        for owned in clients.by_owner() {
            while let Some(process) = compute.next_if(|process| process.pid < owned.pid) {
                processes.push(computing(process, computed));
            }
            let same = compute.next_if(|process| process.pid == owned.pid);
            processes.push(process_of(&owned, same, clients.sampled()));
        }
        processes.extend(compute.map(|process| computing(process, computed)));
    }

    /// The busiest kind of engine of `card` with the work of all clients, 0–100. Absent where not all clients can be seen or none has been
    /// seen twice, and while their figures may not be read.
    pub(crate) fn busy_pct(&self, card: usize) -> Option<u32> {
        (self.visibility == Visibility::Everybody).then(|| self.cards[card].busy_pct()).flatten()
    }

    /// Whether any work ran on `card` since this was last asked.
    pub(crate) fn made_progress(&mut self, card: usize) -> bool {
        self.cards[card].take_progress()
    }

    /// Whether the processes of all users can be seen. Where not, processes are absent, and what is summed over them.
    pub(crate) fn sees_everybody(&self) -> bool {
        self.visibility == Visibility::Everybody
    }

    /// Whether all of /proc was looked through after `at_ns`.
    pub(crate) fn has_looked_since(&self, at_ns: u64) -> bool {
        self.indexed_ns.is_some_and(|indexed_ns| indexed_ns > at_ns)
    }

    fn open_root(&mut self) -> Option<OwnedFd> {
        self.root.take().or_else(|| match openat(CWD, &self.path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(root) => Some(root),
            Err(error) => {
                debug!("cannot open {}: {error}", self.path.display());
                None
            }
        })
    }

    fn take_answers(&mut self) -> Vec<Cell<Option<bool>>> {
        let answers = mem::take(&mut self.answers);
        answers.iter().for_each(|answer| answer.set(None));
        answers
    }

    fn read_clients(&mut self, card: usize, now: Now, root: &OwnedFd, may_read: &dyn Fn(usize) -> bool) {
        if self.visibility != Visibility::Everybody || self.cards[card].is_empty() || !may_read(card) {
            return;
        }
        let (cards, reader) = self.reader(root);
        cards[card].read(card, now, reader);
    }

    fn reader<'a>(&'a mut self, root: &'a OwnedFd) -> (&'a mut [CardClients], Reader<'a>) {
        let kept = self.cards.iter().map(CardClients::kept_files).sum::<usize>();
        let reader = Reader {
            root,
            addresses: &self.addresses,
            holders: self.index.holders(),
            text: &mut self.text,
            may_keep: MOST_KEPT_FILES.saturating_sub(kept),
        };
        (&mut self.cards, reader)
    }

    fn take_index(&mut self, root: &OwnedFd, may_read: &dyn Fn(usize) -> bool) {
        let visibility = if index::is_foreign_namespace(root, &mut self.text) {
            Visibility::ForeignNamespace
        } else {
            match self.index.take(root.as_fd(), &self.addresses, may_read, &mut self.text) {
                Ok(()) => Visibility::Everybody,
                Err(IndexError::Denied) => Visibility::Denied,
                Err(IndexError::Failed(error)) => {
                    debug!("cannot look through {}: {error}", self.path.join("proc").display());
                    return;
                }
            }
        };
        self.say(visibility);
        self.visibility = visibility;
        for (card, clients) in self.cards.iter_mut().enumerate() {
            match visibility {
                Visibility::Everybody => clients.take_holders(card, self.index.holders()),
                Visibility::Unknown | Visibility::Denied | Visibility::ForeignNamespace => clients.clear(),
            }
        }
        self.kfd.find_gpus(root, self.index.minors(), &self.addresses, &mut self.text);
    }

    fn say(&self, visibility: Visibility) {
        if visibility == self.visibility {
            return;
        }
        match visibility {
            Visibility::Everybody if self.visibility == Visibility::Unknown => {}
            Visibility::Unknown => {}
            Visibility::Everybody => info!("the processes of all users can be seen: GPU processes are published"),
            Visibility::Denied => warn!(
                "not all processes can be looked at: GPU processes of AMD and Intel, and Intel's utilization, are absent (reading /proc/PID/fd \
                 and fdinfo of other users takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)"
            ),
            Visibility::ForeignNamespace => warn!(
                "not in the host's PID namespace: GPU processes of AMD and Intel, and Intel's utilization, are absent (run with the host's: \
                 hostPID: true, or --pid=host)"
            ),
        }
    }
}

/// How long what has cost so much is left alone.
fn rest_after(cost: Duration) -> Duration {
    if cost > LONG { cost * TIMES_OF_COST } else { Duration::ZERO }
}

/// The answer for a card, which may be taken for the reading: asked once.
fn once(answers: &[Cell<Option<bool>>], card: usize, may_read: &dyn Fn(usize) -> bool) -> bool {
    let answer = answers[card].get().unwrap_or_else(|| may_read(card));
    answers[card].set(Some(answer));
    answer
}

/// A process's clients together.
#[derive(Debug)]
struct Owned {
    pid: u32,
    memory_bytes: Option<u64>,
    shares: Shares,
}

/// One that kfd knows too: its memory is told twice, and its work by different measures; the larger of each stands.
fn process_of(owned: &Owned, compute: Option<&kfd::KfdProcess>, sampled: Stamp) -> Process {
    let occupancy_pct = compute.and_then(|process| process.occupancy_pct);
    let is_known = !owned.shares.is_absent() || occupancy_pct.is_some();
    Process {
        pid: owned.pid,
        mig_instance: None,
        used_memory_bytes: owned.memory_bytes.max(compute.and_then(|process| process.memory_bytes)),
        utilization: is_known.then(|| ProcessUtilization {
            sampled,
            sm_pct: owned.shares.sm_pct().max(occupancy_pct.unwrap_or(0)),
            // Nothing tells it.
            mem_pct: 0,
            enc_pct: owned.shares.enc_pct(),
            dec_pct: owned.shares.dec_pct(),
        }),
    }
}

fn computing(process: &kfd::KfdProcess, sampled: Stamp) -> Process {
    process_of(&Owned { pid: process.pid, memory_bytes: None, shares: Shares::default() }, Some(process), sampled)
}

#[cfg(test)]
mod tests;
