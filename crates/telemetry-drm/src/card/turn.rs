//! A device's turn at the clients, which all cards share.
//!
//! One device at a time reads them. Mostly that takes no time to speak of; but a driver that hangs may keep the file of one of its clients
//! from ever being read, and then the devices of other cards do without their clients rather than hang too.

use std::{
    sync::{Mutex, MutexGuard, TryLockError},
    thread,
    time::{Duration, Instant},
};

use log::warn;

use crate::clients::Clients;

/// Longer than a look through all of /proc takes on a busy machine of many processes, and too short for a device to count as lost.
const PATIENCE: Duration = Duration::from_millis(150);
const STEP: Duration = Duration::from_millis(1);
/// How long what was known of the clients stands.
const HOLD_NS: u64 = 500_000_000;

/// What one device remembers of its turns.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// When it first went without, since it last had one.
    refused_ns: Option<u64>,
    is_told: bool,
    waiting: Duration,
}

impl Turn {
    /// The clients, or none while another device is at them for too long. Who was refused does not wait the next time.
    pub(super) fn take<'clients>(&mut self, clients: &'clients Mutex<Clients>, now_ns: u64) -> Option<MutexGuard<'clients, Clients>> {
        let start = Instant::now();
        let patience = if self.refused_ns.is_some() { Duration::ZERO } else { PATIENCE };
        let taken = loop {
            match clients.try_lock() {
                Ok(clients) => break Some(clients),
                Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() < patience => thread::sleep(STEP),
                Err(TryLockError::WouldBlock) => break None,
            }
        };
        self.waiting += start.elapsed();
        if taken.is_some() {
            (self.refused_ns, self.is_told) = (None, false);
        } else {
            self.refused_ns.get_or_insert(now_ns);
        }
        taken
    }

    /// Whether it has gone without for so long that what was known of the clients is not so any more; says so once.
    pub(super) fn is_missed(&mut self, pci: &str, now_ns: u64) -> bool {
        let is_missed = self.refused_ns.is_some_and(|refused_ns| now_ns.saturating_sub(refused_ns) >= HOLD_NS);
        if is_missed && !self.is_told {
            self.is_told = true;
            warn!("the clients of a card hang: those of {pci} cannot be read meanwhile, its processes are absent");
        }
        is_missed
    }

    /// How long it has waited for other devices in all.
    pub(super) const fn waiting(&self) -> Duration {
        self.waiting
    }
}
