//! What brings readings from a source to the publisher, in this process or from a child, behind one interface.

mod board;
mod child;
mod crew;
mod frame;
mod inline;
mod lanes;
mod relay;
mod wire;

use std::{
    fmt,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

pub use child::{ChildLauncher, ChildSampler};
pub use lanes::{LaneLauncher, LaneSampler};
pub use relay::{RelayOptions, relay};
use serde::{Deserialize, Serialize};
use telemetry::{Device, Identity, OpenError, OpenSource, Reading, SourceInfo, Stamp, TelemetrySource};

use crate::SamplerError;

/// Starts a sampler.
pub trait Launch: fmt::Debug + Send {
    /// Starts one. Whether its source opens is told by the sampler's first [`Event`].
    ///
    /// # Errors
    /// When the sampler itself cannot be started.
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError>;

    /// What of the machine is plainly missing, so that no sampler need be started to find it out. Asked before each start; has to be cheap.
    fn missing(&mut self) -> Option<String> {
        None
    }

    /// Whether the source says that it is gone when its set of devices is another, rather than for a fault, and an attempt to open it disturbs no
    /// driver. Then it is opened anew at once, and what it said last stands meanwhile; unless that happened a moment ago, or something is
    /// [missing](Self::missing).
    fn is_reopened_at_once(&self) -> bool {
        false
    }
}

/// A running sampler. Dropping it ends it.
pub trait Sampler: fmt::Debug + Send {
    /// Readable when [`Sampler::receive`] has something to say.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// When to call [`Sampler::receive`] although the descriptor is not readable: the current round's time is up.
    fn deadline(&self) -> Option<Instant>;

    /// Takes the newest that there is; never blocks.
    ///
    /// # Errors
    /// When the sampler ended or talks nonsense; it is of no more use then.
    fn receive(&mut self) -> Result<Event, SamplerError>;

    /// The newest round.
    fn round(&self) -> &Round;
}

/// What a sampler tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Nothing yet.
    Nothing,
    /// The source is open.
    Opened(Opened),
    /// The source could not be opened; the sampler has ended.
    OpenFailed(OpenError),
    /// [`Sampler::round`] has a new round.
    Round,
    /// The device of that index is found to be this one: when the source was opened, it could not be reached or was not to be woken.
    Identified(Identity),
    /// The driver or library under all devices is gone; the text says what happened.
    SourceGone(String),
}

/// An open source and its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// What was opened.
    pub info: SourceInfo,
    /// The devices, in index order.
    pub devices: Vec<Identity>,
}

/// As many as the maps have slots for: no others are read.
const MOST_DEVICES: usize = gpu_types::GPU_MAX_DEVICES as usize;

/// Opens a source and takes down who its devices are.
fn open(source: &mut dyn TelemetrySource) -> Result<(Opened, Vec<Box<dyn Device>>), OpenError> {
    let OpenSource { info, mut devices } = source.open()?;
    if devices.len() > MOST_DEVICES {
        log::warn!("{} devices of {}: only the first {MOST_DEVICES} are read", devices.len(), info.name);
        devices.truncate(MOST_DEVICES);
    }
    Ok((Opened { info, devices: devices.iter().map(|device| device.identity().clone()).collect() }, devices))
}

/// One tick's picture: the newest reading of every device.
#[derive(Debug, Default)]
pub struct Round {
    /// `CLOCK_BOOTTIME` before the first read of the round.
    pub started_boottime_ns: u64,
    /// Whether any device answered since the round before, so that there is something new to publish.
    pub has_news: bool,
    /// Ticks that passed without a round since the source was opened.
    pub skipped_ticks: u64,
    /// A device each, in the order of [`Opened::devices`].
    pub devices: Vec<DeviceReading>,
}

/// Tells lists of processes apart: readings of one edition have the same processes, whichever round and sampler they are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition(u64);

impl Edition {
    /// One that no reading has.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The newest reading of one device.
#[derive(Clone, Debug, Default)]
pub struct DeviceReading {
    /// The device's index.
    pub index: u32,
    /// `CLOCK_BOOTTIME` at the start of the last tick in which it answered; 0: never.
    pub answered_boottime_ns: u64,
    /// When it was last asked something and answered; `None`: never.
    pub read: Option<Stamp>,
    /// Whether it said that it is lost.
    pub lost: bool,
    /// Time spent in its source's calls since the source was opened, in nanoseconds.
    pub time_in_source_ns: u64,
    /// What it reported.
    pub reading: Reading,
    /// Of its processes. `None`: not known, so that they have to be looked at.
    pub edition: Option<Edition>,
}

impl DeviceReading {
    /// Takes over what a lane has. Of a device that is lost the last whole answer stands, for as long as it is held: half an answer is none.
    fn update_from(&mut self, lane: &Self) {
        if lane.lost {
            self.lost = true;
            self.time_in_source_ns = lane.time_in_source_ns;
            return;
        }
        self.copy_header_from(lane);
        if self.reading.copy_from(&lane.reading) || self.edition.is_none() {
            self.edition = Some(Edition::new());
        }
    }

    fn copy_from(&mut self, other: &Self) {
        self.copy_header_from(other);
        if self.edition.is_some() && self.edition == other.edition {
            self.reading.copy_all_but_processes_from(&other.reading);
        } else {
            self.reading.copy_from(&other.reading);
            self.edition = other.edition;
        }
    }

    fn copy_header_from(&mut self, other: &Self) {
        let Self { index, answered_boottime_ns, read, lost, time_in_source_ns, reading: _, edition: _ } = self;
        *index = other.index;
        *answered_boottime_ns = other.answered_boottime_ns;
        *read = other.read;
        *lost = other.lost;
        *time_in_source_ns = other.time_in_source_ns;
    }

    fn of(identity: &Identity) -> Self {
        Self { index: identity.index, ..Self::default() }
    }
}
