//! What a PCIe link can carry.

use super::counter::Scale;

/// No PCIe link of today carries more: generation 7, sixteen lanes.
const FASTEST_PCIE_KBPS: u64 = 16_000_000 * 16;
/// No GPU's NVLinks together carry more in one direction, with room for a generation to come.
const FASTEST_NVLINK_KBPS: u64 = 8_000_000_000;

/// The scale of a counter of PCIe bytes on a link of at most this generation and width; 0 where NVML does not say.
pub(crate) const fn pcie_scale(generation: u32, lanes: u32) -> Scale {
    let known = generation != 0 && lanes != 0 && lanes <= 32;
    let limit_kbps = if known { lane_kbps(generation) * lanes as u64 } else { FASTEST_PCIE_KBPS };
    Scale { unit_bytes: 1, limit_kbps, limit_known: known }
}

/// The scale of a counter of NVLink data in units of so many bytes.
pub(crate) const fn nvlink_scale(unit_bytes: u64) -> Scale {
    Scale { unit_bytes, limit_kbps: FASTEST_NVLINK_KBPS, limit_known: false }
}

/// Line rate of one lane; 8b/10b coding counted where it is used, the few per cent of later codings not.
const fn lane_kbps(generation: u32) -> u64 {
    match generation {
        1 => 250_000,
        2 => 500_000,
        3 => 1_000_000,
        4 => 2_000_000,
        5 => 4_000_000,
        6 => 8_000_000,
        _ => 16_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_carries_its_lanes() {
        assert_eq!(pcie_scale(5, 16).limit_kbps, 64_000_000);
        assert_eq!(pcie_scale(3, 8).limit_kbps, 8_000_000);
        assert_eq!(pcie_scale(1, 1).limit_kbps, 250_000);
    }

    #[test]
    fn an_unknown_link_has_a_ceiling_that_does_not_count_as_known() {
        for scale in [pcie_scale(0, 16), pcie_scale(4, 0), pcie_scale(4, u32::MAX)] {
            assert!(!scale.limit_known);
            assert_eq!(scale.limit_kbps, FASTEST_PCIE_KBPS);
        }
    }
}
