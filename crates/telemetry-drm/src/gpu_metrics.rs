//! amdgpu's `gpu_metrics`: a table whose layout depends on the version in its header (`kgd_pp_interface.h` of the kernel).
//!
//! Only what is needed is looked at, and only in versions whose layout is known. A field is believed where it lies inside the size that the
//! header gives; all bits set means that this GPU does not report it.

/// NVML's bits for why clocks are below what was asked for.
const SW_POWER_CAP: u64 = 0x4;
const HW_SLOWDOWN: u64 = 0x8;
const SW_THERMAL_SLOWDOWN: u64 = 0x20;
const HW_THERMAL_SLOWDOWN: u64 = 0x40;

/// amdgpu's `indep_throttle_status`, the same bits on every ASIC (`amdgpu_smu.h`). Package power limits: PPT0 to `SPPT_APU`.
const POWER: u64 = 0xff;
/// Thermal and electrical design currents of the rails, and the fast protection of the supply (TDC, EDC, APCC).
const CURRENT: u64 = 0xff << 16;
/// Temperature limits that the firmware keeps to.
const TEMPERATURE: u64 = 0xfff << 32;
/// A hot line that a voltage regulator or the board pulls (VRHOT, PROCHOT).
const HOT_LINE: u64 = 0xf << 44;

/// What is taken from a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuMetrics {
    /// Of the graphics engine, 0–100.
    pub(crate) gfx_activity_pct: Option<u32>,
    /// NVML's clocks-event-reasons.
    pub(crate) throttle_reasons: Option<u64>,
}

impl GpuMetrics {
    /// Nothing from bytes that are no table of a known version.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let Some(table) = Table::new(bytes) else { return Self::default() };
        let Some(layout) = Layout::of(table.version) else { return Self::default() };
        let activity = table.u16(layout.gfx_activity).map(|raw| u32::from(raw) / layout.activity_divisor);
        Self {
            gfx_activity_pct: activity.filter(|pct| *pct <= 100),
            throttle_reasons: layout.indep_throttle_status.and_then(|at| table.u64(at)).map(throttle_reasons),
        }
    }
}

/// Where things are in one version.
struct Layout {
    gfx_activity: usize,
    /// Firmware of APUs counts in hundredths of a per cent, until version 3.
    activity_divisor: u32,
    indep_throttle_status: Option<usize>,
}

impl Layout {
    const fn of(version: (u8, u8)) -> Option<Self> {
        let (gfx_activity, activity_divisor, indep_throttle_status) = match version {
            (1, 0) => (28, 1, None),
            (1, 1 | 2) => (16, 1, None),
            (1, 3) => (16, 1, Some(112)),
            // MI300 and its kin: the reasons are residency counters there.
            (1, 4..=8) => (12, 1, None),
            (2, 0) => (40, 100, None),
            (2, 1) => (28, 100, None),
            (2, 2..=4) => (28, 100, Some(120)),
            (3, 0) => (42, 1, None),
            _ => return None,
        };
        Some(Self { gfx_activity, activity_divisor, indep_throttle_status })
    }
}

/// The bytes of a table, no more than its header says.
struct Table<'bytes> {
    version: (u8, u8),
    bytes: &'bytes [u8],
}

impl<'bytes> Table<'bytes> {
    fn new(bytes: &'bytes [u8]) -> Option<Self> {
        let &[low, high, format, content, ..] = bytes else { return None };
        let size = usize::from(u16::from_le_bytes([low, high]));
        // Cut short by a read that failed half way: what follows is not known to belong together.
        let bytes = bytes.get(..size)?;
        Some(Self { version: (format, content), bytes })
    }

    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(at..at + 2)?;
        Some(u16::from_le_bytes(bytes.try_into().ok()?)).filter(|value| *value != u16::MAX)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?)).filter(|value| *value != u64::MAX)
    }
}

