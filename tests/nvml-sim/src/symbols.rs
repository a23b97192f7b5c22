//! The exported symbols. One table gives each its exported function, its name for the account, and its C prototype for the check against
//! nvml.h.
#![expect(unsafe_code, reason = "NVML's C ABI is exported")]
#![expect(non_camel_case_types, reason = "NVML's own names and parameters")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};

use crate::{
    abi::{
        CType, Prototype, nvmlClockId_t, nvmlClockType_t, nvmlComputeMode_t, nvmlDevice_t, nvmlEccCounterType_t, nvmlEnableState_t,
        nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlMemoryErrorType_t, nvmlPciInfo_t, nvmlPcieUtilCounter_t,
        nvmlProcessDetailList_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t,
        nvmlProcessesUtilizationInfo_v1_t, nvmlReturn_t, nvmlSample_t, nvmlSamplingType_t, nvmlTemperature_v1_t, nvmlTemperatureSensors_t,
        nvmlUtilization_t, nvmlValueType_t,
    },
    calls::{fields, identity, lists, memory, metrics, mig, nvlink, pcie, samples, system, utilization},
    runtime::{Argument, DeviceIndex, Target, enter},
};

macro_rules! nvml_functions {
    ($($name:ident($($argument:ident: $type:ty),*) => $body:path;)*) => {
        /// An exported symbol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        #[expect(missing_docs, reason = "nvml.h documents them")]
        pub enum Symbol { $($name,)* nvmlErrorString }

        impl Symbol {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)* Self::nvmlErrorString];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    Self::nvmlErrorString => "nvmlErrorString",
                }
            }
        }

        /// The exported functions as C declares them.
        pub fn prototypes() -> Vec<Prototype> {
            vec![
                $(Prototype {
                    name: stringify!($name),
                    returns: nvmlReturn_t::c_type(),
                    parameters: vec![$(<$type as CType>::c_type()),*],
                },)*
                Prototype {
                    name: "nvmlErrorString",
                    returns: <*const c_char as CType>::c_type(),
                    parameters: vec![nvmlReturn_t::c_type()],
                },
            ]
        }

        $(
            #[doc = concat!("`", stringify!($name), "`, see nvml.h.")]
            ///
            /// # Safety
            /// Each pointer is null or valid as nvml.h says, for as long as the call lasts.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> nvmlReturn_t {
                let target = Target::None;
                $(let target = target.or($argument.target());)*
                // SAFETY: the caller's promise about its pointers, passed on.
                $(let $argument = unsafe { $argument.checked() };)*
                enter(Symbol::$name, target, |call| $body(call, $($argument),*))
            }
        )*
    };
}

