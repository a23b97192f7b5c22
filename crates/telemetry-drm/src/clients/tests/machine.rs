//! A simulated machine with cards and a clock.

use std::{cell::RefCell, fs};

use drm_sim::{
    Tree,
    proc::{FdinfoText, Proc},
};
use telemetry::{Now, Process};

use crate::{
    clients::{CardKey, Clients},
    pci::PciAddress,
};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    pub(super) slot: &'static str,
    pub(super) is_integrated: bool,
}

impl Card {
    pub(super) fn key(&self) -> CardKey {
        CardKey { address: PciAddress::parse(self.slot.as_bytes()).unwrap(), is_integrated: self.is_integrated }
    }
}

pub(super) const AMD: Card = Card { slot: "0000:65:00.0", is_integrated: false };
pub(super) const APU: Card = Card { slot: "0000:c4:00.0", is_integrated: true };
pub(super) const XE: Card = Card { slot: "0000:03:00.0", is_integrated: false };
pub(super) const INTEL: Card = Card { slot: "0000:00:02.0", is_integrated: true };

pub(super) fn amdgpu(client_id: u64) -> FdinfoText {
    FdinfoText::new("amdgpu", AMD.slot, client_id)
}

pub(super) fn xe(client_id: u64) -> FdinfoText {
    FdinfoText::new("xe", XE.slot, client_id)
}

pub(super) fn i915(client_id: u64) -> FdinfoText {
    FdinfoText::new("i915", INTEL.slot, client_id)
}

/// A process as it is published: PID, memory, and the utilizations sm, enc and dec.
pub(super) type Published = (u32, Option<u64>, Option<(u32, u32, u32)>);

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) tree: Tree,
    pub(super) proc: Proc,
    pub(super) clients: Clients,
    pub(super) now: Now,
    /// Cards that may not be read.
    pub(super) asleep: RefCell<Vec<usize>>,
}

impl Machine {
    /// The first card is card0 and renderD128, the second card1 and renderD129, and so on.
    pub(super) fn new(cards: &[Card]) -> Self {
        let tree = Tree::new();
        for (number, card) in cards.iter().enumerate() {
            for name in [format!("card{number}"), format!("renderD{}", 128 + number)] {
                let device = tree.root().join("sys/class/drm").join(name).join("device");
                fs::create_dir_all(&device).unwrap();
                fs::write(device.join("uevent"), format!("DRIVER=any\nPCI_SLOT_NAME={}\n", card.slot)).unwrap();
            }
        }
        let keys: Vec<_> = cards.iter().map(Card::key).collect();
        Self {
            proc: Proc::new(tree.root()),
            clients: Clients::new(tree.root(), &keys),
            tree,
            now: Now { boottime_ns: 100_000_000_000, clock_offset_ns: 1_700_000_000_000_000_000 },
            asleep: RefCell::default(),
        }
    }

    pub(super) fn pass(&mut self, seconds: f64) {
        self.now.boottime_ns += (seconds * 1e9) as u64;
    }

    /// A tick of a card: looks through /proc if that is due, then reads what is known.
    pub(super) fn refresh(&mut self, card: usize) {
        let asleep = self.asleep.borrow();
        self.clients.look(self.now, &|card| !asleep.contains(&card));
        self.clients.refresh(card, self.now, &|card| !asleep.contains(&card));
    }

    /// Reads what is known alone.
    pub(super) fn read(&mut self, card: usize) {
        let asleep = self.asleep.borrow();
        self.clients.refresh(card, self.now, &|card| !asleep.contains(&card));
    }

    pub(super) fn processes(&self, card: usize) -> Vec<Process> {
        let mut processes = vec![Process::default(); 3];
        self.clients.processes_of(card, &mut processes);
        processes
    }

    #[track_caller]
    pub(super) fn check(&self, card: usize, expected: &[Published]) {
        let published: Vec<Published> = self
            .processes(card)
            .iter()
            .map(|process| {
                assert!(process.mig_instance.is_none() && process.utilization.is_none_or(|utilization| utilization.mem_pct == 0));
                let utilization = process.utilization.map(|utilization| (utilization.sm_pct, utilization.enc_pct, utilization.dec_pct));
                (process.pid, process.used_memory_bytes, utilization)
            })
            .collect();
        assert_eq!(published, expected);
    }
}
