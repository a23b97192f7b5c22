//! NVML's typed values: which of a union's fields counts.

use super::counter::{Count, Width};

/// The number in the eight bytes of an `nvmlValue_t`, by its `nvmlValueType_t`; `None` when it is none: negative, not finite, or of a type
/// that is not known.
pub(crate) fn decode(value_type: u32, bits: u64) -> Option<Count> {
    let low = bits & u64::from(u32::MAX);
    let (value, width) = match value_type {
        // A double counts in whole numbers as far as 2⁵³.
        0 => (whole(f64::from_bits(bits))?, Width::Bits64),
        // Signed or not, a counter of 32 bits runs through all of them.
        1 | 5 => (low, Width::Bits32),
        // `unsigned long` has 64 bits wherever this runs.
        2 | 3 => (bits, Width::Bits64),
        4 => (u64::try_from(bits.cast_signed()).ok()?, Width::Bits64),
        6 => (bits & u64::from(u16::MAX), Width::Bits16),
        _ => return None,
    };
    Some(Count { value, width })
}

fn whole(value: f64) -> Option<u64> {
    // The cast is exact in this range, its fraction aside.
    (0.0..=9_007_199_254_740_992.0).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value_type: u32, bits: u64, expected: Option<(u64, Width)>) {
        assert_eq!(decode(value_type, bits), expected.map(|(value, width)| Count { value, width }));
    }

    #[test]
    fn the_type_says_which_bytes_count() {
        let bits = 0xFFFF_0001_0002_0003;
        check(0, 12.75_f64.to_bits(), Some((12, Width::Bits64)));
        check(1, bits, Some((0x0002_0003, Width::Bits32)));
        check(2, bits, Some((bits, Width::Bits64)));
        check(3, bits, Some((bits, Width::Bits64)));
        check(4, 7, Some((7, Width::Bits64)));
        check(5, 0x8000_0000, Some((0x8000_0000, Width::Bits32)));
        check(6, bits, Some((3, Width::Bits16)));
    }

    #[test]
    fn what_is_no_count_is_none() {
        check(0, f64::NAN.to_bits(), None);
        check(0, (-1.0_f64).to_bits(), None);
        check(4, u64::MAX, None);
        check(7, 1, None);
        check(99, 1, None);
    }
}
