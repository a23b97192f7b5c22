//! NVML's constants, under nvml.h's own names.
#![expect(non_upper_case_globals, missing_docs, reason = "nvml.h's own names, asserted against it and documented there")]

use std::ffi::c_uint;

use super::types::{nvmlMemory_v2_t, nvmlProcessDetailList_v1_t, nvmlProcessesUtilizationInfo_v1_t, nvmlTemperature_v1_t};

/// NVML's version word: the struct's size and its version in the top byte.
const fn version_of<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

macro_rules! nvml_constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub const $name: c_uint = $value;)*

        /// Each constant's name and value.
        pub(super) fn constants() -> Vec<(&'static str, c_uint)> {
            vec![$((stringify!($name), $name)),*]
        }
    };
}

nvml_constants! {
    NVML_SUCCESS = 0;
    NVML_ERROR_UNINITIALIZED = 1;
    NVML_ERROR_INVALID_ARGUMENT = 2;
    NVML_ERROR_NOT_SUPPORTED = 3;
    NVML_ERROR_NO_PERMISSION = 4;
    NVML_ERROR_ALREADY_INITIALIZED = 5;
    NVML_ERROR_NOT_FOUND = 6;
    NVML_ERROR_INSUFFICIENT_SIZE = 7;
    NVML_ERROR_INSUFFICIENT_POWER = 8;
    NVML_ERROR_DRIVER_NOT_LOADED = 9;
    NVML_ERROR_TIMEOUT = 10;
    NVML_ERROR_IRQ_ISSUE = 11;
    NVML_ERROR_LIBRARY_NOT_FOUND = 12;
    NVML_ERROR_FUNCTION_NOT_FOUND = 13;
    NVML_ERROR_CORRUPTED_INFOROM = 14;
    NVML_ERROR_GPU_IS_LOST = 15;
    NVML_ERROR_RESET_REQUIRED = 16;
    NVML_ERROR_OPERATING_SYSTEM = 17;
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18;
    NVML_ERROR_IN_USE = 19;
    NVML_ERROR_MEMORY = 20;
    NVML_ERROR_NO_DATA = 21;
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22;
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23;
    NVML_ERROR_FREQ_NOT_SUPPORTED = 24;
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25;
    NVML_ERROR_DEPRECATED = 26;
    NVML_ERROR_NOT_READY = 27;
    NVML_ERROR_GPU_NOT_FOUND = 28;
    NVML_ERROR_INVALID_STATE = 29;
    NVML_ERROR_RESET_TYPE_NOT_SUPPORTED = 30;
    NVML_ERROR_UNKNOWN = 999;

    NVML_FEATURE_DISABLED = 0;
    NVML_FEATURE_ENABLED = 1;
    NVML_DEVICE_MIG_DISABLE = 0;
    NVML_DEVICE_MIG_ENABLE = 1;
    NVML_TEMPERATURE_GPU = 0;
    NVML_CLOCK_GRAPHICS = 0;
    NVML_CLOCK_SM = 1;
    NVML_CLOCK_MEM = 2;
    NVML_CLOCK_VIDEO = 3;
    NVML_CLOCK_ID_CURRENT = 0;
    NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3;
    NVML_PCIE_UTIL_TX_BYTES = 0;
    NVML_PCIE_UTIL_RX_BYTES = 1;
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0;
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1;
    NVML_VOLATILE_ECC = 0;
    NVML_AGGREGATE_ECC = 1;
    NVML_COMPUTEMODE_DEFAULT = 0;
    NVML_COMPUTEMODE_PROHIBITED = 2;
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3;
    NVML_PROCESS_MODE_COMPUTE = 0;
    NVML_PROCESS_MODE_GRAPHICS = 1;
    NVML_PROCESS_MODE_MPS = 2;
    NVML_PROCESS_MODE_ALL = 3;

    NVML_TOTAL_POWER_SAMPLES = 0;
    NVML_GPU_UTILIZATION_SAMPLES = 1;
    NVML_MEMORY_UTILIZATION_SAMPLES = 2;
    NVML_ENC_UTILIZATION_SAMPLES = 3;
    NVML_DEC_UTILIZATION_SAMPLES = 4;
    NVML_PROCESSOR_CLK_SAMPLES = 5;
    NVML_MEMORY_CLK_SAMPLES = 6;
    NVML_SAMPLINGTYPE_COUNT = 10;

    NVML_VALUE_TYPE_DOUBLE = 0;
    NVML_VALUE_TYPE_UNSIGNED_INT = 1;
    NVML_VALUE_TYPE_UNSIGNED_LONG = 2;
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3;
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4;
    NVML_VALUE_TYPE_SIGNED_INT = 5;
    NVML_VALUE_TYPE_UNSIGNED_SHORT = 6;

    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83;
    NVML_FI_DEV_NVLINK_LINK_COUNT = 91;
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138;
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139;
    NVML_FI_DEV_POWER_AVERAGE = 185;
    NVML_FI_DEV_POWER_INSTANT = 186;
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197;
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 198;
    NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES = 202;
    NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES = 204;

    nvmlClocksEventReasonGpuIdle = 0x1;
    nvmlClocksEventReasonApplicationsClocksSetting = 0x2;
    nvmlClocksEventReasonSwPowerCap = 0x4;
    nvmlClocksThrottleReasonHwSlowdown = 0x8;
    nvmlClocksEventReasonSyncBoost = 0x10;
    nvmlClocksEventReasonSwThermalSlowdown = 0x20;

    NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE = 32;
    NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE = 16;

    nvmlMemory_v2 = version_of::<nvmlMemory_v2_t>(2);
    nvmlTemperature_v1 = version_of::<nvmlTemperature_v1_t>(1);
    nvmlProcessDetailList_v1 = version_of::<nvmlProcessDetailList_v1_t>(1);
    nvmlProcessesUtilizationInfo_v1 = version_of::<nvmlProcessesUtilizationInfo_v1_t>(1);
}

/// What NVML writes for a number that it does not know.
pub const NVML_VALUE_NOT_AVAILABLE: u64 = u64::MAX;
/// The instance id of a process that runs in no MIG instance.
pub const NO_INSTANCE: u32 = u32::MAX;
/// The scope id that stands for all links together.
pub const ALL_LINKS: u32 = u32::MAX;
