// Generated from include/gadget/gpu_types.h by `cargo xtask codegen`; do not edit.

pub const GPU_SCHEMA_VERSION: u32 = 1;
pub const GPU_MAX_DEVICES: u32 = 16;
pub const GPU_BRIDGE_PID_ENTRIES: u32 = 4096;
pub const GPU_DEVICE_PRIMARY_MULTI: u8 = 255;
pub const GPU_BRIDGE_STATE_VERSION: u32 = 1;
pub const GPU_BRIDGE_UUID_LEN: usize = 96;
pub const GPU_BRIDGE_PCI_LEN: usize = 32;
pub const GPU_BRIDGE_NAME_LEN: usize = 96;
pub const GPU_BRIDGE_VERSION_LEN: usize = 80;
/// gpu_meta, key 0: is what the other maps hold fresh, and how do their clocks relate? Written last in every round.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct GpuMeta {
    /// GPU_SCHEMA_VERSION
    pub schema_version: u32,
    /// devices published
    pub n_devices: u32,
    /// when this round's data was taken
    pub last_update_boottime_ns: u64,
    /// host PID of the bridge
    pub helper_pid: u32,
    pub _reserved: u32,
    /// REALTIME - BOOTTIME: boottime = timestamp_ns - clock_offset_ns
    pub clock_offset_ns: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GpuMeta"][::core::mem::size_of::<GpuMeta>() - 32usize];
    ["Alignment of GpuMeta"][::core::mem::align_of::<GpuMeta>() - 8usize];
    [
        "Offset of field: GpuMeta::schema_version",
    ][::core::mem::offset_of!(GpuMeta, schema_version) - 0usize];
    [
        "Offset of field: GpuMeta::n_devices",
    ][::core::mem::offset_of!(GpuMeta, n_devices) - 4usize];
    [
        "Offset of field: GpuMeta::last_update_boottime_ns",
    ][::core::mem::offset_of!(GpuMeta, last_update_boottime_ns) - 8usize];
    [
        "Offset of field: GpuMeta::helper_pid",
    ][::core::mem::offset_of!(GpuMeta, helper_pid) - 16usize];
    [
        "Offset of field: GpuMeta::_reserved",
    ][::core::mem::offset_of!(GpuMeta, _reserved) - 20usize];
    [
        "Offset of field: GpuMeta::clock_offset_ns",
    ][::core::mem::offset_of!(GpuMeta, clock_offset_ns) - 24usize];
};
/// gpu_device, key = device index. timestamp_ns == 0 marks an empty slot.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct GpuDeviceMetrics {
    /// when the GPU was sampled, REALTIME
    pub timestamp_ns: u64,
    /// 0-100
    pub sm_util_pct: u32,
    /// 0-100, share of time that memory was read or written
    pub mem_util_pct: u32,
    /// bytes; free = total - used - reserved
    pub mem_total: u64,
    /// bytes, without mem_reserved
    pub mem_used: u64,
    /// bytes held by driver and firmware
    pub mem_reserved: u64,
    pub temp_c: u32,
    pub power_mw: u32,
    pub sm_clock_mhz: u32,
    pub mem_clock_mhz: u32,
    /// NVML's clocks-event-reasons bit mask
    pub throttle_reasons: u64,
    /// kB/s
    pub pcie_tx_kbps: u64,
    /// kB/s
    pub pcie_rx_kbps: u64,
    /// 0-100
    pub enc_util_pct: u32,
    /// 0-100
    pub dec_util_pct: u32,
    /// kB/s, all links together
    pub nvlink_tx_kbps: u64,
    /// kB/s, all links together
    pub nvlink_rx_kbps: u64,
    /// since boot (volatile)
    pub ecc_corrected_total: u64,
    /// since boot (volatile)
    pub ecc_uncorrected_total: u64,
    /// 0-100
    pub fan_speed_pct: u32,
    /// NVML's nvmlComputeMode_t
    pub compute_mode: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GpuDeviceMetrics"][::core::mem::size_of::<GpuDeviceMetrics>() - 128usize];
    [
        "Alignment of GpuDeviceMetrics",
    ][::core::mem::align_of::<GpuDeviceMetrics>() - 8usize];
    [
        "Offset of field: GpuDeviceMetrics::timestamp_ns",
    ][::core::mem::offset_of!(GpuDeviceMetrics, timestamp_ns) - 0usize];
    [
        "Offset of field: GpuDeviceMetrics::sm_util_pct",
    ][::core::mem::offset_of!(GpuDeviceMetrics, sm_util_pct) - 8usize];
    [
        "Offset of field: GpuDeviceMetrics::mem_util_pct",
    ][::core::mem::offset_of!(GpuDeviceMetrics, mem_util_pct) - 12usize];
    [
        "Offset of field: GpuDeviceMetrics::mem_total",
    ][::core::mem::offset_of!(GpuDeviceMetrics, mem_total) - 16usize];
    [
        "Offset of field: GpuDeviceMetrics::mem_used",
    ][::core::mem::offset_of!(GpuDeviceMetrics, mem_used) - 24usize];
    [
        "Offset of field: GpuDeviceMetrics::mem_reserved",
    ][::core::mem::offset_of!(GpuDeviceMetrics, mem_reserved) - 32usize];
    [
        "Offset of field: GpuDeviceMetrics::temp_c",
    ][::core::mem::offset_of!(GpuDeviceMetrics, temp_c) - 40usize];
    [
        "Offset of field: GpuDeviceMetrics::power_mw",
    ][::core::mem::offset_of!(GpuDeviceMetrics, power_mw) - 44usize];
    [
        "Offset of field: GpuDeviceMetrics::sm_clock_mhz",
    ][::core::mem::offset_of!(GpuDeviceMetrics, sm_clock_mhz) - 48usize];
    [
        "Offset of field: GpuDeviceMetrics::mem_clock_mhz",
    ][::core::mem::offset_of!(GpuDeviceMetrics, mem_clock_mhz) - 52usize];
    [
        "Offset of field: GpuDeviceMetrics::throttle_reasons",
    ][::core::mem::offset_of!(GpuDeviceMetrics, throttle_reasons) - 56usize];
    [
        "Offset of field: GpuDeviceMetrics::pcie_tx_kbps",
    ][::core::mem::offset_of!(GpuDeviceMetrics, pcie_tx_kbps) - 64usize];
    [
        "Offset of field: GpuDeviceMetrics::pcie_rx_kbps",
    ][::core::mem::offset_of!(GpuDeviceMetrics, pcie_rx_kbps) - 72usize];
    [
        "Offset of field: GpuDeviceMetrics::enc_util_pct",
    ][::core::mem::offset_of!(GpuDeviceMetrics, enc_util_pct) - 80usize];
    [
        "Offset of field: GpuDeviceMetrics::dec_util_pct",
    ][::core::mem::offset_of!(GpuDeviceMetrics, dec_util_pct) - 84usize];
    [
        "Offset of field: GpuDeviceMetrics::nvlink_tx_kbps",
    ][::core::mem::offset_of!(GpuDeviceMetrics, nvlink_tx_kbps) - 88usize];
    [
        "Offset of field: GpuDeviceMetrics::nvlink_rx_kbps",
    ][::core::mem::offset_of!(GpuDeviceMetrics, nvlink_rx_kbps) - 96usize];
    [
        "Offset of field: GpuDeviceMetrics::ecc_corrected_total",
    ][::core::mem::offset_of!(GpuDeviceMetrics, ecc_corrected_total) - 104usize];
    [
        "Offset of field: GpuDeviceMetrics::ecc_uncorrected_total",
    ][::core::mem::offset_of!(GpuDeviceMetrics, ecc_uncorrected_total) - 112usize];
    [
        "Offset of field: GpuDeviceMetrics::fan_speed_pct",
    ][::core::mem::offset_of!(GpuDeviceMetrics, fan_speed_pct) - 120usize];
    [
        "Offset of field: GpuDeviceMetrics::compute_mode",
    ][::core::mem::offset_of!(GpuDeviceMetrics, compute_mode) - 124usize];
};
/// gpu_per_pid_per_device, key = GPU_PID_DEVICE_KEY(tgid, device index). timestamp_ns == 0: no utilization sample yet.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct GpuPidMetrics {
    /// of the last utilization sample, REALTIME
    pub timestamp_ns: u64,
    /// bytes
    pub used_gpu_memory: u64,
    /// 0-100
    pub sm_util_pct: u32,
    /// 0-100
    pub mem_util_pct: u32,
    /// 0-100
    pub enc_util_pct: u32,
    /// 0-100
    pub dec_util_pct: u32,
    /// device index
    pub gpu_device: u8,
    /// GPU instance id, 0 when not MIG
    pub mig_instance: u8,
    /// 4 zero bytes of alignment follow
    pub _pad: u16,
    pub __bindgen_padding_0: [u8; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GpuPidMetrics"][::core::mem::size_of::<GpuPidMetrics>() - 40usize];
    ["Alignment of GpuPidMetrics"][::core::mem::align_of::<GpuPidMetrics>() - 8usize];
    [
        "Offset of field: GpuPidMetrics::timestamp_ns",
    ][::core::mem::offset_of!(GpuPidMetrics, timestamp_ns) - 0usize];
    [
        "Offset of field: GpuPidMetrics::used_gpu_memory",
    ][::core::mem::offset_of!(GpuPidMetrics, used_gpu_memory) - 8usize];
    [
        "Offset of field: GpuPidMetrics::sm_util_pct",
    ][::core::mem::offset_of!(GpuPidMetrics, sm_util_pct) - 16usize];
    [
        "Offset of field: GpuPidMetrics::mem_util_pct",
    ][::core::mem::offset_of!(GpuPidMetrics, mem_util_pct) - 20usize];
    [
        "Offset of field: GpuPidMetrics::enc_util_pct",
    ][::core::mem::offset_of!(GpuPidMetrics, enc_util_pct) - 24usize];
    [
        "Offset of field: GpuPidMetrics::dec_util_pct",
    ][::core::mem::offset_of!(GpuPidMetrics, dec_util_pct) - 28usize];
    [
        "Offset of field: GpuPidMetrics::gpu_device",
    ][::core::mem::offset_of!(GpuPidMetrics, gpu_device) - 32usize];
    [
        "Offset of field: GpuPidMetrics::mig_instance",
    ][::core::mem::offset_of!(GpuPidMetrics, mig_instance) - 33usize];
    [
        "Offset of field: GpuPidMetrics::_pad",
    ][::core::mem::offset_of!(GpuPidMetrics, _pad) - 34usize];
};
/// gpu_per_pid, key = tgid: one process over all its devices.
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct GpuPidMetricsAggregated {
    /// newest over the devices, REALTIME; 0: no utilization sample yet
    pub timestamp_ns: u64,
    /// bytes, sum over the devices
    pub used_gpu_memory_total: u64,
    /// 0-100, maximum over the devices
    pub sm_util_pct_max: u32,
    /// 0-100, maximum over the devices
    pub mem_util_pct_max: u32,
    /// the device, or GPU_DEVICE_PRIMARY_MULTI
    pub gpu_device_primary: u8,
    /// devices that the process uses
    pub device_count: u8,
    /// 4 zero bytes of alignment follow
    pub _pad: u16,
    pub __bindgen_padding_0: [u8; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of GpuPidMetricsAggregated",
    ][::core::mem::size_of::<GpuPidMetricsAggregated>() - 32usize];
    [
        "Alignment of GpuPidMetricsAggregated",
    ][::core::mem::align_of::<GpuPidMetricsAggregated>() - 8usize];
    [
        "Offset of field: GpuPidMetricsAggregated::timestamp_ns",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, timestamp_ns) - 0usize];
    [
        "Offset of field: GpuPidMetricsAggregated::used_gpu_memory_total",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, used_gpu_memory_total) - 8usize];
    [
        "Offset of field: GpuPidMetricsAggregated::sm_util_pct_max",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, sm_util_pct_max) - 16usize];
    [
        "Offset of field: GpuPidMetricsAggregated::mem_util_pct_max",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, mem_util_pct_max) - 20usize];
    [
        "Offset of field: GpuPidMetricsAggregated::gpu_device_primary",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, gpu_device_primary) - 24usize];
    [
        "Offset of field: GpuPidMetricsAggregated::device_count",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, device_count) - 25usize];
    [
        "Offset of field: GpuPidMetricsAggregated::_pad",
    ][::core::mem::offset_of!(GpuPidMetricsAggregated, _pad) - 26usize];
};
pub const GPU_BRIDGE_STARTING: GpuBridgePhase = 0;
pub const GPU_BRIDGE_PUBLISHING: GpuBridgePhase = 1;
/// for the driver, which was there or must come
pub const GPU_BRIDGE_WAITING: GpuBridgePhase = 2;
/// no GPU, by design
pub const GPU_BRIDGE_IDLE: GpuBridgePhase = 3;
pub const GPU_BRIDGE_STOPPING: GpuBridgePhase = 4;
pub type GpuBridgePhase = ::core::ffi::c_uint;
pub const GPU_BRIDGE_SOURCE_NONE: GpuBridgeSource = 0;
pub const GPU_BRIDGE_SOURCE_REAL: GpuBridgeSource = 1;
pub const GPU_BRIDGE_SOURCE_MOCK: GpuBridgeSource = 2;
/// invented data, since the real source could not be opened
pub const GPU_BRIDGE_SOURCE_MOCK_FALLBACK: GpuBridgeSource = 3;
pub type GpuBridgeSource = ::core::ffi::c_uint;
pub const GPU_BRIDGE_DEVICE_ABSENT: GpuBridgeDevicePhase = 0;
pub const GPU_BRIDGE_DEVICE_ANSWERING: GpuBridgeDevicePhase = 1;
/// its last record is held
pub const GPU_BRIDGE_DEVICE_LATE: GpuBridgeDevicePhase = 2;
/// its slot is empty
pub const GPU_BRIDGE_DEVICE_LOST: GpuBridgeDevicePhase = 3;
pub type GpuBridgeDevicePhase = ::core::ffi::c_uint;
/// One device of gpu_bridge_state.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct GpuBridgeDevice {
    /// NUL-terminated, like all texts here
    pub uuid: [u8; 96usize],
    pub pci_bus_id: [u8; 32usize],
    pub name: [u8; 96usize],
    /// enum gpu_bridge_device_phase
    pub phase: u32,
    /// PCI vendor id, 0 when unknown
    pub vendor_id: u32,
    /// bit n: the n-th field of gpu_device_metrics (0 = timestamp_ns) is reported
    pub metrics_present: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GpuBridgeDevice"][::core::mem::size_of::<GpuBridgeDevice>() - 240usize];
    [
        "Alignment of GpuBridgeDevice",
    ][::core::mem::align_of::<GpuBridgeDevice>() - 8usize];
    [
        "Offset of field: GpuBridgeDevice::uuid",
    ][::core::mem::offset_of!(GpuBridgeDevice, uuid) - 0usize];
    [
        "Offset of field: GpuBridgeDevice::pci_bus_id",
    ][::core::mem::offset_of!(GpuBridgeDevice, pci_bus_id) - 96usize];
    [
        "Offset of field: GpuBridgeDevice::name",
    ][::core::mem::offset_of!(GpuBridgeDevice, name) - 128usize];
    [
        "Offset of field: GpuBridgeDevice::phase",
    ][::core::mem::offset_of!(GpuBridgeDevice, phase) - 224usize];
    [
        "Offset of field: GpuBridgeDevice::vendor_id",
    ][::core::mem::offset_of!(GpuBridgeDevice, vendor_id) - 228usize];
    [
        "Offset of field: GpuBridgeDevice::metrics_present",
    ][::core::mem::offset_of!(GpuBridgeDevice, metrics_present) - 232usize];
};
impl Default for GpuBridgeDevice {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
/// gpu_bridge_state, key 0; BPF_F_MMAPABLE.
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct GpuBridgeState {
    /// odd while a round is being written
    pub sequence: u64,
    /// GPU_BRIDGE_STATE_VERSION
    pub version: u32,
    /// enum gpu_bridge_phase
    pub phase: u32,
    /// enum gpu_bridge_source
    pub source: u32,
    /// devices described below
    pub n_devices: u32,
    pub helper_pid: u32,
    /// in the newest round, for want of room
    pub processes_left_out: u32,
    pub poll_interval_ns: u64,
    pub started_boottime_ns: u64,
    /// published since start
    pub rounds: u64,
    pub late_ticks: u64,
    pub skipped_ticks: u64,
    /// when the bridge's loop last went round: at least once a second, whatever the phase
    pub alive_boottime_ns: u64,
    pub driver_version: [u8; 80usize],
    pub bridge_version: [u8; 80usize],
    pub devices: [GpuBridgeDevice; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GpuBridgeState"][::core::mem::size_of::<GpuBridgeState>() - 4080usize];
    ["Alignment of GpuBridgeState"][::core::mem::align_of::<GpuBridgeState>() - 8usize];
    [
        "Offset of field: GpuBridgeState::sequence",
    ][::core::mem::offset_of!(GpuBridgeState, sequence) - 0usize];
    [
        "Offset of field: GpuBridgeState::version",
    ][::core::mem::offset_of!(GpuBridgeState, version) - 8usize];
    [
        "Offset of field: GpuBridgeState::phase",
    ][::core::mem::offset_of!(GpuBridgeState, phase) - 12usize];
    [
        "Offset of field: GpuBridgeState::source",
    ][::core::mem::offset_of!(GpuBridgeState, source) - 16usize];
    [
        "Offset of field: GpuBridgeState::n_devices",
    ][::core::mem::offset_of!(GpuBridgeState, n_devices) - 20usize];
    [
        "Offset of field: GpuBridgeState::helper_pid",
    ][::core::mem::offset_of!(GpuBridgeState, helper_pid) - 24usize];
    [
        "Offset of field: GpuBridgeState::processes_left_out",
    ][::core::mem::offset_of!(GpuBridgeState, processes_left_out) - 28usize];
    [
        "Offset of field: GpuBridgeState::poll_interval_ns",
    ][::core::mem::offset_of!(GpuBridgeState, poll_interval_ns) - 32usize];
    [
        "Offset of field: GpuBridgeState::started_boottime_ns",
    ][::core::mem::offset_of!(GpuBridgeState, started_boottime_ns) - 40usize];
    [
        "Offset of field: GpuBridgeState::rounds",
    ][::core::mem::offset_of!(GpuBridgeState, rounds) - 48usize];
    [
        "Offset of field: GpuBridgeState::late_ticks",
    ][::core::mem::offset_of!(GpuBridgeState, late_ticks) - 56usize];
    [
        "Offset of field: GpuBridgeState::skipped_ticks",
    ][::core::mem::offset_of!(GpuBridgeState, skipped_ticks) - 64usize];
    [
        "Offset of field: GpuBridgeState::alive_boottime_ns",
    ][::core::mem::offset_of!(GpuBridgeState, alive_boottime_ns) - 72usize];
    [
        "Offset of field: GpuBridgeState::driver_version",
    ][::core::mem::offset_of!(GpuBridgeState, driver_version) - 80usize];
    [
        "Offset of field: GpuBridgeState::bridge_version",
    ][::core::mem::offset_of!(GpuBridgeState, bridge_version) - 160usize];
    [
        "Offset of field: GpuBridgeState::devices",
    ][::core::mem::offset_of!(GpuBridgeState, devices) - 240usize];
};
impl Default for GpuBridgeState {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
