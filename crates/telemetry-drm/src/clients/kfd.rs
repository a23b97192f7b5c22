//! Compute processes of amdgpu, which fdinfo's engines leave out: `/sys/class/kfd/kfd`. `sdma_*` is never read: it stops queues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use telemetry::{Now, Stamp};

use super::{
    fdinfo::added,
    files::{self, Entries, TEXT_BYTES},
    minors::Minors,
    usage,
};
use crate::{parse::number, pci::PciAddress};

/// What is read here is a state, not a sum over time: more often would tell no more.
const PERIOD_NS: u64 = 1_000_000_000;

/// A GPU as kfd names it. One card may be several of them, its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gpu {
    id: u64,
    card: usize,
    compute_units: u64,
}

/// A process that computes on a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KfdProcess {
    /// In the machine's PID namespace.
    pub(super) pid: u32,
    /// GPU memory that it holds.
    pub(super) memory_bytes: Option<u64>,
    /// Of the card's compute units, the share that its work occupied at that moment, 0–100.
    pub(super) occupancy_pct: Option<u32>,
}

#[derive(Debug, Default)]
struct Card {
    /// Sorted by PID.
    processes: Vec<KfdProcess>,
    read: Option<Now>,
}

/// kfd's processes by card.
#[derive(Debug, Default)]
pub(super) struct Kfd {
    gpus: Vec<Gpu>,
    cards: Vec<Card>,
    entries: Entries,
    contexts: Entries,
}

impl Kfd {
    pub(super) fn new(cards: usize) -> Self {
        Self { cards: (0..cards).map(|_| Card::default()).collect(), ..Self::default() }
    }

    /// Finds out which of kfd's GPUs are which cards, unless that is known.
    pub(super) fn find_gpus(&mut self, root: &OwnedFd, minors: &Minors, cards: &[PciAddress], text: &mut [u8; TEXT_BYTES]) {
        if !self.gpus.is_empty() {
            return;
        }
        let Ok(nodes) = files::open_directory(root, format_args!("sys/class/kfd/kfd/topology/nodes")) else { return };
        let (gpus, entries) = (&mut self.gpus, &mut self.entries);
        let looked = entries.for_each(nodes.as_fd(), |name| {
            let Some(node) = number::<u64>(name.to_bytes()) else { return Ok(()) };
            // 0 is a node without a GPU. One that the device cgroup keeps from us cannot be read.
            let id = files::read_file(&nodes, format_args!("{node}/gpu_id"), text).ok().and_then(number);
            if let Some(id) = id.filter(|&id| id != 0)
                && let Ok(properties) = files::read_file(&nodes, format_args!("{node}/properties"), text)
                && let Some(card) = card_of(properties, minors, cards)
            {
                gpus.push(Gpu { id, card, compute_units: compute_units(properties) });
            }
            Ok(())
        });
        if let Err(error) = looked {
            log::debug!("cannot list kfd's topology: {error}");
        }
    }

    /// Whether it is time to read the processes of a card.
    pub(super) fn is_due(&self, card: usize, now_ns: u64) -> bool {
        let is_fresh = |read: Now| now_ns.saturating_sub(read.boottime_ns) < PERIOD_NS;
        self.gpus.iter().any(|gpu| gpu.card == card) && !self.cards[card].read.is_some_and(is_fresh)
    }

    /// Reads the processes of a card. Whether some of their work runs.
    pub(super) fn read(&mut self, root: &OwnedFd, card: usize, now: Now, text: &mut [u8; TEXT_BYTES]) -> bool {
        let Self { gpus, cards, entries, contexts } = self;
        let Card { processes, read } = &mut cards[card];
        *read = Some(now);
        processes.clear();
        let Ok(proc) = files::open_directory(root, format_args!("sys/class/kfd/kfd/proc")) else { return false };
        let looked = entries.for_each(proc.as_fd(), |name| {
            let pid = number::<u32>(name.to_bytes()).filter(|&pid| pid > 0);
            let Some(pid) = pid else { return Ok(()) };
            match process(proc.as_fd(), pid, card, gpus, contexts, text) {
                Ok(Some(process)) => processes.push(process),
                Ok(None) => {}
                Err(error) if files::is_gone(error) => {}
                Err(error) => log::debug!("cannot read kfd's process {pid}: {error}"),
            }
            Ok(())
        });
        if let Err(error) = looked {
            log::debug!("cannot list kfd's processes: {error}");
        }
        processes.sort_unstable_by_key(|process| process.pid);
        processes.iter().any(|process| process.occupancy_pct > Some(0))
    }

    /// Drops processes of a card that are gone since they were read.
    pub(super) fn drop_departed(&mut self, root: &OwnedFd, card: usize) {
        self.cards[card].processes.retain(|process| files::exists(root, format_args!("sys/class/kfd/kfd/proc/{}", process.pid)));
    }

