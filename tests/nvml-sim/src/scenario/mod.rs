//! What the simulated machine is like: a JSON file that the library reads, and builders that write it.

pub mod behaviours;
mod boards;
mod cost;
mod device;
mod fault;
mod parts;
mod process;
mod samples;
mod value;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use boards::Board;
pub use cost::{CostMode, Costs};
pub use device::Device;
pub use fault::{Effect, Fault};
pub use parts::{Clocks, Ecc, Link, Memory, Mig, MigInstance, NvLinks, Pci, Pcie, Utilization};
pub use process::{Activity, Growth, List, Load, Process, ProcessUtilization, RawRow, Sample};
pub use samples::{BufferedSamples, Field, FieldValue, SampleBuffer};
pub use value::{Answer, Code, Counter, Text};

use crate::symbols::{Symbol, matching};

/// A machine with a driver and GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The driver's version.
    pub driver_version: Text,
    /// The library's version.
    pub nvml_version: Text,
    /// The CUDA version, as in 13000.
    pub cuda_version: i32,
    /// The GPUs, in index order.
    pub devices: Vec<Device>,
    /// Calls that go wrong on every device, and those that concern none. A device's own faults go first.
    pub faults: Vec<Fault>,
    /// Symbols that answer `FUNCTION_NOT_FOUND`. For symbols that dlsym does not find see [`crate::library::install`].
    pub missing: Vec<String>,
    /// What calls cost.
    pub costs: Costs,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver_version: "580.105.08".into(),
            nvml_version: "13.580.105.08".into(),
            cuda_version: 13_000,
            devices: Vec::new(),
            faults: Vec::new(),
            missing: Vec::new(),
            costs: Costs::default(),
        }
    }
}

/// Why a scenario cannot be read, written or followed.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read scenario {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write scenario {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The text is not a scenario.
    #[error("not a scenario: {path}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// A fault, a cost or a missing symbol names a call that the simulator does not have.
    #[error("no such call: {0}")]
    NoSuchCall(String),
}

impl Scenario {
    /// A machine with a driver and no GPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a GPU.
    #[must_use]
    pub fn device(mut self, device: impl Into<Device>) -> Self {
        self.devices.push(device.into());
        self
    }

    /// Adds so many GPUs of a kind.
    #[must_use]
    pub fn devices(mut self, count: usize, device: impl Into<Device>) -> Self {
        self.devices.extend(vec![device.into(); count]);
        self
    }

    /// Changes a GPU in place, for the next [`Scenario::write`].
    ///
    /// # Panics
    /// When there is no such device.
    pub fn change(&mut self, device: usize, change: impl FnOnce(Device) -> Device) {
        self.devices[device] = change(std::mem::take(&mut self.devices[device]));
    }

    /// Sets the driver's and the library's version.
    #[must_use]
    pub fn driver(mut self, version: &str) -> Self {
        self.driver_version = version.into();
        self.nvml_version = format!("13.{version}").into();
        self
    }

    /// Adds a fault on every device, or of calls that concern none.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Every call of `call` returns `code`; see [`Fault::call`].
    #[must_use]
    pub fn fails(self, call: &str, code: Code) -> Self {
        self.fault(Fault::error(call, code))
    }

    /// Initialization answers this code.
    #[must_use]
    pub fn init_fails(self, code: Code) -> Self {
        self.fails("nvmlInit*", code)
    }

    /// A symbol answers `FUNCTION_NOT_FOUND`.
    #[must_use]
    pub fn missing(mut self, symbol: &str) -> Self {
        self.missing.push(symbol.to_owned());
        self
    }

    /// Sets what calls cost.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        self
    }

    /// Reads a scenario.
    ///
    /// # Errors
    /// When the file cannot be read, is no scenario, or names a call that does not exist.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_json::from_slice(text).map_err(|source| ScenarioError::Parse { path: path.to_owned(), source })?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Writes the scenario so that a running library sees either the old or the new one, within 2 ms of its next call.
    ///
    /// # Errors
    /// When the file cannot be written, or the scenario names a call that does not exist.
    pub fn write(&self, path: &Path) -> Result<(), ScenarioError> {
        self.check()?;
        let error = |source| ScenarioError::Write { path: path.to_owned(), source };
        let text = serde_json::to_vec_pretty(self).map_err(|source| ScenarioError::Parse { path: path.to_owned(), source })?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::Builder::new().permissions(readable_by_all()).tempfile_in(directory).map_err(error)?;
        file.write_all(&text).map_err(error)?;
        file.persist(path).map_err(|persist| error(persist.error))?;
        Ok(())
    }

    /// Every call that is named exists.
    fn check(&self) -> Result<(), ScenarioError> {
        let faults = self.devices.iter().flat_map(|device| &device.faults).chain(&self.faults).map(|fault| &fault.call);
        let costs = self.devices.iter().flat_map(|device| device.costs.keys()).chain(self.costs.calls.keys());
        let mut named = faults.chain(costs).chain(&self.missing);
        named
            .find(|call| !Symbol::ALL.iter().any(|symbol| matching(call, *symbol)))
            .map_or(Ok(()), |call| Err(ScenarioError::NoSuchCall(call.clone())))
    }
}

/// The library may run as another user than the test.
fn readable_by_all() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

#[cfg(test)]
mod tests;
