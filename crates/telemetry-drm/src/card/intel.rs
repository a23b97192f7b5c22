//! The files of i915 and xe.

use std::path::Path;

use super::{
    Card, hwmon,
    power::{EnergyMeter, Power},
    sensors::{Clock, Sensors},
};
use crate::sysfs::{Attribute, Files};

pub(crate) fn find_i915(card: &Card, files: &dyn Files) -> Sensors {
    let gt = card.found.directory.join("gt/gt0");
    // Kernels before 5.18 have no gt directory.
    let clock = [gt.join("rps_act_freq_mhz"), card.found.directory.join("gt_act_freq_mhz")].into_iter().find(|path| path.exists());
    let mut sensors = Sensors {
        core_clock: clock.map(|path| Clock { attribute: Attribute::new(path), per_mhz: 1 }),
        throttle: Throttle::find(&gt, "throttle_reason_"),
        ..Sensors::default()
    };
    // Integrated GPUs have no hwmon.
    if let Some(hwmon) = hwmon::find(&card.device(), card.found.driver, files) {
        sensors.has_hwmon = true;
        sensors.temperature = vec![Attribute::new(hwmon.join("temp1_input"))];
        sensors.power = energy(&hwmon, &["energy1_input"]);
    }
    sensors
}

pub(crate) fn find_xe(card: &Card, files: &dyn Files) -> Sensors {
    let frequency = card.device().join("tile0/gt0/freq0");
    let mut sensors = Sensors {
        // cur_freq is what was asked for.
        core_clock: Some(Clock { attribute: Attribute::new(frequency.join("act_freq")), per_mhz: 1 }),
        throttle: Throttle::find(&frequency.join("throttle"), "reason_"),
        ..Sensors::default()
    };
    if let Some(hwmon) = hwmon::find(&card.device(), card.found.driver, files) {
        sensors.has_hwmon = true;
        sensors.temperature = hwmon::by_label(&hwmon, "temp", &["pkg"], 2, files);
        // The card's, else the package's.
        sensors.power = energy(&hwmon, &["energy1_input", "energy2_input"]);
    }
    sensors
}

fn energy(hwmon: &Path, names: &[&str]) -> Option<Power> {
    let counters = names.iter().map(|name| hwmon.join(name)).filter(|path| path.exists()).map(Attribute::new).collect();
    Some(Power::Energy(EnergyMeter::new(counters)))
}

/// Why the clock is below what was asked for: one file that says whether it is, and one a reason.
#[derive(Debug)]
pub(crate) struct Throttle {
    status: Attribute,
    reasons: Vec<(Attribute, u64)>,
}

/// The drivers' names for reasons in NVML's bits: power limits (`pl1`, `pl2`) cap in software's time, peak power and current limits (`pl4`, `vr_tdc`)
/// at once; thermal and running-average limits are temperatures, and hot lines come from the board or its regulators.
const REASONS: [(&str, u64); 8] = [
    ("pl1", 0x4),
    ("pl2", 0x4),
    ("pl4", 0x8),
    ("vr_tdc", 0x8),
    ("thermal", 0x20),
    ("ratl", 0x20),
    ("prochot", 0x48),
    ("vr_thermalert", 0x48),
];

impl Throttle {
    fn find(directory: &Path, prefix: &str) -> Option<Self> {
        // xe's status is without the prefix.
        let status =
            [format!("{prefix}status"), "status".to_owned()].into_iter().map(|name| directory.join(name)).find(|path| path.exists())?;
        let reasons = REASONS.iter().map(|(name, bits)| (directory.join(format!("{prefix}{name}")), *bits));
        let reasons = reasons.filter(|(path, _)| path.exists()).map(|(path, bits)| (Attribute::new(path), bits)).collect();
        Some(Self { status: Attribute::new(status), reasons })
    }

    pub(crate) fn reasons(&mut self, files: &dyn Files, now_ns: u64) -> Option<u64> {
        if self.status.unsigned(files, now_ns)? == 0 {
            return Some(0);
        }
        let is_set = |attribute: &mut Attribute| attribute.unsigned(files, now_ns).is_some_and(|value| value != 0);
        Some(self.reasons.iter_mut().filter_map(|(attribute, bits)| is_set(attribute).then_some(*bits)).fold(0, |all, bits| all | bits))
    }
}
