//! Watches whether the cards are still those that were handed out.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use log::debug;
use rustix::{
    fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek},
    io::Errno,
};
use telemetry::DeviceError;

use super::find::{self, Found};

const PERIOD_NS: u64 = 5_000_000_000;
/// Room for the entries of some cards and their connectors at once.
const ENTRIES_BYTES: usize = 4096;

/// One look serves all devices of a source. sysfs keeps no times of its directories, so the names are listed: three calls on a
/// directory that stays open.
#[derive(Debug)]
pub(crate) struct Roster {
    drm: PathBuf,
    cards: Vec<Found>,
    next_look_ns: AtomicU64,
    /// What came and went, once something has.
    change: OnceLock<String>,
    listing: Mutex<Listing>,
}

#[derive(Debug, Default)]
struct Listing {
    directory: Option<OwnedFd>,
    fingerprint: Option<u64>,
}

impl Roster {
    /// For these cards, found in `drm`.
    pub(crate) fn new(drm: &Path, cards: Vec<Found>) -> Self {
        let mut listing = Listing::default();
        // Taken before anybody asks; a change since the cards were found shows at the first look all the same.
        let fingerprint = listing.look(drm).ok();
        listing.fingerprint = fingerprint;
        let roster =
            Self { drm: drm.to_owned(), cards, next_look_ns: AtomicU64::new(0), change: OnceLock::new(), listing: Mutex::new(listing) };
        roster.compare();
        roster
    }

    /// # Errors
    /// [`DeviceError::SourceGone`] when others are there than were handed out.
    pub(crate) fn check(&self, now_ns: u64) -> Result<(), DeviceError> {
        let due_ns = self.next_look_ns.load(Ordering::Relaxed);
        if now_ns >= due_ns
            && self.next_look_ns.compare_exchange(due_ns, now_ns.saturating_add(PERIOD_NS), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.look();
        }
        match self.change.get() {
            Some(change) => Err(DeviceError::SourceGone(change.clone())),
            None => Ok(()),
        }
    }

    fn compare(&self) {
        let found = find::find(&self.drm).unwrap_or_default();
        if found != self.cards {
            self.change.get_or_init(|| describe(&self.drm, &self.cards, &found));
        }
    }

    fn look(&self) {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = match listing.look(&self.drm) {
            Ok(fingerprint) => Some(fingerprint),
            Err(error) => {
                debug!("cannot list {}: {error}", self.drm.display());
                None
            }
        };
        if fingerprint.is_some() && fingerprint == listing.fingerprint {
            return;
        }
        listing.fingerprint = fingerprint;
        // The directory itself may be another one: it goes with DRM's own module, and one that is kept open stays empty.
        listing.directory = None;
        // A card of somebody else's came or went, or one of ours did.
        self.compare();
    }
}

fn describe(drm: &Path, before: &[Found], now: &[Found]) -> String {
    let among = |cards: &[Found], others: &[Found], verb: &str| {
        let changed: Vec<_> = cards.iter().filter(|card| !others.contains(card)).collect();
        changed.iter().map(|card| format!("{} of {} {verb}", card.pci, card.driver)).collect::<Vec<_>>()
    };
    let changes = [among(before, now, "went"), among(now, before, "came")].concat();
    format!("the cards in {} changed: {}", drm.display(), changes.join(", "))
}

impl Listing {
    /// A number that differs when a card is another one, whatever the order of the names.
    fn look(&mut self, drm: &Path) -> Result<u64, Errno> {
        let result = self.try_look(drm);
        if result.is_err() {
            self.directory = None;
        }
        result
    }

    fn try_look(&mut self, drm: &Path) -> Result<u64, Errno> {
        let directory = match &mut self.directory {
            Some(directory) => {
                seek(&*directory, SeekFrom::Start(0))?;
                directory
            }
            none => none.insert(openat(CWD, drm, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?),
        };
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let mut fingerprint = 0_u64;
        let mut buffer = [MaybeUninit::uninit(); ENTRIES_BYTES];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if let Some(number) = find::number(entry.file_name().to_bytes()) {
                fingerprint = fingerprint.wrapping_add(hasher.hash_one((number, entry.ino())));
            }
        }
        Ok(fingerprint)
    }
}
