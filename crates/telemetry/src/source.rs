//! Who reports: a source, its devices, and how they fail.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Now, Reading};

/// A kind of GPU telemetry that can be opened.
pub trait TelemetrySource: Send {
    /// Opens the source and hands out its devices, in index order.
    ///
    /// # Errors
    /// [`OpenError::NotAvailable`] when there is nothing to open on this machine, now; [`OpenError::Failed`] when there is, but it does not
    /// work.
    fn open(&mut self) -> Result<OpenSource, OpenError>;

    /// Whether asking takes nothing from anybody's workload, so that the cost of a question need not be rationed.
    fn is_free(&self) -> bool {
        false
    }
}

/// An opened source. What it holds of a vendor's library lives as long as one of its devices.
#[derive(Debug)]
pub struct OpenSource {
    /// What was opened.
    pub info: SourceInfo,
    /// Its devices, in index order. One that cannot be reached is lost, or left out and its index with it.
    pub devices: Vec<Box<dyn Device>>,
}

/// What an open source says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// The source's name, as in `nvml` or `mock`.
    pub name: String,
    /// The driver's version, where there is a driver.
    pub driver_version: Option<String>,
    /// Where a vendor's library was loaded from.
    pub library: Option<String>,
}

/// One GPU. Owned by one lane; it is never asked from two threads.
pub trait Device: Send + fmt::Debug {
    /// Who it is. What could not be asked when the source was opened may become known with a later question; the index stays.
    fn identity(&self) -> &Identity;

    /// The questions it can be asked. The list is fixed; a probe is named by its place in it.
    fn probes(&self) -> &[Probe];

    /// The shortest period at which the answer to `probe` can change now; a device that learns its driver's rhythm says so here.
    fn period(&self, probe: usize) -> Duration {
        self.probes()[probe].period
    }

    /// Asks one question and writes the answer into `reading`. `now` was read just before, on every call.
    ///
    /// # Errors
    /// When the device or the whole source is gone; what was written into `reading` does not count then. A metric that is absent, or that failed alone, is no error: its field becomes `None`.
    fn ask(&mut self, probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError>;

    /// Time that calls for this device have taken in the source on threads of its own, all together: what blocks too long for
    /// [`ask`](Device::ask) still costs the workload.
    fn time_elsewhere(&self) -> Duration {
        Duration::ZERO
    }

    /// Time that [`ask`](Device::ask) has waited for its turn among the source's devices, all together: it costs nobody anything.
    fn time_waiting(&self) -> Duration {
        Duration::ZERO
    }
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Answered; the reading is up to date.
    Answered,
    /// This device does not report it, and will not until the source is opened anew.
    NotSupported,
}

/// A named question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// A short name for logs and accounting, as in `memory`.
    pub name: &'static str,
    /// The shortest period at which the answer can change; zero: at any time.
    pub period: Duration,
}

/// Which GPU a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The source's index, stable while the source is open.
    pub index: u32,
    /// The vendor's unique id; empty when unknown.
    pub uuid: String,
    /// PCI address as in `00000000:3B:00.0`; empty when unknown.
    pub pci_bus_id: String,
    /// Product name; invalid bytes replaced.
    pub name: String,
    /// PCI vendor id, as in 0x10de; 0 when unknown.
    pub vendor_id: u32,
}

/// Why a source could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no such library, driver or GPU on this machine, now. The text says what was missing and where it was looked for.
    #[error("{0}")]
    NotAvailable(String),
    /// It is there and does not work.
    #[error("{0}")]
    Failed(String),
}

/// Why a device does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// This device is gone or in trouble; the others are not concerned. It may come back.
    #[error("{0}")]
    Lost(String),
    /// The driver or library under all devices is gone: the source must be opened anew.
    #[error("{0}")]
    SourceGone(String),
}
