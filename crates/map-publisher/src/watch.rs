//! Pins while the bridge runs: others may remove and replace them.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use gpu_types::{GpuMeta, bytes::Record};
use log::debug;

use crate::directory::{ChangeTime, Identity, PinDirectory, Taken};
use crate::error::Holder;
use crate::map::{DeviceMap, MetaMap, ProcessMap};
use crate::pin::{Access, Pin, identity};
use crate::writer::{Writer, read_single};
use crate::{PublishError, Publisher, chain};

/// What [`Publisher::check_pins`] found and did. Displayed, it is a line for the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum PinEvent {
    /// The pin had vanished; the map is pinned again.
    Repinned {
        /// The map's name.
        map: &'static str,
    },
    /// Someone had put another map of the same make there. It is used from now on, and filled by the next round; the former one was emptied.
    Adopted {
        /// The map's name.
        map: &'static str,
        /// The id of the new map.
        id: u32,
    },
    /// The map is not pinned, or cannot be used as it is: something foreign is at its place, or the kernel refuses. Told once, until it changes.
    Unpinned {
        /// The map's name.
        map: &'static str,
        /// What stands in the way.
        error: PublishError,
    },
    /// The pin directory had been removed or replaced; it is there and locked again.
    DirectoryTakenAgain {
        /// The pin directory.
        dir: PathBuf,
    },
    /// The pin directory is gone and cannot be had back. Publishing goes on, for those who hold the maps open, and each check tries to take the
    /// directory again. Told once, until it changes.
    DirectoryGone {
        /// The pin directory.
        dir: PathBuf,
        /// Why it could not be taken again.
        error: PublishError,
    },
    /// The pin directory had been replaced, and another bridge has the new one. Publishing goes on, for those who hold the former maps open, and each
    /// check tries to take the directory, which succeeds when the other bridge has ended. Told once, until it changes.
    DirectoryHeld {
        /// The pin directory.
        dir: PathBuf,
        /// The PID of the other bridge, as `gpu_meta` names it. None when it has not published yet, or the map cannot be read.
        helper_pid: Option<u32>,
    },
    /// The pin directory that was gone, or another bridge's, is again the one that was locked all the time.
    DirectoryBack {
        /// The pin directory.
        dir: PathBuf,
    },
    /// Someone who takes no lock writes `gpu_meta` beside us. Told once of each.
    ForeignWriter {
        /// The PID that it wrote there.
        helper_pid: u32,
    },
}

impl fmt::Display for PinEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repinned { map } => write!(f, "the pin of {map} had been removed: pinned again"),
            Self::Adopted { map, id } => write!(f, "the pin of {map} had been replaced: publishing in the new map, id {id}"),
            Self::Unpinned { map, error } => write!(f, "{map} is no longer pinned: {}", chain(error)),
            Self::DirectoryTakenAgain { dir } => write!(f, "{} had been replaced: taken again", dir.display()),
            Self::DirectoryGone { dir, error } => write!(
                f,
                "{} is gone: {}; publishing goes on for programs that hold the maps open, and they are pinned again when the directory can be had",
                dir.display(),
                chain(error)
            ),
            Self::DirectoryHeld { dir, helper_pid } => write!(
                f,
                "{} had been replaced, and another bridge publishes there ({}): this one goes on for programs that hold its maps open, and takes the \
                 directory when the other ends; stop one of the two",
                dir.display(),
                Holder(*helper_pid, None)
            ),
            Self::DirectoryBack { dir } => write!(f, "{} is back in its place", dir.display()),
            Self::ForeignWriter { helper_pid } => {
                write!(
                    f,
                    "another program, helper_pid {helper_pid}, writes to the maps too and takes no lock: consumers see now its data, now ours; stop one of the two"
                )
            }
        }
    }
}

/// Trouble that was told and goes on.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// By map: what stood at its place.
    pins: HashMap<&'static str, Option<Identity>>,
    directory: Option<Away>,
    writer: Option<u32>,
    quiet: Quiet,
}