/// amdgpu's reasons in NVML's words. What has no word there is left out.
const fn throttle_reasons(indep_throttle_status: u64) -> u64 {
    const MAPPING: [(u64, u64); 4] = [
        (POWER, SW_POWER_CAP),
        // NVML: power drawn too high, fast trigger protection.
        (CURRENT, HW_SLOWDOWN),
        (TEMPERATURE, SW_THERMAL_SLOWDOWN),
        // NVML sets both.
        (HOT_LINE, HW_THERMAL_SLOWDOWN | HW_SLOWDOWN),
    ];
    let mut reasons = 0;
    let mut at = 0;
    while at < MAPPING.len() {
        if indep_throttle_status & MAPPING[at].0 != 0 {
            reasons |= MAPPING[at].1;
        }
        at += 1;
    }
    reasons
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table with all bits set, as firmware fills what it does not report, but for its header and the given fields.
    fn table(version: (u8, u8), size: u16, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::from(size)];
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        (bytes[2], bytes[3]) = version;
        for (at, value) in fields {
            bytes[*at..*at + value.len()].copy_from_slice(value);
        }
        bytes
    }

    #[track_caller]
    fn check(bytes: &[u8], gfx_activity_pct: Option<u32>, throttle_reasons: Option<u64>) {
        assert_eq!(GpuMetrics::parse(bytes), GpuMetrics { gfx_activity_pct, throttle_reasons });
    }

    /// The sizes are those of the kernel's structs.
    #[test]
    fn each_known_version_has_its_activity() {
        let percent = 37_u16.to_le_bytes();
        let hundredths = 3_799_u16.to_le_bytes();
        for (version, size, at) in
            [((1, 0), 80, 28), ((1, 1), 96, 16), ((1, 2), 104, 16), ((1, 3), 120, 16), ((1, 4), 328, 12), ((1, 8), 616, 12)]
        {
            check(&table(version, size, &[(at, &percent)]), Some(37), None);
        }
        for (version, size, at) in [((2, 0), 120, 40), ((2, 1), 120, 28), ((2, 2), 128, 28), ((2, 3), 152, 28), ((2, 4), 168, 28)] {
            check(&table(version, size, &[(at, &hundredths)]), Some(37), None);
        }
        check(&table((3, 0), 264, &[(42, &percent)]), Some(37), None);
    }

    #[test]
    fn unknown_versions_are_rejected() {
        for version in [(0, 0), (1, 9), (1, 255), (2, 5), (3, 1), (4, 0), (255, 255)] {
            check(&table(version, 264, &[(12, &[7; 60])]), None, None);
        }
    }

    #[test]
    fn what_is_not_supported_is_no_figure() {
        // As 16 bits it would be 655 % on an APU.
        check(&table((2, 1), 120, &[]), None, None);
        check(&table((1, 3), 120, &[]), None, None);
        check(&table((1, 3), 120, &[(16, &101_u16.to_le_bytes())]), None, None);
    }

    #[test]
    fn the_size_in_the_header_bounds_what_is_believed() {
        let mut short = table((1, 3), 104, &[(16, &5_u16.to_le_bytes())]);
        short.extend([0; 16]);
        check(&short, Some(5), None);
        let whole = table((1, 3), 120, &[(16, &5_u16.to_le_bytes())]);
        check(&whole[..119], None, None);
        for length in 0..4 {
            check(&whole[..length], None, None);
        }
        // A page of padding behind it does no harm.
        let padded: Vec<u8> = whole.iter().copied().chain(std::iter::repeat_n(0, 4_000)).collect();
        check(&padded, Some(5), None);
    }

    #[test]
    fn reasons_are_told_in_nvmls_words() {
        let check = |status: u64, reasons: u64| {
            check(&table((1, 3), 120, &[(112, &status.to_le_bytes())]), None, Some(reasons));
            check(&table((2, 2), 128, &[(120, &status.to_le_bytes())]), None, Some(reasons));
        };
        check(0, 0);
        for bit in 0..8 {
            check(1 << bit, 0x4);
        }
        for bit in 16..24 {
            check(1 << bit, 0x8);
        }
        for bit in 32..44 {
            check(1 << bit, 0x20);
        }
        for bit in 44..48 {
            check(1 << bit, 0x48);
        }
        check(1 << 3 | 1 << 16 | 1 << 36, 0x2c);
        check(1 << 8 | 1 << 31 | 1 << 56, 0);
    }

    /// The raw word of versions that have no other means something else on every ASIC.
    #[test]
    fn raw_throttle_status_is_no_reason() {
        check(&table((1, 2), 104, &[(68, &[1, 0, 0, 0])]), None, None);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_percentage_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(GpuMetrics::parse(&bytes).gfx_activity_pct.is_none_or(|pct| pct <= 100));
        }

        #[test]
        fn any_table_gives_known_reasons_only(format in 1_u8..4, content in 0_u8..10, rest in prop::collection::vec(any::<u8>(), 260)) {
            let mut bytes = vec![8, 1, format, content];
            bytes.extend(rest);
            let metrics = GpuMetrics::parse(&bytes);
            prop_assert!(metrics.gfx_activity_pct.is_none_or(|pct| pct <= 100));
            prop_assert_eq!(metrics.throttle_reasons.unwrap_or(0) & !0x6c, 0);
        }
    }
}