nvml_functions! {
    nvmlInit() => system::init;
    nvmlInit_v2() => system::init;
    nvmlInitWithFlags(flags: c_uint) => system::init_with_flags;
    nvmlShutdown() => system::shutdown;
    nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) => system::driver_version;
    nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) => system::nvml_version;
    nvmlSystemGetCudaDriverVersion(version: *mut c_int) => system::cuda_version;
    nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) => system::cuda_version;
    nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint) => system::process_name;

    nvmlDeviceGetCount(count: *mut c_uint) => identity::count;
    nvmlDeviceGetCount_v2(count: *mut c_uint) => identity::count;
    nvmlDeviceGetHandleByIndex(index: DeviceIndex, device: *mut nvmlDevice_t) => identity::by_index;
    nvmlDeviceGetHandleByIndex_v2(index: DeviceIndex, device: *mut nvmlDevice_t) => identity::by_index;
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) => identity::by_uuid;
    nvmlDeviceGetHandleByPciBusId(bus_id: *const c_char, device: *mut nvmlDevice_t) => identity::by_bus_id;
    nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, device: *mut nvmlDevice_t) => identity::by_bus_id;
    nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) => identity::index;
    nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) => identity::name;
    nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) => identity::uuid;
    nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor: *mut c_uint) => identity::minor;
    nvmlDeviceGetPciInfo(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) => identity::pci_info;
    nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) => identity::pci_info_v2;
    nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) => identity::pci_info;

    nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, rates: *mut nvmlUtilization_t) => metrics::utilization;
    nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t, celsius: *mut c_uint) => metrics::temperature;
    nvmlDeviceGetTemperatureV(device: nvmlDevice_t, temperature: *mut nvmlTemperature_v1_t) => metrics::temperature_v1;
    nvmlDeviceGetPowerUsage(device: nvmlDevice_t, power_mw: *mut c_uint) => metrics::power;
    nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, energy_mj: *mut c_ulonglong) => metrics::energy;
    nvmlDeviceGetClockInfo(device: nvmlDevice_t, kind: nvmlClockType_t, mhz: *mut c_uint) => metrics::clock;
    nvmlDeviceGetClock(device: nvmlDevice_t, kind: nvmlClockType_t, id: nvmlClockId_t, mhz: *mut c_uint) => metrics::clock_by_id;
    nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, kind: nvmlClockType_t, mhz: *mut c_uint) => metrics::max_clock;
    nvmlDeviceGetCurrentClocksEventReasons(device: nvmlDevice_t, reasons: *mut c_ulonglong) => metrics::event_reasons;
    nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, reasons: *mut c_ulonglong) => metrics::event_reasons;
    nvmlDeviceGetEncoderUtilization(device: nvmlDevice_t, percent: *mut c_uint, period_us: *mut c_uint) => metrics::encoder;
    nvmlDeviceGetDecoderUtilization(device: nvmlDevice_t, percent: *mut c_uint, period_us: *mut c_uint) => metrics::decoder;
    nvmlDeviceGetTotalEccErrors(device: nvmlDevice_t, kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t, errors: *mut c_ulonglong)
        => metrics::ecc_errors;
    nvmlDeviceGetEccMode(device: nvmlDevice_t, current: *mut nvmlEnableState_t, pending: *mut nvmlEnableState_t) => metrics::ecc_mode;
    nvmlDeviceGetNumFans(device: nvmlDevice_t, fans: *mut c_uint) => metrics::fans;
    nvmlDeviceGetFanSpeed(device: nvmlDevice_t, percent: *mut c_uint) => metrics::fan_speed;
    nvmlDeviceGetFanSpeed_v2(device: nvmlDevice_t, fan: c_uint, percent: *mut c_uint) => metrics::fan_speed_of;
    nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut nvmlComputeMode_t) => metrics::compute_mode;
    nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t) => metrics::persistence_mode;

    nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) => memory::info;
    nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) => memory::info_v2;

    nvmlDeviceGetPcieThroughput(device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, kbps: *mut c_uint) => pcie::throughput;
    nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, generation: *mut c_uint) => pcie::generation;
    nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, width: *mut c_uint) => pcie::width;
    nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, generation: *mut c_uint) => pcie::max_generation;
    nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, width: *mut c_uint) => pcie::max_width;

    nvmlDeviceGetNvLinkState(device: nvmlDevice_t, link: c_uint, active: *mut nvmlEnableState_t) => nvlink::state;
    nvmlDeviceGetNvLinkVersion(device: nvmlDevice_t, link: c_uint, version: *mut c_uint) => nvlink::version;
    nvmlDeviceGetNvLinkUtilizationCounter(device: nvmlDevice_t, link: c_uint, counter: c_uint, rx: *mut c_ulonglong, tx: *mut c_ulonglong)
        => nvlink::utilization_counter;

    nvmlDeviceGetFieldValues(device: nvmlDevice_t, count: c_int, values: *mut nvmlFieldValue_t) => fields::values;
    nvmlDeviceGetSamples(
        device: nvmlDevice_t, kind: nvmlSamplingType_t, last_seen_us: c_ulonglong, value_type: *mut nvmlValueType_t, count: *mut c_uint,
        samples: *mut nvmlSample_t
    ) => samples::samples;

    nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) => lists::compute_v1;
    nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) => lists::compute_v2;
    nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) => lists::compute_v3;
    nvmlDeviceGetGraphicsRunningProcesses(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) => lists::graphics_v1;
    nvmlDeviceGetGraphicsRunningProcesses_v2(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        => lists::graphics_v2;
    nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t)
        => lists::graphics_v3;
    nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) => lists::mps_v1;
    nvmlDeviceGetMPSComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) => lists::mps_v2;
    nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) => lists::mps_v3;
    nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, list: *mut nvmlProcessDetailList_v1_t) => lists::detail;

    nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t, samples: *mut nvmlProcessUtilizationSample_t, count: *mut c_uint, last_seen_us: c_ulonglong
    ) => utilization::of_processes;
    nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, info: *mut nvmlProcessesUtilizationInfo_v1_t) => utilization::of_all_processes;

    nvmlDeviceGetMigMode(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) => mig::mode;
    nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) => mig::max_count;
    nvmlDeviceGetMigDeviceHandleByIndex(device: nvmlDevice_t, index: c_uint, mig_device: *mut nvmlDevice_t) => mig::by_index;
    nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) => mig::gpu_instance;
    nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint) => mig::compute_instance;
    nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, is_mig: *mut c_uint) => mig::is_mig;
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig_device: nvmlDevice_t, device: *mut nvmlDevice_t) => mig::parent;
}

/// `nvmlErrorString`, see nvml.h. Works without initialization, as the real one does.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    enter(Symbol::nvmlErrorString, Target::None, |_| Ok(()));
    system::error_string(result).as_ptr()
}

/// Whether a name, or a beginning with a `*` at its end, means this symbol.
pub(crate) fn matching(call: &str, symbol: Symbol) -> bool {
    call.strip_suffix('*').map_or_else(|| call == symbol.name(), |beginning| symbol.name().starts_with(beginning))
}

/// Symbols that the library of driver 470 does not have, for [`crate::library::install`].
pub const ABSENT_IN_470: &[&str] = &[
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetNumFans",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlDeviceGetProcessesUtilizationInfo",
];

#[cfg(test)]
mod tests {
    use super::{ABSENT_IN_470, Symbol, matching};

    #[test]
    fn a_pattern_means_all_symbols_that_begin_so() {
        assert!(matching("nvmlInit*", Symbol::nvmlInit_v2));
        assert!(matching("nvmlInit_v2", Symbol::nvmlInit_v2));
        assert!(!matching("nvmlInit", Symbol::nvmlInit_v2));
        assert!(matching("*", Symbol::nvmlShutdown));
    }

    #[test]
    fn absent_symbols_exist_otherwise() {
        for absent in ABSENT_IN_470 {
            assert!(Symbol::ALL.iter().any(|symbol| symbol.name() == *absent), "{absent}");
        }
    }
}
