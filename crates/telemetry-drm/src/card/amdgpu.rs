//! amdgpu's files.

use std::{fs, path::Path};

use super::{
    Card, hwmon,
    power::Power,
    sensors::{Clock, MemoryPart, Sensors, Table},
};
use crate::{
    parse::{number, trimmed},
    sysfs::{Attribute, Files},
};

const HZ_PER_MHZ: u64 = 1_000_000;

/// Files of functions that this GPU lacks are mostly not there; some are, and fail.
pub(crate) fn find(card: &Card, files: &dyn Files) -> Sensors {
    let device = card.device();
    let there = |name: &str| Some(device.join(name)).filter(|path| path.exists()).map(Attribute::new);
    let hwmon = hwmon::find(&device, card.found.driver, files);
    let mut sensors = Sensors {
        busy: there("gpu_busy_percent"),
        memory_busy: there("mem_busy_percent"),
        memory: vec![memory_part(&device, "vram")],
        table: there("gpu_metrics").map(Table::new),
        ecc: there("ras/umc_err_count"),
        ..Sensors::default()
    };
    if card.is_integrated {
        sensors.memory.push(memory_part(&device, "gtt"));
    }
    if let Some(hwmon) = hwmon {
        sensors.has_hwmon = true;
        sensors.temperature = hwmon::by_label(&hwmon, "temp", &["edge", "junction"], 1, files);
        sensors.power = Some(Power::Direct(["power1_average", "power1_input"].map(|name| Attribute::new(hwmon.join(name))).into()));
        sensors.fan = Some(Attribute::new(hwmon.join("pwm1")));
        let clock = |label, number| {
            let attribute = hwmon::by_label(&hwmon, "freq", &[label], number, files).into_iter().next()?;
            Some(Clock { attribute, per_mhz: HZ_PER_MHZ })
        };
        sensors.core_clock = clock("sclk", 1);
        sensors.memory_clock = clock("mclk", 2);
    }
    sensors
}

fn memory_part(device: &Path, kind: &str) -> MemoryPart {
    let attribute = |what| Attribute::new(device.join(format!("mem_info_{kind}_{what}")));
    MemoryPart::new(attribute("total"), attribute("used"))
}

/// The kernel shows the voltage of the north bridge for APUs only. That the file is there is enough: nothing is read.
pub(crate) fn is_apu(device: &Path) -> bool {
    let Ok(directories) = fs::read_dir(device.join("hwmon")) else { return false };
    directories.filter_map(Result::ok).any(|hwmon| hwmon.path().join("in1_label").exists())
}

/// Corrected and uncorrected errors of the memory controllers, from `ue: N` and `ce: N`. While the GPU is in a reset the file says "Query
/// currently inaccessible", with success.
pub(super) fn parse_ras(bytes: &[u8]) -> Option<(u64, u64)> {
    let (mut corrected, mut uncorrected) = (None, None);
    for line in trimmed(bytes).split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        let value = number(&value[1..])?;
        match trimmed(name) {
            b"ce" => corrected = Some(value),
            b"ue" => uncorrected = Some(value),
            _ => {}
        }
    }
    Some((corrected?, uncorrected?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ras_counters_are_two_numbers_or_nothing() {
        assert_eq!(parse_ras(b"ue: 3\nce: 17\n"), Some((17, 3)));
        assert_eq!(parse_ras(b"ue: 0\nce: 0\nde: 4\n"), Some((0, 0)));
        for text in ["", "Query currently inaccessible\n", "ue: 3\n", "ue: 3\nce: many\n"] {
            assert_eq!(parse_ras(text.as_bytes()), None, "{text:?}");
        }
    }
}
