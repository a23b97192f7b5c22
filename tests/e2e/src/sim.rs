//! A simulated driver with GPUs.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nvml_sim::library::{self, Installed};
use nvml_sim::scenario::{Device, Scenario};
use nvml_sim::stats::Stats;
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

    /// What the library counts.
    ///
    /// # Panics
    /// When it has counted nothing yet.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.library.stats().expect("the library has been loaded")
    }

    /// Has the library count in this file instead of one beside itself; before it is first loaded.
    ///
    /// # Panics
    /// When it counts already.
    pub fn keep_stats_in(&self, file: &Path) {
        symlink(file, self.library.stats_path()).expect("no statistics yet");
    }

    /// Changes the machine while the library runs.
    pub fn set(&mut self, change: impl FnOnce(Scenario) -> Scenario) {
        self.scenario = change(std::mem::take(&mut self.scenario));
        self.play();
    }

    /// The machine goes on without faults.
    pub fn heal(&mut self) {
        self.set(|mut scenario| {
            scenario.faults.clear();
            scenario.devices.iter_mut().for_each(|device| device.faults.clear());
            scenario
        });
    }

    /// Puts the library of this driver version in the place of the old one; only with [`Sim::load_driver`] it finds its driver.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn install_library(&mut self, version: &str) {
        self.library = library::install_version(self.folder.path(), version, &[]).expect("the simulated library is built");
    }

    /// Loads the driver of this version: libraries of others find that they do not fit.
    pub fn load_driver(&mut self, version: &str) {
        self.set(|scenario| scenario.driver(version));
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
