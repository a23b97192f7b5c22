//! The clients, which all cards share, and how a device has them for a moment.
//!
//! One device at a time has them looked for or read, on a thread that they share too. Mostly that takes no time to speak of; but a driver that
//! hangs may keep the file of one of its clients from ever being read, and then the devices do without their clients rather than hang too.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        mpsc::{RecvTimeoutError, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use log::warn;
use telemetry::{Aside, Now};

use super::Card;
use crate::{clients::Clients, cost::thread_time};

/// Longer than a look through all of /proc takes on a busy machine of many processes, and too short for a device to count as lost.
const PATIENCE: Duration = Duration::from_millis(150);
const STEP: Duration = Duration::from_millis(1);
/// How long what was known of the clients stands.
const HOLD_NS: u64 = 500_000_000;
/// How long the end waits for the thread: enough for one that does not hang.
const PATIENCE_AT_THE_END: Duration = Duration::from_millis(20);

/// What may hang.
#[derive(Clone, Copy, Debug)]
enum Errand {
    /// A look through all of /proc.
    Look(Now),
    /// A reading of the known clients of the card at that place.
    Read(usize, Now),
}

/// The clients of all cards, and the thread that goes on errands to them.
#[derive(Debug)]
pub(crate) struct SharedClients {
    clients: Arc<Mutex<Clients>>,
    cards: Arc<[Card]>,
    runner: Mutex<Runner>,
}

#[derive(Debug)]
struct Runner {
    /// Answers with the errand's cost.
    aside: Aside<Errand, Duration>,
    /// Whoever sent it has not waited for it.
    is_away: bool,
}

impl SharedClients {
    /// Of these cards, which have the same places in `clients`.
    pub(crate) fn new(clients: Clients, cards: Arc<[Card]>) -> Self {
        let clients = Arc::new(Mutex::new(clients));
        let (of_thread, cards_of_thread) = (Arc::clone(&clients), Arc::clone(&cards));
        let go = move |errand: Errand| {
            let start = thread_time();
            errand.go(&mut of_thread.lock().unwrap_or_else(PoisonError::into_inner), &cards_of_thread);
            thread_time() - start
        };
        let aside = Aside::start("drm-clients", PATIENCE_AT_THE_END, go);
        Self { clients, cards, runner: Mutex::new(Runner { aside, is_away: false }) }
    }
}

impl Errand {
    fn go(self, clients: &mut Clients, cards: &[Card]) {
        match self {
            Self::Look(now) => clients.look(now, &|place| cards[place].gate.may_read_clients(now.boottime_ns)),
            Self::Read(place, now) => clients.refresh(place, now, &|place| cards[place].gate.may_read_clients(now.boottime_ns)),
        }
    }
}

/// A device that takes the clients, and what it remembers of that.
#[derive(Debug, Default)]
pub(super) struct Borrower {
    /// When it first went without, since it last had them.
    refused_ns: Option<u64>,
    is_told: bool,
    waiting: Duration,
    elsewhere: Duration,
}

impl Borrower {
    /// The clients as they are known, or none while somebody is at them for too long. Who was refused does not wait the next time.
    pub(super) fn take<'clients>(&mut self, shared: &'clients SharedClients, now_ns: u64) -> Option<MutexGuard<'clients, Clients>> {
        let taken = self.lock(&shared.clients);
        self.note(taken, now_ns)
    }

    /// The clients after a look through all of /proc, if that is due.
    pub(super) fn look<'clients>(&mut self, shared: &'clients SharedClients, now: Now) -> Option<MutexGuard<'clients, Clients>> {
        let looked = self.lock(&shared.clients).and_then(|known| {
            if !known.look_due_in(now).is_zero() {
                return Some(known);
            }
            drop(known);
            self.send(shared, Errand::Look(now))
        });
        self.note(looked, now.boottime_ns)
    }

    /// The clients after those of the card at `place` were read.
    pub(super) fn read<'clients>(
        &mut self,
        shared: &'clients SharedClients,
        place: usize,
        now: Now,
    ) -> Option<MutexGuard<'clients, Clients>> {
        let errand = Errand::Read(place, now);
        let read = self.lock(&shared.clients).and_then(|mut known| {
            // Nobody need be woken up for it.
            if known.are_at_rest(place, now) {
                errand.go(&mut known, &shared.cards);
                return Some(known);
            }
            drop(known);
            self.send(shared, errand)
        });
        self.note(read, now.boottime_ns)
    }

    /// The clients after the errand; none when it takes too long, or an earlier one does.
    fn send<'clients>(&mut self, shared: &'clients SharedClients, errand: Errand) -> Option<MutexGuard<'clients, Clients>> {
        let mut runner = self.lock(&shared.runner)?;
        if runner.is_away {
            match runner.aside.reply() {
                Ok(cost) => self.elsewhere += cost,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {}
            }
            runner.is_away = false;
        }
        let start = Instant::now();
        runner.aside.ask(errand);
        match runner.aside.reply_within(PATIENCE) {
            // What it has cost is the time that it was waited for.
            Ok(_) => self.lock(&shared.clients),
            Err(RecvTimeoutError::Timeout) => {
                runner.is_away = true;
                self.waiting += start.elapsed();
                None
            }
            // Without a thread, who asks goes, and hangs where that would.
            Err(RecvTimeoutError::Disconnected) => {
                let mut clients = self.lock(&shared.clients)?;
                errand.go(&mut clients, &shared.cards);
                Some(clients)
            }
        }
    }

    fn lock<'lock, T>(&mut self, mutex: &'lock Mutex<T>) -> Option<MutexGuard<'lock, T>> {
        let start = Instant::now();
        let patience = if self.refused_ns.is_some() { Duration::ZERO } else { PATIENCE };
        let locked = loop {
            match mutex.try_lock() {
                Ok(guard) => break Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() < patience => thread::sleep(STEP),
                Err(TryLockError::WouldBlock) => break None,
            }
        };
        self.waiting += start.elapsed();
        locked
    }

    fn note<T>(&mut self, taken: Option<T>, now_ns: u64) -> Option<T> {
        if taken.is_some() {
            (self.refused_ns, self.is_told) = (None, false);
        } else {
            self.refused_ns.get_or_insert(now_ns);
        }
        taken
    }

    /// Whether it has gone without for so long that what was known of the clients is not so any more.
    pub(super) fn is_missed(&self, now_ns: u64) -> bool {
        self.refused_ns.is_some_and(|refused_ns| now_ns.saturating_sub(refused_ns) >= HOLD_NS)
    }

    /// Says once that it goes without.
    pub(super) fn tell(&mut self, pci: &str) {
        if !std::mem::replace(&mut self.is_told, true) {
            warn!("the clients of a card hang: those of {pci} cannot be read meanwhile, its processes are absent");
        }
    }

    /// How long it has waited for other devices, or in vain, in all.
    pub(super) const fn waiting(&self) -> Duration {
        self.waiting
    }

    /// What errands have cost that were not waited for, all together.
    pub(super) const fn elsewhere(&self) -> Duration {
        self.elsewhere
    }
}
