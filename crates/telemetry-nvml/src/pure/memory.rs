//! Device memory as NVML gives it.

use telemetry::Memory;

/// A reading of device memory, or `None` when it is not one: no memory at all (integrated boards answer with zeros), or "not available"
/// (all ones) in a field.
pub(crate) fn memory(total_bytes: u64, used_bytes: u64, reserved_bytes: u64) -> Option<Memory> {
    let sound = total_bytes != 0 && total_bytes != u64::MAX && used_bytes <= total_bytes && reserved_bytes <= total_bytes;
    sound.then_some(Memory { total_bytes, used_bytes, reserved_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_and_all_ones_are_no_memory() {
        assert_eq!(memory(0, 0, 0), None);
        assert_eq!(memory(u64::MAX, 0, 0), None);
        assert_eq!(memory(80, u64::MAX, 1), None);
        assert_eq!(memory(80, 1, u64::MAX), None);
        assert_eq!(memory(80, 20, 1), Some(Memory { total_bytes: 80, used_bytes: 20, reserved_bytes: 1 }));
    }
}
