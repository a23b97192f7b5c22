//! Taking a pin directory: everything is looked at before anything is changed.

use std::path::PathBuf;
use std::time::Duration;

use gpu_types::maps::{self, MapDefinition};
use gpu_types::{GpuBridgeState, GpuMeta};
use log::warn;

use crate::create::create;
use crate::directory::{PinDirectory, Taken};
use crate::map::StateMap;
use crate::pin::{self, Access, FormerAccess, Pin};
use crate::writer::{Writer, read_single};
use crate::{PublishError, chain};

/// Where to publish, and as whom.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of the pins, on a BPF file system. Missing levels below one are created.
    pub pin_dir: PathBuf,
    /// The host PID under which this bridge publishes.
    pub helper_pid: u32,
    /// `CLOCK_BOOTTIME` at the time of the call, in nanoseconds.
    pub now_boottime_ns: u64,
    /// When `gpu_meta` is younger than this, and another living process is named in it, that one is a writer that takes no lock: a few of its
    /// intervals.
    pub foreign_writer_max_age: Duration,
    /// Permission bits for the pins. None: what the kernel gives a new pin (0600 less the umask); adopted ones keep theirs.
    pub pin_mode: Option<u32>,
    /// The group of the pins. None: the process's for a new pin; adopted ones keep theirs.
    pub pin_group: Option<u32>,
}

impl Options {
    /// With one second as the largest age of a foreign writer's data, and the kernel's own permissions.
    pub fn new(pin_dir: impl Into<PathBuf>, helper_pid: u32, now_boottime_ns: u64) -> Self {
        Self {
            pin_dir: pin_dir.into(),
            helper_pid,
            now_boottime_ns,
            foreign_writer_max_age: Duration::from_secs(1),
            pin_mode: None,
            pin_group: None,
        }
    }

    pub(crate) fn access(&self) -> Access {
        Access { mode: self.pin_mode, group: self.pin_group }
    }
}

/// A pin directory that was taken.
pub(crate) struct Opened {
    pub(crate) directory: PinDirectory,
    pub(crate) meta: Pin,
    pub(crate) devices: Pin,
    pub(crate) processes: Pin,
    pub(crate) process_devices: Pin,
    pub(crate) state: Option<StateMap>,
}

/// Takes the directory, or leaves everything as it was.
pub(crate) fn open(options: &Options) -> Result<Opened, PublishError> {
    let pin_dir = std::path::absolute(&options.pin_dir).map_err(|source| PublishError::Directory {
        action: "look at",
        dir: options.pin_dir.clone(),
        source,
    })?;
    let directory = match PinDirectory::open(&pin_dir)? {
        Ok(directory) => directory,
        Err(Taken) => {
            let holder = Writer::look(&pin_dir, options.now_boottime_ns);
            let (helper_pid, age) = holder.map(|holder| (holder.helper_pid, holder.age)).unzip();
            return Err(PublishError::Held { pin_dir, helper_pid, age });
        }
    };

    let mut taking = Taking { directory: &directory, options, created: Vec::new(), granted: Vec::new() };
    match taking.run() {
        Ok(([meta, devices, processes, process_devices], state)) => {
            Ok(Opened { directory, meta, devices, processes, process_devices, state })
        }
        Err(error) => {
            taking.granted.iter().for_each(FormerAccess::restore);
            for (path, id) in taking.created {
                if let Err(error) = pin::remove(&path, id) {
                    warn!("{}", chain(&error));
                }
            }
            directory.remove_created();
            Err(error)
        }
    }
}

struct Taking<'a> {
    directory: &'a PinDirectory,
    options: &'a Options,
    /// Pins that were not there before, and the ids of their maps.
    created: Vec<(PathBuf, u32)>,
    /// What mode and group pins had.
    granted: Vec<FormerAccess>,
}

impl Taking<'_> {
    fn run(&mut self) -> Result<([Pin; 4], Option<StateMap>), PublishError> {
        let meta = self.look(maps::META)?;
        let devices = self.look(maps::DEVICE)?;
        let processes = self.look(maps::PER_PID)?;
        let process_devices = self.look(maps::PER_PID_PER_DEVICE)?;
        let state = self.look(maps::STATE);
        self.refuse_foreign_writer(meta.as_ref(), state.as_ref().ok().and_then(Option::as_ref))?;

        let four = [
            self.have(meta, maps::META)?,
            self.have(devices, maps::DEVICE)?,
            self.have(processes, maps::PER_PID)?,
            self.have(process_devices, maps::PER_PID_PER_DEVICE)?,
        ];
        for pin in &four {
            self.granted.push(pin.grant(self.options.access())?);
        }
        Ok((four, self.have_state(state)))
    }

    fn look(&self, definition: MapDefinition) -> Result<Option<Pin>, PublishError> {
        Pin::look(self.directory.path(), definition)
    }

    fn have(&mut self, found: Option<Pin>, definition: MapDefinition) -> Result<Pin, PublishError> {
        if let Some(pin) = found {
            return Ok(pin);
        }
        let pin = create(self.directory.path(), definition)?;
        self.created.push((pin.path.clone(), pin.id));
        Ok(pin)
    }

    /// The map that nobody needs: what is wrong with it is no reason to stop.
    fn have_state(&mut self, found: Result<Option<Pin>, PublishError>) -> Option<StateMap> {
        let state = found.and_then(|found| self.have(found, maps::STATE)).and_then(|pin| {
            pin.grant(self.options.access())?;
            StateMap::new(pin, self.options.helper_pid)
        });
        match state {
            Ok(state) => Some(state),
            Err(error) => {
                warn!("going on without {}: {}", maps::GPU_BRIDGE_STATE, chain(&error));
                // It must not stay behind and say "starting" for ever.
                if let Some((path, id)) = self.created.pop_if(|(path, _)| path.ends_with(maps::GPU_BRIDGE_STATE))
                    && let Err(error) = pin::remove(&path, id)
                {
                    warn!("{}", chain(&error));
                }
                None
            }
        }
    }

    fn refuse_foreign_writer(&self, meta: Option<&Pin>, state: Option<&Pin>) -> Result<(), PublishError> {
        let Some(meta) = meta.and_then(|pin| read_single::<GpuMeta>(&pin.map)) else { return Ok(()) };
        let state = state.and_then(|pin| read_single::<GpuBridgeState>(&pin.map));
        match Writer::of(&meta, self.options.now_boottime_ns) {
            Some(writer) if writer.is_foreign(self.options.helper_pid, state.as_ref(), self.options.foreign_writer_max_age) => {
                let pin_dir = self.directory.path().to_owned();
                Err(PublishError::ForeignWriter { pin_dir, helper_pid: writer.helper_pid, age: writer.age })
            }
            _ => Ok(()),
        }
    }
}
