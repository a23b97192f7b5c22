//! Records as bytes and back: the only place where a map's key or value changes its form.

use core::slice;

use crate::keys::PidDeviceKey;
use crate::{GpuBridgeDevice, GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

/// A key or value of a map: plain numbers in native byte order, without padding.
///
/// # Safety
///
/// Every byte of a value must be initialised (no padding) and every bit pattern of the type's size must be a valid value. The trait is sealed:
/// the implementations below are checked at compile time.
#[expect(unsafe_code, reason = "implementing it is a promise about the type's layout")]
pub unsafe trait Record: sealed::Sealed + Copy + 'static {
    /// The value's memory, of `size_of::<Self>()` bytes.
    fn as_bytes(&self) -> &[u8] {
        Self::slice_as_bytes(slice::from_ref(self))
    }

    /// The value that `bytes` holds, at any alignment. None unless the length is exactly `size_of::<Self>()`.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: the length was just compared, the read has no demand on alignment, and a Record takes every bit pattern.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The memory of consecutive values, as batch operations on maps take it.
    fn slice_as_bytes(records: &[Self]) -> &[u8] {
        // SAFETY: the pointer and the length in bytes are the slice's own, and a Record has no uninitialised byte.
        unsafe { slice::from_raw_parts(records.as_ptr().cast::<u8>(), size_of_val(records)) }
    }

    /// The memory of consecutive values, to be filled by a read of a map.
    fn slice_as_bytes_mut(records: &mut [Self]) -> &mut [u8] {
        let length = size_of_val(records);
        // SAFETY: the pointer and the length in bytes are the slice's own, and whatever is written is a valid Record.
        unsafe { slice::from_raw_parts_mut(records.as_mut_ptr().cast::<u8>(), length) }
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! number {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}
        // SAFETY: integers have no padding and take every bit pattern.
        #[expect(unsafe_code, reason = "an integer is plain data")]
        unsafe impl Record for $type {}
    )*};
}

number!(u8 u16 u32 u64 i64);

impl<T: Record, const N: usize> sealed::Sealed for [T; N] {}
// SAFETY: an array is its elements, one after the other, with nothing between.
#[expect(unsafe_code, reason = "an array of plain data is plain data")]
unsafe impl<T: Record, const N: usize> Record for [T; N] {}

/// Implements [`Record`] for a struct whose every field is named. It does not compile when a field is missing from the list, when a field is not a
/// Record itself, or when the fields do not fill the struct.
macro_rules! record {
    ($type:ident { $($field:ident),* $(,)? }) => {
        const _: () = {
            const fn size<S, F: Record>(_: fn(&S) -> &F) -> usize {
                size_of::<F>()
            }
            // Irrefutable, and without `..`: all fields are here.
            const fn _complete(&$type { $($field: _),* }: &$type) {}
            assert!(
                size_of::<$type>() == 0 $(+ size(|value: &$type| &value.$field))*,
                concat!(stringify!($type), " has padding"),
            );
        };
        impl sealed::Sealed for $type {}
        // SAFETY: the constant above shows that the fields are Records and fill the struct.
        #[expect(unsafe_code, reason = "checked field by field at compile time")]
        unsafe impl Record for $type {}
    };
}

record!(GpuMeta { schema_version, n_devices, last_update_boottime_ns, helper_pid, _reserved, clock_offset_ns });

record!(GpuDeviceMetrics {
    timestamp_ns,
    sm_util_pct,
    mem_util_pct,
    mem_total,
    mem_used,
    mem_reserved,
    temp_c,
    power_mw,
    sm_clock_mhz,
    mem_clock_mhz,
    throttle_reasons,
    pcie_tx_kbps,
    pcie_rx_kbps,
    enc_util_pct,
    dec_util_pct,
    nvlink_tx_kbps,
    nvlink_rx_kbps,
    ecc_corrected_total,
    ecc_uncorrected_total,
    fan_speed_pct,
    compute_mode,
});

record!(GpuPidMetrics {
    timestamp_ns,
    used_gpu_memory,
    sm_util_pct,
    mem_util_pct,
    enc_util_pct,
    dec_util_pct,
    gpu_device,
    mig_instance,
    _pad,
    __bindgen_padding_0,
});

record!(GpuPidMetricsAggregated {
    timestamp_ns,
    used_gpu_memory_total,
    sm_util_pct_max,
    mem_util_pct_max,
    gpu_device_primary,
    device_count,
    _pad,
    __bindgen_padding_0,
});

record!(GpuBridgeDevice { uuid, pci_bus_id, name, phase, vendor_id, metrics_present });

record!(GpuBridgeState {
    sequence,
    version,
    phase,
    source,
    n_devices,
    helper_pid,
    processes_left_out,
    poll_interval_ns,
    started_boottime_ns,
    rounds,
    late_ticks,
    skipped_ticks,
    alive_boottime_ns,
    driver_version,
    bridge_version,
    devices,
});

impl sealed::Sealed for PidDeviceKey {}
// SAFETY: a transparent wrapper of a u64, without an invariant of its own.
#[expect(unsafe_code, reason = "a transparent u64 is plain data")]
unsafe impl Record for PidDeviceKey {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of `T` whose bytes are all different, modulo 251.
    fn pattern<T: Record>() -> (Vec<u8>, T) {
        let bytes: Vec<u8> = (0..size_of::<T>()).map(|i| (i % 251) as u8 + 1).collect();
        let value = T::from_bytes(&bytes).unwrap();
        (bytes, value)
    }

    #[track_caller]
    fn check<T: Record>() {
        let (bytes, value) = pattern::<T>();
        assert_eq!(value.as_bytes(), bytes);
        assert!(T::from_bytes(&bytes[1..]).is_none());
        assert!(T::from_bytes(&[bytes.as_slice(), &[0]].concat()).is_none());
        assert!(T::from_bytes(&[]).is_none());

        let shifted = [&[0], bytes.as_slice()].concat();
        assert_eq!(T::from_bytes(&shifted[1..]).unwrap().as_bytes(), bytes, "at an odd address");

        assert_eq!(T::slice_as_bytes(&[value, value]), bytes.repeat(2));
        assert!(T::slice_as_bytes(&[]).is_empty());

        let mut target = [value; 2];
        T::slice_as_bytes_mut(&mut target).fill(0);
        assert!(T::slice_as_bytes(&target).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn every_record_survives_the_way_to_bytes_and_back() {
        check::<u32>();
        check::<u64>();
        check::<PidDeviceKey>();
        check::<GpuMeta>();
        check::<GpuDeviceMetrics>();
        check::<GpuPidMetrics>();
        check::<GpuPidMetricsAggregated>();
        check::<GpuBridgeDevice>();
        check::<GpuBridgeState>();
    }

    #[test]
    fn the_tail_of_the_pid_structs_is_zero_by_default() {
        let metrics = GpuPidMetrics { timestamp_ns: u64::MAX, mig_instance: 0xff, _pad: 0xffff, ..Default::default() };
        assert_eq!(metrics.as_bytes()[36..], [0; 4]);
        let metrics = GpuPidMetricsAggregated { device_count: 0xff, _pad: 0xffff, ..Default::default() };
        assert_eq!(metrics.as_bytes()[28..], [0; 4]);
    }

    #[test]
    fn a_field_stands_at_its_place_in_the_bytes() {
        let metrics = GpuPidMetrics { used_gpu_memory: 0x0102_0304, ..Default::default() };
        assert_eq!(metrics.as_bytes()[8..16], 0x0102_0304_u64.to_ne_bytes());
    }
}