    /// When the processes of a card were last read.
    pub(super) fn sampled(&self, card: usize) -> Stamp {
        self.cards[card].read.map_or_else(Stamp::default, |read| read.stamp())
    }

    /// The processes of a card as they were last read, by PID.
    pub(super) fn processes(&self, card: usize) -> &[KfdProcess] {
        &self.cards[card].processes
    }
}

/// One that holds no memory of the card and occupies nothing of it is none of its processes: kfd lists every process on every GPU.
fn process(
    proc: BorrowedFd<'_>,
    pid: u32,
    card: usize,
    gpus: &[Gpu],
    entries: &mut Entries,
    text: &mut [u8; TEXT_BYTES],
) -> Result<Option<KfdProcess>, Errno> {
    let directory = files::open_directory(proc, format_args!("{pid}"))?;
    let mut use_of_card = UseOfCard::default();
    use_of_card.add(directory.as_fd(), card, gpus, text);
    // A process may have further contexts, each with files of its own.
    entries.for_each(directory.as_fd(), |name| {
        if let Some(number) = name.to_bytes().strip_prefix(b"context_").and_then(number::<u64>)
            && let Ok(context) = files::open_directory(&directory, format_args!("context_{number}"))
        {
            use_of_card.add(context.as_fd(), card, gpus, text);
        }
        Ok(())
    })?;
    let compute_units = gpus.iter().filter(|gpu| gpu.card == card).map(|gpu| gpu.compute_units).fold(0, u64::saturating_add);
    let is_used = use_of_card.memory_bytes > Some(0) || use_of_card.occupied > Some(0);
    Ok(is_used.then(|| KfdProcess {
        pid,
        memory_bytes: use_of_card.memory_bytes,
        occupancy_pct: use_of_card.occupied.and_then(|occupied| usage::share_of(occupied, compute_units)).map(usage::share_pct),
    }))
}

#[derive(Default)]
struct UseOfCard {
    memory_bytes: Option<u64>,
    occupied: Option<u64>,
}

impl UseOfCard {
    fn add(&mut self, directory: BorrowedFd<'_>, card: usize, gpus: &[Gpu], text: &mut [u8; TEXT_BYTES]) {
        for Gpu { id, .. } in gpus.iter().filter(|gpu| gpu.card == card) {
            let memory = files::read_file(directory, format_args!("vram_{id}"), text).ok().and_then(number);
            self.memory_bytes = added(self.memory_bytes, memory);
            let occupied = files::read_file(directory, format_args!("stats_{id}/cu_occupancy"), text).ok().and_then(number);
            self.occupied = added(self.occupied, occupied);
        }
    }
}

fn property(properties: &[u8], name: &str) -> Option<u64> {
    properties.split(|&byte| byte == b'\n').find_map(|line| number(line.strip_prefix(name.as_bytes())?.strip_prefix(b" ")?))
}

fn card_of(properties: &[u8], minors: &Minors, cards: &[PciAddress]) -> Option<usize> {
    let by_minor =
        property(properties, "drm_render_minor").filter(|&minor| minor != 0).and_then(|minor| minors.card(u32::try_from(minor).ok()?));
    by_minor.or_else(|| {
        let location = u16::try_from(property(properties, "location_id").filter(|&location| location != 0)?).ok()?;
        let domain = u32::try_from(property(properties, "domain").unwrap_or(0)).ok()?;
        let address = PciAddress::of_location(domain, location);
        // The partitions of one card are told apart by the function, which the card itself does not have.
        [address, address.first_function()].into_iter().find_map(|address| cards.iter().position(|card| *card == address))
    })
}

fn compute_units(properties: &[u8]) -> u64 {
    let simds = property(properties, "simd_count").unwrap_or(0);
    simds.checked_div(property(properties, "simd_per_cu").unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kfd says of an APU with 12 compute units.
    const APU: &[u8] =
        b"cpu_cores_count 0\nsimd_count 24\ncu_per_simd_array 6\nsimd_per_cu 2\nlocation_id 25600\ndomain 0\ndrm_render_minor 128\n";

    #[test]
    fn a_node_is_the_card_at_its_place() {
        let card = PciAddress::parse(b"0000:64:00.0").unwrap();
        let other = PciAddress::parse(b"0000:03:00.0").unwrap();
        assert_eq!(card_of(APU, &Minors::default(), &[other, card]), Some(1));
        assert_eq!(card_of(APU, &Minors::default(), &[other]), None);
        assert_eq!(card_of(b"location_id 25602\n", &Minors::default(), &[card]), Some(0), "a partition");
        assert_eq!(card_of(b"location_id 0\ndrm_render_minor 0\n", &Minors::default(), &[PciAddress::of_location(0, 0)]), None);
    }

    #[test]
    fn compute_units_are_counted_by_their_simds() {
        assert_eq!(compute_units(APU), 12);
        assert_eq!(compute_units(b"simd_count 24\n"), 0);
        assert_eq!(compute_units(b""), 0);
    }
}