/// Why the pin directory is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    Gone,
    /// It is another bridge's, of this PID.
    Held(Option<u32>),
}

/// After so many checks the pins are looked at although their directory was not changed: something may have been mounted over one.
const CHECKS_BY_DIRECTORY: u32 = 20;

/// A directory that was not changed since all pins were seen in place.
#[derive(Debug, Default)]
struct Quiet {
    since: Option<ChangeTime>,
    checks: u32,
}

impl Quiet {
    /// Whether the pins need not be looked at.
    fn holds(&mut self, changed: ChangeTime) -> bool {
        self.checks += 1;
        self.since == Some(changed) && self.checks < CHECKS_BY_DIRECTORY
    }

    /// All pins were seen in place after the directory was found changed at `changed`.
    fn begin(&mut self, changed: ChangeTime) {
        *self = Self { since: changed.is_past().then_some(changed), checks: 0 };
    }
}

impl Publisher {
    /// Looks whether the pins still lead to our maps, and mends what can be mended: a pin that vanished is pinned again, a compatible map that a
    /// consumer pinned anew is taken over. To be called about once a second; costs one `stat` call and a lookup when all is well, and five more `stat`
    /// calls now and then.
    ///
    /// When the directory is gone, or another bridge's, publishing goes on all the same: some may hold the maps open, and the pins may come back.
    /// Whoever wants to end then, ends on [`PinEvent::DirectoryHeld`].
    ///
    /// # Errors
    /// [`PublishError::Directory`]: whether the directory is in its place cannot be told, and nothing else was looked at. What is wrong with the
    /// directory or a pin is no error but an event.
    pub fn check_pins(&mut self) -> Result<Vec<PinEvent>, PublishError> {
        let mut events = Vec::new();
        let changed = self.directory.look()?;
        if changed.is_some_and(|changed| self.reports.quiet.holds(changed)) {
            self.check_writer(&mut events);
            return Ok(events);
        }
        self.reports.quiet.since = None;
        if changed.is_some() {
            if self.reports.directory.take().is_some() {
                events.push(PinEvent::DirectoryBack { dir: self.directory.path().to_owned() });
            }
        } else if !self.take_directory_again(&mut events) {
            return Ok(events);
        }

        let adopted_before = events.len();
        if let Some(pin) = self.check_pin(|publisher| &mut publisher.meta.pin, &mut events) {
            self.meta = MetaMap::new(pin);
        }
        if let Some(pin) = self.check_pin(|publisher| &mut publisher.devices.pin, &mut events) {
            leave(self.devices.clear());
            self.devices = DeviceMap::new(pin);
        }
        if let Some(pin) = self.check_pin(|publisher| &mut publisher.processes.pin, &mut events) {
            replace(&mut self.processes, pin);
        }
        if let Some(pin) = self.check_pin(|publisher| &mut publisher.process_devices.pin, &mut events) {
            replace(&mut self.process_devices, pin);
        }
        self.check_state(&mut events);
        if let Some(changed) = changed.filter(|_| events.is_empty() && self.reports.pins.is_empty()) {
            self.reports.quiet.begin(changed);
        }
        self.check_writer(&mut events);

        if events[adopted_before..].iter().any(|event| matches!(event, PinEvent::Adopted { .. })) {
            self.read_back_next_rounds();
        }
        Ok(events)
    }

    /// Whether the directory is ours again.
    fn take_directory_again(&mut self, events: &mut Vec<PinEvent>) -> bool {
        let dir = self.directory.path().to_owned();
        let (away, event) = match PinDirectory::open(&dir) {
            Ok(Ok(directory)) => {
                self.directory = directory;
                self.reports = Reports::default();
                events.push(PinEvent::DirectoryTakenAgain { dir });
                return true;
            }
            Ok(Err(Taken)) => {
                let helper_pid = Writer::look(&dir, 0).map(|writer| writer.helper_pid);
                (Away::Held(helper_pid), PinEvent::DirectoryHeld { dir, helper_pid })
            }
            Err(error) => (Away::Gone, PinEvent::DirectoryGone { dir, error }),
        };
        if self.reports.directory.replace(away) != Some(away) {
            events.push(event);
        }
        false
    }

