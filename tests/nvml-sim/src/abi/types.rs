//! NVML's types, under nvml.h's own names.
#![expect(non_camel_case_types, non_snake_case, reason = "nvml.h's own names, asserted against it field by field")]

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong, c_ushort, c_void};

use serde::{Deserialize, Serialize};

use super::CType;

/// An opaque handle; the simulator puts a number in it and never follows it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nvmlDevice_t(pub *mut c_void);

impl CType for nvmlDevice_t {
    fn c_type() -> String {
        "nvmlDevice_t".to_owned()
    }
}

macro_rules! nvml_enums {
    ($($name:ident),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: any value that a caller may pass.")]
            #[repr(transparent)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
            #[serde(transparent)]
            pub struct $name(pub c_uint);

            impl CType for $name {
                fn c_type() -> String {
                    stringify!($name).to_owned()
                }
            }
        )*

        /// Each enumeration's name and size.
        pub(super) fn enums() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), size_of::<$name>())),*]
        }
    };
}

nvml_enums! {
    nvmlReturn_t, nvmlEnableState_t, nvmlTemperatureSensors_t, nvmlClockType_t, nvmlClockId_t, nvmlPcieUtilCounter_t,
    nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlComputeMode_t, nvmlSamplingType_t, nvmlValueType_t,
}

/// A member of a struct: where it lies, how large it is, its C type.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) c_type: String,
}

/// A struct's layout.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) members: Vec<Member>,
}

const fn size_of_member<S, T>(_: fn(&S) -> &T) -> usize {
    size_of::<T>()
}

fn c_type_of_member<S, T: CType>(_: fn(&S) -> &T) -> String {
    T::c_type()
}

macro_rules! nvml_structs {
    ($($(#[$meta:meta])* $name:ident { $($member:ident : $type:ty),* $(,)? })*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[expect(missing_docs, reason = "nvml.h documents the members")]
            pub struct $name { $(pub $member: $type),* }

            impl CType for $name {
                fn c_type() -> String {
                    stringify!($name).to_owned()
                }
            }
        )*

        /// Each struct's layout.
        pub(super) fn layouts() -> Vec<Layout> {
            vec![$(Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                members: vec![$(Member {
                    name: stringify!($member),
                    offset: std::mem::offset_of!($name, $member),
                    size: size_of_member::<$name, _>(|it| &it.$member),
                    c_type: c_type_of_member::<$name, _>(|it| &it.$member),
                }),*],
            }),*]
        }
    };
}

nvml_structs! {
    #[derive(Debug, Default)]
    nvmlUtilization_t { gpu: c_uint, memory: c_uint }
    #[derive(Debug, Default)]
    nvmlMemory_t { total: c_ulonglong, free: c_ulonglong, used: c_ulonglong }
    #[derive(Debug, Default)]
    nvmlMemory_v2_t { version: c_uint, total: c_ulonglong, reserved: c_ulonglong, free: c_ulonglong, used: c_ulonglong }
    #[derive(Debug)]
    nvmlPciInfo_t {
        busIdLegacy: [c_char; 16], domain: c_uint, bus: c_uint, device: c_uint, pciDeviceId: c_uint, pciSubSystemId: c_uint,
        busId: [c_char; 32],
    }
    #[derive(Debug, Default)]
    nvmlTemperature_v1_t { version: c_uint, sensorType: nvmlTemperatureSensors_t, temperature: c_int }
    #[derive(Debug, Default)]
    nvmlProcessInfo_v1_t { pid: c_uint, usedGpuMemory: c_ulonglong }
    #[derive(Debug, Default)]
    nvmlProcessInfo_v2_t { pid: c_uint, usedGpuMemory: c_ulonglong, gpuInstanceId: c_uint, computeInstanceId: c_uint }
    #[derive(Debug, Default)]
    nvmlProcessDetail_v1_t {
        pid: c_uint, usedGpuMemory: c_ulonglong, gpuInstanceId: c_uint, computeInstanceId: c_uint, usedGpuCcProtectedMemory: c_ulonglong,
    }
    #[derive(Debug)]
    nvmlProcessDetailList_v1_t { version: c_uint, mode: c_uint, numProcArrayEntries: c_uint, procArray: *mut nvmlProcessDetail_v1_t }
    #[derive(Debug, Default)]
    nvmlProcessUtilizationSample_t {
        pid: c_uint, timeStamp: c_ulonglong, smUtil: c_uint, memUtil: c_uint, encUtil: c_uint, decUtil: c_uint,
    }
    #[derive(Debug, Default)]
    nvmlProcessUtilizationInfo_v1_t {
        timeStamp: c_ulonglong, pid: c_uint, smUtil: c_uint, memUtil: c_uint, encUtil: c_uint, decUtil: c_uint, jpgUtil: c_uint, ofaUtil: c_uint,
    }
    #[derive(Debug)]
    nvmlProcessesUtilizationInfo_v1_t {
        version: c_uint, processSamplesCount: c_uint, lastSeenTimeStamp: c_ulonglong, procUtilArray: *mut nvmlProcessUtilizationInfo_v1_t,
    }
    #[derive(Debug)]
    nvmlFieldValue_t {
        fieldId: c_uint, scopeId: c_uint, timestamp: c_longlong, latencyUsec: c_longlong, valueType: nvmlValueType_t, nvmlReturn: nvmlReturn_t,
        value: nvmlValue_t,
    }
    #[derive(Debug)]
    nvmlSample_t { timeStamp: c_ulonglong, sampleValue: nvmlValue_t }
}

/// `nvmlValue_t`, a union in C: eight bytes of which a value takes the first few.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlValue_t(pub c_ulonglong);

impl CType for nvmlValue_t {
    fn c_type() -> String {
        "nvmlValue_t".to_owned()
    }
}

impl nvmlValue_t {
    /// The union with its first bytes set, the others 0.
    pub fn from_first_bytes(first: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes[..first.len()].copy_from_slice(first);
        Self(c_ulonglong::from_ne_bytes(bytes))
    }
}

/// The union's members as the simulator writes them: name, size, C type.
pub(super) fn value_members() -> Vec<(&'static str, usize, String)> {
    vec![
        ("dVal", size_of::<f64>(), f64::c_type()),
        ("siVal", size_of::<c_int>(), c_int::c_type()),
        ("uiVal", size_of::<c_uint>(), c_uint::c_type()),
        ("ulVal", size_of::<std::ffi::c_ulong>(), "unsigned long".to_owned()),
        ("ullVal", size_of::<c_ulonglong>(), c_ulonglong::c_type()),
        ("sllVal", size_of::<c_longlong>(), "signed long long".to_owned()),
        ("usVal", size_of::<c_ushort>(), c_ushort::c_type()),
    ]
}
