//! The clients of one card, read again and again.

use std::{mem, ops::Range, os::fd::OwnedFd, time::Duration};

use rustix::io::Errno;
use telemetry::{Now, Stamp};

use super::{
    Owned,
    fdinfo::{Fdinfo, added},
    files::{self, TEXT_BYTES},
    index::{self, Holder},
    usage::{self, Sample, Shares},
};
use crate::pci::PciAddress;

/// What clients are read by.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) root: &'a OwnedFd,
    pub(super) addresses: &'a [PciAddress],
    /// All of them, as the clients know them.
    pub(super) holders: &'a [Holder],
    pub(super) text: &'a mut [u8; TEXT_BYTES],
    /// How many more files may be kept open.
    pub(super) may_keep: usize,
}

#[derive(Debug, Default)]
struct Client {
    id: u64,
    /// Its holders among all; it is read by the first, which owns it unless passed over.
    holders: Range<usize>,
    /// The first of them.
    reader: Option<Holder>,
    /// Its fdinfo, open. It belongs to this very process for ever, whatever becomes of the PID; another client may come to be at its number.
    file: Option<OwnedFd>,
    sample: Option<Sample>,
    shares: Shares,
    memory_bytes: Option<u64>,
}

/// The clients of one card.
#[derive(Debug)]
pub(super) struct CardClients {
    is_integrated: bool,
    /// By id.
    clients: Vec<Client>,
    before: Vec<Client>,
    /// Places of those that have an owner, by its PID.
    by_owner: Vec<usize>,
    sampled: Stamp,
    refreshed_ns: Option<u64>,
    /// For how long it is not to be refreshed again, for what that cost.
    pub(super) rest: Duration,
    busy_pct: Option<u32>,
    is_progress: bool,
}

impl CardClients {
    pub(super) fn new(is_integrated: bool) -> Self {
        Self {
            is_integrated,
            clients: Vec::new(),
            before: Vec::new(),
            by_owner: Vec::new(),
            sampled: Stamp::default(),
            refreshed_ns: None,
            rest: Duration::ZERO,
            busy_pct: None,
            is_progress: false,
        }
    }

    pub(super) const fn refreshed_ns(&self) -> Option<u64> {
        self.refreshed_ns
    }

    /// When the clients were last read.
    pub(super) const fn sampled(&self) -> Stamp {
        self.sampled
    }

    pub(super) const fn busy_pct(&self) -> Option<u32> {
        self.busy_pct
    }

    pub(super) const fn note_progress(&mut self) {
        self.is_progress = true;
    }

    pub(super) const fn take_progress(&mut self) -> bool {
        mem::replace(&mut self.is_progress, false)
    }

    pub(super) fn kept_files(&self) -> usize {
        self.clients.iter().filter(|client| client.file.is_some()).count()
    }

    pub(super) fn clear(&mut self) {
        self.clients.clear();
        self.by_owner.clear();
        self.busy_pct = None;
    }

    /// Takes over what an index found. What is known of a client stays with it while its owner is the same process.
    pub(super) fn take_holders(&mut self, card: usize, holders: &[Holder]) {
        mem::swap(&mut self.clients, &mut self.before);
        let mut before = self.before.iter_mut().peekable();
        let mut first = holders.partition_point(|holder| holder.card < card);
        let end_of_card = holders.partition_point(|holder| holder.card <= card);
        while first < end_of_card {
            let holder = holders[first];
            let end = first + holders[first..end_of_card].partition_point(|other| other.client_id == holder.client_id);
            while before.next_if(|client| client.id < holder.client_id).is_some() {}
            let known = before.next_if(|client| client.id == holder.client_id).map(mem::take);
            self.clients.push(Client::new(first..end, &holder, known));
            first = end;
        }
        self.before.clear();
        self.sort_by_owner();
    }

    fn sort_by_owner(&mut self) {
        let clients = &self.clients;
        self.by_owner.clear();
        self.by_owner.extend((0..clients.len()).filter(|&place| clients[place].owner().is_some()));
        self.by_owner.sort_unstable_by_key(|&place| (clients[place].owner(), place));
    }

    /// Whether there are no clients.
    pub(super) const fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Reads all clients. One that is gone is dropped, unless another process holds it too.
    pub(super) fn read(&mut self, card: usize, now: Now, mut reader: Reader<'_>) {
        let (mut is_progress, is_integrated) = (false, self.is_integrated);
        self.visit(|client| {
            if let Some(info) = client.read(card, &mut reader) {
                is_progress |= client.advance(&info, now.boottime_ns, is_integrated);
            }
        });
        self.is_progress |= is_progress;
        self.sampled = now.stamp();
    }

    /// Drops clients that are gone, without reading any: the driver has no part in it.
    pub(super) fn drop_departed(&mut self, mut reader: Reader<'_>) {
        self.visit(|client| client.pass_on(&mut reader));
    }

    fn visit(&mut self, mut visit: impl FnMut(&mut Client)) {
        let mut is_moved = false;
        for client in &mut self.clients {
            let reader_before = client.holders.start;
            visit(client);
            is_moved |= client.holders.start != reader_before;
        }
        if is_moved {
            self.clients.retain(|client| !client.holders.is_empty());
            self.sort_by_owner();
        }
    }