    /// A stamp that is later than ours is not ours.
    fn check_writer(&mut self, events: &mut Vec<PinEvent>) {
        let (Some(held), Some(found)) = (self.meta.held(), read_single::<GpuMeta>(&self.meta.pin.map)) else { return };
        let helper_pid = found.helper_pid;
        let is_foreign = helper_pid != held.helper_pid && found.last_update_boottime_ns > held.last_update_boottime_ns;
        if is_foreign && self.reports.writer.replace(helper_pid) != Some(helper_pid) {
            events.push(PinEvent::ForeignWriter { helper_pid });
        }
    }

    fn check_state(&mut self, events: &mut Vec<PinEvent>) {
        let access = self.access;
        let Some(state) = &mut self.state else { return };
        let map = state.pin.definition.name;
        let watched = watch(&mut state.pin, access);
        let Some(pin) = self.reports.note(map, watched, events) else { return };
        let at = pin.seen;
        if let Err(error) = state.move_to(pin) {
            self.reports.note(map, Watched::Trouble(error, at), events);
        } else {
            events.push(PinEvent::Adopted { map, id: state.pin.id });
        }
    }

    /// Returns the map that is to be used from now on, when it is another one.
    fn check_pin(&mut self, pin: impl FnOnce(&mut Self) -> &mut Pin, events: &mut Vec<PinEvent>) -> Option<Pin> {
        let access = self.access;
        let pin = pin(self);
        let map = pin.definition.name;
        let watched = watch(pin, access);
        let pin = self.reports.note(map, watched, events)?;
        events.push(PinEvent::Adopted { map, id: pin.id });
        Some(pin)
    }
}

/// What became of a pin.
enum Watched {
    InPlace,
    Repinned,
    Replaced(Pin),
    /// And what stands at the place.
    Trouble(PublishError, Option<Identity>),
}

fn watch(pin: &mut Pin, access: Access) -> Watched {
    let at = identity(&pin.path);
    if at.is_some() && at == pin.seen {
        return Watched::InPlace;
    }
    if at.is_none() {
        return match pin.pin(access) {
            Ok(()) => Watched::Repinned,
            Err(error) => Watched::Trouble(error, None),
        };
    }
    match Pin::look(pin.path.parent().unwrap_or(Path::new("/")), pin.definition) {
        Ok(Some(found)) if found.id == pin.id => {
            pin.seen = found.seen;
            Watched::InPlace
        }
        Ok(Some(found)) => match found.grant(access) {
            Ok(_) => Watched::Replaced(found),
            Err(error) => Watched::Trouble(error, at),
        },
        // Removed between the two looks: the next check pins it.
        Ok(None) => Watched::InPlace,
        Err(error) => Watched::Trouble(error, at),
    }
}

impl Reports {
    /// Tells of `watched` what is new. Returns the map that took the place, when one did.
    fn note(&mut self, map: &'static str, watched: Watched, events: &mut Vec<PinEvent>) -> Option<Pin> {
        match watched {
            Watched::Trouble(error, at) => {
                if self.pins.insert(map, at) != Some(at) {
                    events.push(PinEvent::Unpinned { map, error });
                }
                return None;
            }
            Watched::Replaced(pin) => {
                self.pins.remove(map);
                return Some(pin);
            }
            Watched::Repinned => events.push(PinEvent::Repinned { map }),
            Watched::InPlace => {}
        }
        self.pins.remove(map);
        None
    }
}

fn replace<K: Record + Ord + Default, V: Record + PartialEq + Default>(map: &mut ProcessMap<K, V>, pin: Pin) {
    leave(map.clear());
    *map = ProcessMap::new(pin);
}

/// A map that is ours no longer is emptied for those who hold it open, as well as that goes.
fn leave(cleared: Result<(), PublishError>) {
    if let Err(error) = cleared {
        debug!("the former map stays as it is: {}", chain(&error));
    }
}
