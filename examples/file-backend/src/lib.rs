//! A backend: GPUs that a JSON file describes. `docs/new-backend.md` walks through it.
//!
//! ```json
//! {"devices": [{"uuid": "GPU-a", "name": "Drawn", "sm_util_pct": 71, "memory_total_bytes": 1000, "memory_used_bytes": 400,
//!               "processes": [{"pid": 4711, "memory_bytes": 300, "sm_util_pct": 49}]}]}
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use telemetry::{
    Answer, Device, DeviceError, Identity, Memory, Now, OpenError, OpenSource, Probe, Process, ProcessUtilization, Reading, SourceInfo,
    TelemetrySource,
};

/// The file's content.
#[derive(Debug, Deserialize)]
struct Machine {
    devices: Vec<Described>,
}

/// A device as the file has it. What is left out is not reported, which is not 0.
#[derive(Debug, Deserialize)]
struct Described {
    uuid: String,
    name: String,
    sm_util_pct: Option<u32>,
    power_mw: Option<u32>,
    memory_total_bytes: Option<u64>,
    memory_used_bytes: Option<u64>,
    #[serde(default)]
    processes: Vec<DescribedProcess>,
}

#[derive(Debug, Deserialize)]
struct DescribedProcess {
    pid: u32,
    memory_bytes: Option<u64>,
    sm_util_pct: Option<u32>,
}

fn read(path: &Path) -> io::Result<Machine> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// The source: opens the file and hands out its devices.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
}

impl FileSource {
    /// A source that reads the file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl TelemetrySource for FileSource {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        // "Not there" and "there, but broken" are different answers: the first may be waited for.
        let machine = read(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::NotAvailable(format!("there is no file {}", self.path.display())),
            _ => OpenError::Failed(format!("cannot read {}: {error}", self.path.display())),
        })?;
        let device = |(index, described): (u32, &Described)| -> Box<dyn Device> {
            let identity = Identity { index, uuid: described.uuid.clone(), name: described.name.clone(), ..Identity::default() };
            Box::new(FileDevice { path: self.path.clone(), identity })
        };
        Ok(OpenSource {
            info: SourceInfo { name: "file".to_owned(), driver_version: None, library: None },
            devices: (0..).zip(&machine.devices).map(device).collect(),
        })
    }
}

/// One device. A lane owns it and asks it, always from the same thread.
#[derive(Debug)]
struct FileDevice {
    path: PathBuf,
    identity: Identity,
}

/// Both answers are in one file here; a driver has a call each, with a rhythm each.
const METRICS: usize = 0;
const PROBES: [Probe; 2] = [
    Probe { name: "metrics", period: Duration::ZERO },
    // New samples of processes come ten times a second at most.
    Probe { name: "processes", period: Duration::from_millis(100) },
];

impl Device for FileDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn probes(&self) -> &[Probe] {
        &PROBES
    }

    fn ask(&mut self, probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        // A file that cannot be read is a driver that is gone: the source is opened anew, with growing pauses.
        let machine = read(&self.path).map_err(|error| DeviceError::SourceGone(format!("cannot read the file: {error}")))?;
        // A device that has left it is lost, and may come back.
        let described = machine.devices.iter().find(|device| device.uuid == self.identity.uuid);
        let described = described.ok_or_else(|| DeviceError::Lost(format!("{} is not in the file", self.identity.uuid)))?;
        if probe == METRICS {
            let metrics = &mut reading.metrics;
            metrics.sm_util_pct = described.sm_util_pct;
            metrics.power_mw = described.power_mw;
            metrics.memory = described.memory_total_bytes.map(|total_bytes| Memory {
                total_bytes,
                used_bytes: described.memory_used_bytes.unwrap_or(0),
                reserved_bytes: 0,
            });
        } else {
            reading.processes.clear();
            reading.processes.extend(described.processes.iter().map(|process| Process {
                pid: process.pid,
                mig_instance: None,
                used_memory_bytes: process.memory_bytes,
                // The file has no sample times: what it says is true now.
                utilization: process.sm_util_pct.map(|sm_pct| ProcessUtilization { sampled: now.stamp(), sm_pct, ..Default::default() }),
            }));
        }
        Ok(Answer::Answered)
    }
}
