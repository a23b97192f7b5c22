//! A simulated driver with a bridge on it.

use e2e::{Bpffs, Bridge};
use map_reader::Reader;
use nvml_sim::library::{self, Installed};
use nvml_sim::scenario::{Device, Scenario};
use nvml_sim::stats::Stats;
use tempfile::TempDir;

pub(crate) struct Machine {
    pub(crate) scenario: Scenario,
    pub(crate) bridge: Bridge,
    _pins: Bpffs,
    nvml: Installed,
    _folder: TempDir,
}

impl Machine {
    /// A bridge at 100 ms on a library that lacks these symbols, which has published.
    pub(crate) fn start(scenario: Scenario, hidden: &[&str]) -> (Self, Reader) {
        let folder = TempDir::with_prefix("nvml-sim-").expect("a temporary folder");
        let nvml = library::install(folder.path(), hidden).expect("the simulated library");
        nvml.play(&scenario).expect("the scenario");
        let pins = Bpffs::mount();
        let mut bridge = Bridge::builder(&pins, "real", "100ms").arg("--nvml-library-path").arg(nvml.path()).start();
        let reader = bridge.wait_until_published(&pins);
        (Self { scenario, bridge, nvml, _pins: pins, _folder: folder }, reader)
    }

    /// Changes a GPU while the bridge runs.
    pub(crate) fn change(&mut self, device: usize, change: impl FnOnce(Device) -> Device) {
        self.scenario.change(device, change);
        self.nvml.play(&self.scenario).expect("the scenario");
    }

    pub(crate) fn stats(&self) -> Stats {
        self.nvml.stats().expect("the account")
    }
}
