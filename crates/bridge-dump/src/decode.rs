//! Numbers in words: NVML's, and PCI's for vendors.

/// NVML's clocks-event reasons by bit.
const THROTTLE_REASONS: [&str; 9] = [
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
];

/// NVML's `nvmlComputeMode_t`.
const COMPUTE_MODES: [&str; 4] = ["default", "exclusive_thread", "prohibited", "exclusive_process"];

/// Who makes GPUs, by PCI vendor id.
const VENDORS: [(u32, &str); 3] = [(0x1002, "AMD"), (0x10de, "NVIDIA"), (0x8086, "Intel")];

/// The vendor with this PCI id; `None` when it is none that this version knows.
///
/// ```
/// assert_eq!(bridge_dump::decode::vendor(0x1002), Some("AMD"));
/// ```
#[must_use]
pub fn vendor(id: u32) -> Option<&'static str> {
    VENDORS.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

/// The reasons in a `throttle_reasons` mask, lowest bit first; a bit without a name is `bit_<n>`.
///
/// ```
/// assert_eq!(bridge_dump::decode::throttle_reasons(0x24), ["sw_power_cap", "sw_thermal_slowdown"]);
/// ```
#[must_use]
pub fn throttle_reasons(mask: u64) -> Vec<String> {
    (0..u64::BITS)
        .filter(|bit| mask & (1 << bit) != 0)
        .map(|bit| THROTTLE_REASONS.get(bit as usize).map_or_else(|| format!("bit_{bit}"), |&name| name.to_owned()))
        .collect()
}

/// The name of a `compute_mode`; `None` when NVML's documentation has none for the number.
#[must_use]
pub fn compute_mode(mode: u32) -> Option<&'static str> {
    COMPUTE_MODES.get(mode as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_has_its_name_and_unknown_ones_their_number() {
        assert_eq!(throttle_reasons(0), [""; 0]);
        assert_eq!(throttle_reasons(0x1), ["gpu_idle"]);
        assert_eq!(throttle_reasons(0x4 | 0x80 | 1 << 63), ["sw_power_cap", "hw_power_brake_slowdown", "bit_63"]);
        assert_eq!(throttle_reasons(u64::MAX).len(), 64);
    }

    #[test]
    fn vendors_have_names_as_far_as_they_are_known() {
        assert_eq!([0x10de, 0x1002, 0x8086, 0, 0x1234].map(vendor), [Some("NVIDIA"), Some("AMD"), Some("Intel"), None, None]);
    }

    #[test]
    fn compute_modes_have_names_as_far_as_nvml_names_them() {
        assert_eq!(compute_mode(0), Some("default"));
        assert_eq!(compute_mode(3), Some("exclusive_process"));
        assert_eq!(compute_mode(4), None);
    }
}