    /// Ends a refresh.
    pub(super) fn finish(&mut self, now: Now, was_read: bool, rest: Duration) {
        (self.refreshed_ns, self.rest) = (Some(now.boottime_ns), rest);
        self.busy_pct = None;
        if was_read {
            let mut shares = Shares::default();
            self.clients.iter().for_each(|client| shares.add(&client.shares));
            self.busy_pct = if self.clients.is_empty() { Some(0) } else { shares.busiest_pct() };
        }
    }

    /// The processes that own clients, by PID. A client that has neither held memory nor run anything is nobody's use of the card.
    pub(super) fn by_owner(&self) -> impl Iterator<Item = Owned> {
        let mut rest = self.by_owner.iter().map(|&place| &self.clients[place]).filter(|client| client.is_used()).peekable();
        std::iter::from_fn(move || {
            let first = rest.next()?;
            let mut owned = Owned { pid: first.owner()?, memory_bytes: first.memory_bytes, shares: first.shares };
            while let Some(client) = rest.next_if(|client| client.owner() == first.owner()) {
                owned.memory_bytes = added(owned.memory_bytes, client.memory_bytes);
                owned.shares.add(&client.shares);
            }
            Some(owned)
        })
    }
}

impl Client {
    /// One that an index found, with what was `known` of it.
    fn new(holders: Range<usize>, first: &Holder, known: Option<Self>) -> Self {
        let mut client = match known {
            Some(known) if known.reader.is_some_and(|reader| reader.is_same_process(first)) => known,
            _ => Self::default(),
        };
        if client.reader != Some(*first) {
            client.file = None;
        }
        Self { id: first.client_id, holders, reader: Some(*first), ..client }
    }

    fn owner(&self) -> Option<u32> {
        self.reader.filter(|reader| !reader.is_passed_over).map(|reader| reader.pid)
    }

    /// The client's text, by the first holder that still has it. None when there is none, or when it cannot be read this time.
    fn read(&mut self, card: usize, reader: &mut Reader<'_>) -> Option<Fdinfo> {
        while let Some(holder) = self.holder(reader) {
            match self.read_by(&holder, reader) {
                // Another file may have come to be at its number.
                Ok(info) if info.client_id == Some(self.id) && index::card_of_client(info.pdev, card, reader.addresses) == Some(card) => {
                    return Some(info);
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR) if holder.has_file(reader) => return None,
                Ok(_) | Err(_) => self.leave_holder(reader),
            }
        }
        None
    }

    /// Goes on to the first holder that still has the file.
    fn pass_on(&mut self, reader: &mut Reader<'_>) {
        while self.holder(reader).is_some_and(|holder| !holder.has_file(reader)) {
            self.leave_holder(reader);
        }
    }

    /// The first holder that is left, if it is still the process that it was when it becomes the first.
    fn holder(&mut self, reader: &mut Reader<'_>) -> Option<Holder> {
        loop {
            let holder = *reader.holders.get(self.holders.clone())?.first()?;
            if self.reader == Some(holder) {
                return Some(holder);
            }
            self.reader = Some(holder);
            self.file = None;
            if holder.is_alive(reader) {
                return Some(holder);
            }
            self.holders.start += 1;
        }
    }

    fn leave_holder(&mut self, reader: &mut Reader<'_>) {
        if self.file.take().is_some() {
            reader.may_keep += 1;
        }
        self.holders.start += 1;
    }

    fn read_by(&mut self, holder: &Holder, reader: &mut Reader<'_>) -> Result<Fdinfo, Errno> {
        if let Some(file) = &self.file {
            return Ok(Fdinfo::parse(files::read_lines(file, reader.text)?));
        }
        let file = files::open_file(reader.root, format_args!("proc/{}/fdinfo/{}", holder.pid, holder.fd))?;
        let info = Fdinfo::parse(files::read_lines(&file, reader.text)?);
        if reader.may_keep > 0 {
            reader.may_keep -= 1;
            self.file = Some(file);
        }
        Ok(info)
    }

    /// Takes a newer text. Whether work has run since the last.
    fn advance(&mut self, info: &Fdinfo, at_ns: u64, is_integrated: bool) -> bool {
        let step = match &mut self.sample {
            Some(sample) => sample.advance(info, at_ns),
            None => {
                let (sample, step) = Sample::first(info, at_ns);
                self.sample = Some(sample);
                step
            }
        };
        self.shares = step.shares;
        self.memory_bytes = usage::memory_bytes(&info.memory, is_integrated);
        step.is_progress
    }

    fn is_used(&self) -> bool {
        self.memory_bytes > Some(0) || self.sample.as_ref().is_some_and(Sample::has_ever_run)
    }
}

impl Holder {
    const fn is_same_process(&self, other: &Self) -> bool {
        self.pid == other.pid && self.start == other.start
    }

    /// Whether the process is there with a file at that number.
    fn has_file(&self, reader: &Reader<'_>) -> bool {
        files::exists(reader.root, format_args!("proc/{}/fdinfo/{}", self.pid, self.fd))
    }

    /// Whether the PID is still that process's.
    fn is_alive(&self, reader: &mut Reader<'_>) -> bool {
        index::read_stat(reader.root, format_args!("proc/{}/stat", self.pid), self.pid, reader.text)
            .is_ok_and(|stat| stat.start == self.start)
    }
}
