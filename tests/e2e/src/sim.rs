//! A simulated driver with GPUs.

use std::path::{Path, PathBuf};

use nvml_sim::library::{self, Installed};
use nvml_sim::scenario::{Device, Scenario};
use tempfile::TempDir;

use crate::bridge::BridgeBuilder;
use crate::{Bpffs, Bridge};

/// A `libnvidia-ml.so.1` in a temporary folder that answers as a scenario says.
#[derive(Debug)]
pub struct Sim {
    folder: TempDir,
    scenario: Scenario,
    library: Installed,
}

impl Sim {
    /// Installs the library with this scenario.
    ///
    /// # Panics
    /// When that is not possible.
    #[must_use]
    pub fn install(scenario: Scenario) -> Self {
        let folder = TempDir::with_prefix("nvml-sim-").expect("a temporary folder");
        let library = library::install(folder.path(), &[]).expect("the simulated library is built");
        let sim = Self { folder, scenario, library };
        sim.play();
        sim
    }

    /// The library's path.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.library.path()
    }

    /// The folder that it is installed in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A bridge in mode `real` on this library.
    #[must_use]
    pub fn bridge(&self, pins: &Bpffs, poll_interval: &str) -> BridgeBuilder {
        Bridge::builder(pins, "real", poll_interval).arg("--nvml-library-path").arg(self.library())
    }

    /// Changes one device while the library runs.
    pub fn change(&mut self, device: usize, change: impl FnOnce(Device) -> Device) {
        self.scenario.change(device, change);
        self.play();
    }

    fn play(&self) {
        self.library.play(&self.scenario).expect("the scenario can be written");
    }
}
