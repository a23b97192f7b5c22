//! The source: finds the cards and hands out their devices.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use telemetry::{OpenError, OpenSource, SourceInfo, TelemetrySource};

use crate::{
    card::{Card, Driver, DrmDevice, Gate, Roster, Shared, SharedClients, find, identify},
    clients::{CardKey, Clients},
    sysfs::{Files, SystemFiles},
};

/// Where the kernel's files are looked for, and what is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrmOptions {
    /// `sys/` and `proc/` are looked for below it: `/` on a real machine.
    pub root: PathBuf,
    /// Whether the processes that use the GPUs are looked at, which takes the right to look at everybody's. Where not, nothing of `proc/PID` is
    /// touched: processes are absent, and so is what is summed over them.
    pub looks_at_processes: bool,
}

impl Default for DrmOptions {
    fn default() -> Self {
        Self { root: PathBuf::from("/"), looks_at_processes: true }
    }
}

/// GPUs of the kernel drivers amdgpu, i915 and xe, in PCI order.
///
/// Cards of other drivers are none of its business: NVIDIA's under nvidia-drm or nouveau, virtual ones. A GPU that sleeps is left asleep and
/// answers that nothing is known of it; one that is idle is left alone for long enough to fall asleep. When cards come or go, the devices
/// say that the source is gone, so that it is opened anew.
#[derive(Debug)]
pub struct DrmSource {
    options: DrmOptions,
    files: Arc<dyn Files>,
}

impl DrmSource {
    /// A source that looks where `options` say, each time it is opened.
    pub fn new(options: DrmOptions) -> Self {
        Self::with_files(options, Arc::new(SystemFiles))
    }

    pub(crate) fn with_files(options: DrmOptions, files: Arc<dyn Files>) -> Self {
        Self { options, files }
    }

    fn share(&self, roster: Roster, cards: Arc<[Card]>) -> Shared {
        let keys: Vec<_> = cards.iter().map(|card| CardKey { address: card.found.address, is_integrated: card.is_integrated }).collect();
        let clients = self.options.looks_at_processes.then(|| {
            let clients = Clients::new(&self.options.root, &keys);
            Arc::new(SharedClients::new(clients, Arc::clone(&cards)))
        });
        Shared { files: Arc::clone(&self.files), cards, clients, looker: Arc::default(), roster: Arc::new(roster) }
    }
}

impl TelemetrySource for DrmSource {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        let drm = self.options.root.join("sys/class/drm");
        let nothing = |why: &str| OpenError::NotAvailable(format!("no GPU of the drivers amdgpu, i915 or xe in {}{why}", drm.display()));
        let found = find(&drm).map_err(|error| nothing(&format!(": {error}")))?;
        if found.is_empty() {
            return Err(nothing(" (is the driver loaded, and in a container: is /sys the host's?)"));
        }
        let roster = Roster::new(&drm, found.clone());
        let driver_version = Some(describe_drivers(&self.options.root, found.iter().map(|card| card.driver.name())));
        let cards: Arc<[Card]> = found
            .into_iter()
            .map(|found| {
                let waits_for_clients = found.driver == Driver::Xe && self.options.looks_at_processes;
                let gate = Gate::new(waits_for_clients, &found.device(), Arc::clone(&self.files));
                Card::new(found, gate)
            })
            .collect();
        let shared = self.share(roster, cards);
        let devices = shared.cards.iter().enumerate().map(|(place, card)| {
            let is_asleep = card.gate.is_asleep();
            let identity = identify(&card.found, place as u32, is_asleep, &*self.files);
            DrmDevice::boxed(&shared, &self.options.root, place, identity, is_asleep)
        });
        Ok(OpenSource { devices: devices.collect(), info: SourceInfo { name: "drm".to_owned(), driver_version, library: None } })
    }
}

/// The drivers in use, and the kernel that they came with: `amdgpu, xe (Linux 6.16.0)`.
fn describe_drivers(root: &Path, drivers: impl Iterator<Item = &'static str>) -> String {
    let mut drivers: Vec<_> = drivers.collect();
    drivers.sort_unstable();
    drivers.dedup();
    let drivers = drivers.join(", ");
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    if release.is_empty() { drivers } else { format!("{drivers} (Linux {release})") }
}
