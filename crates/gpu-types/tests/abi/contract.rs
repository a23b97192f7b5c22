//! The contract's numbers as literals, and the Rust types against them.

use std::any;
use std::mem::{align_of, offset_of, size_of};

use gpu_types::maps::{self, MapDefinition, MapKind, MapShape};
use gpu_types::{
    GPU_BRIDGE_STATE_VERSION, GPU_DEVICE_PRIMARY_MULTI, GPU_MAX_DEVICES, GPU_SCHEMA_VERSION, GpuBridgeDevice, GpuBridgeState,
    GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The C type without the kernel's underscores: `u32`, `char[96]`, `gpu_bridge_device[16]`.
    pub(crate) c_type: &'static str,
    pub(crate) offset: usize,
}

#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: &'static [Field],
    rust_size: usize,
    rust_fields: fn() -> Vec<RustField>,
}

/// Name, type and offset.
type RustField = (&'static str, &'static str, usize);

/// Declares the structs: the literals, and beside them what the compiler says of the Rust type.
macro_rules! structs {
    ($($name:literal $rust:ident $size:literal { $($field:ident: $c_type:literal @ $offset:literal),* $(,)? })*) => {
        pub(crate) const STRUCTS: &[Struct] = &[$(Struct {
            name: $name,
            size: $size,
            fields: &[$(Field { name: stringify!($field), c_type: $c_type, offset: $offset }),*],
            rust_size: size_of::<$rust>(),
            rust_fields: || vec![$(
                (stringify!($field), type_of(|value: &$rust| &value.$field), offset_of!($rust, $field)),
            )*],
        }),*];
    };
}

structs! {
    "gpu_meta" GpuMeta 32 {
        schema_version: "u32" @ 0,
        n_devices: "u32" @ 4,
        last_update_boottime_ns: "u64" @ 8,
        helper_pid: "u32" @ 16,
        _reserved: "u32" @ 20,
        clock_offset_ns: "s64" @ 24,
    }
    "gpu_device_metrics" GpuDeviceMetrics 128 {
        timestamp_ns: "u64" @ 0,
        sm_util_pct: "u32" @ 8,
        mem_util_pct: "u32" @ 12,
        mem_total: "u64" @ 16,
        mem_used: "u64" @ 24,
        mem_reserved: "u64" @ 32,
        temp_c: "u32" @ 40,
        power_mw: "u32" @ 44,
        sm_clock_mhz: "u32" @ 48,
        mem_clock_mhz: "u32" @ 52,
        throttle_reasons: "u64" @ 56,
        pcie_tx_kbps: "u64" @ 64,
        pcie_rx_kbps: "u64" @ 72,
        enc_util_pct: "u32" @ 80,
        dec_util_pct: "u32" @ 84,
        nvlink_tx_kbps: "u64" @ 88,
        nvlink_rx_kbps: "u64" @ 96,
        ecc_corrected_total: "u64" @ 104,
        ecc_uncorrected_total: "u64" @ 112,
        fan_speed_pct: "u32" @ 120,
        compute_mode: "u32" @ 124,
    }
    "gpu_pid_metrics" GpuPidMetrics 40 {
        timestamp_ns: "u64" @ 0,
        used_gpu_memory: "u64" @ 8,
        sm_util_pct: "u32" @ 16,
        mem_util_pct: "u32" @ 20,
        enc_util_pct: "u32" @ 24,
        dec_util_pct: "u32" @ 28,
        gpu_device: "u8" @ 32,
        mig_instance: "u8" @ 33,
        _pad: "u16" @ 34,
    }
    "gpu_pid_metrics_aggregated" GpuPidMetricsAggregated 32 {
        timestamp_ns: "u64" @ 0,
        used_gpu_memory_total: "u64" @ 8,
        sm_util_pct_max: "u32" @ 16,
        mem_util_pct_max: "u32" @ 20,
        gpu_device_primary: "u8" @ 24,
        device_count: "u8" @ 25,
        _pad: "u16" @ 26,
    }
    "gpu_bridge_device" GpuBridgeDevice 240 {
        uuid: "char[96]" @ 0,
        pci_bus_id: "char[32]" @ 96,
        name: "char[96]" @ 128,
        phase: "u32" @ 224,
        vendor_id: "u32" @ 228,
        metrics_present: "u64" @ 232,
    }
    "gpu_bridge_state" GpuBridgeState 4080 {
        sequence: "u64" @ 0,
        version: "u32" @ 8,
        phase: "u32" @ 12,
        source: "u32" @ 16,
        n_devices: "u32" @ 20,
        helper_pid: "u32" @ 24,
        processes_left_out: "u32" @ 28,
        poll_interval_ns: "u64" @ 32,
        started_boottime_ns: "u64" @ 40,
        rounds: "u64" @ 48,
        late_ticks: "u64" @ 56,
        skipped_ticks: "u64" @ 64,
        alive_boottime_ns: "u64" @ 72,
        driver_version: "char[80]" @ 80,
        bridge_version: "char[80]" @ 160,
        devices: "gpu_bridge_device[16]" @ 240,
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    /// The kernel's number for `kind`.
    pub(crate) bpf_type: u32,
    pub(crate) key_type: &'static str,
    pub(crate) key_size: u32,
    pub(crate) value_type: &'static str,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
}

#[rustfmt::skip]
pub(crate) const MAPS: [Map; 5] = [
    Map { name: "gpu_meta", kind: "ARRAY", bpf_type: 2, key_type: "u32", key_size: 4, value_type: "gpu_meta", value_size: 32, max_entries: 1, flags: 0 },
    Map { name: "gpu_device", kind: "ARRAY", bpf_type: 2, key_type: "u32", key_size: 4, value_type: "gpu_device_metrics", value_size: 128, max_entries: 16, flags: 0 },
    Map { name: "gpu_per_pid", kind: "LRU_HASH", bpf_type: 9, key_type: "u32", key_size: 4, value_type: "gpu_pid_metrics_aggregated", value_size: 32, max_entries: 4096, flags: 0 },
    Map { name: "gpu_per_pid_per_device", kind: "LRU_HASH", bpf_type: 9, key_type: "u64", key_size: 8, value_type: "gpu_pid_metrics", value_size: 40, max_entries: 4096, flags: 0 },
    Map { name: "gpu_bridge_state", kind: "ARRAY", bpf_type: 2, key_type: "u32", key_size: 4, value_type: "gpu_bridge_state", value_size: 4080, max_entries: 1, flags: 1024 },
];

fn type_of<S, F>(_: fn(&S) -> &F) -> &'static str {
    any::type_name::<F>()
}

fn rust_type(c_type: &str) -> String {
    match c_type.split_once('[') {
        Some((element, length)) => format!("[{}; {length}", rust_type(element)),
        None => match c_type {
            "s64" => "i64",
            "char" => "u8",
            "gpu_bridge_device" => any::type_name::<GpuBridgeDevice>(),
            number => number,
        }
        .to_owned(),
    }
}

#[test]
fn rust_structs_have_the_contracts_fields_at_the_contracts_offsets() {
    for Struct { name, size, fields, rust_size, rust_fields } in STRUCTS {
        let expected: Vec<_> = fields.iter().map(|field| (field.name, rust_type(field.c_type), field.offset)).collect();
        let found: Vec<_> = rust_fields().into_iter().map(|(name, rust_type, offset)| (name, rust_type.to_owned(), offset)).collect();
        assert_eq!(found, expected, "{name}");
        assert_eq!(rust_size, size, "{name}");
    }
}

#[test]
fn the_tail_padding_of_the_pid_structs_is_a_field() {
    assert_eq!(offset_of!(GpuPidMetrics, __bindgen_padding_0), 36);
    assert_eq!(type_of(|value: &GpuPidMetrics| &value.__bindgen_padding_0), "[u8; 4]");
    assert_eq!(offset_of!(GpuPidMetricsAggregated, __bindgen_padding_0), 28);
    assert_eq!(type_of(|value: &GpuPidMetricsAggregated| &value.__bindgen_padding_0), "[u8; 4]");
}

#[test]
fn rust_structs_are_aligned_as_map_values_are() {
    assert_eq!(
        [
            align_of::<GpuMeta>(),
            align_of::<GpuDeviceMetrics>(),
            align_of::<GpuPidMetrics>(),
            align_of::<GpuPidMetricsAggregated>(),
            align_of::<GpuBridgeState>(),
        ],
        [8; 5]
    );
}

#[test]
fn rust_map_definitions_are_the_contracts() {
    assert_eq!(maps::MAPS.len(), MAPS.len());
    for (found, expected) in maps::MAPS.iter().zip(&MAPS) {
        let kind = match found.kind {
            MapKind::Array => "ARRAY",
            MapKind::LruHash => "LRU_HASH",
        };
        assert_eq!(
            (found.name, kind, found.kind.bpf_type(), found.key_size, found.value_size, found.max_entries, found.flags),
            (expected.name, expected.kind, expected.bpf_type, expected.key_size, expected.value_size, expected.max_entries, expected.flags),
        );
    }
}

#[test]
fn a_map_of_the_contract_does_not_differ_and_one_of_another_make_is_told_in_the_kernels_words() {
    for definition in maps::MAPS {
        assert_eq!(definition.difference(&definition.shape()), None);
    }
    let check = |definition: &MapDefinition, change: fn(&mut MapShape), clause: &str| {
        let mut found = definition.shape();
        change(&mut found);
        assert_eq!(definition.difference(&found).unwrap().to_string(), clause);
    };
    check(&maps::PER_PID, |found| (found.bpf_type, found.key_size) = (1, 8), "its type is hash, expected lru_hash");
    check(&maps::META, |found| found.bpf_type = 1000, "its type is 1000, expected array");
    check(&maps::PER_PID, |found| found.key_size = 8, "its key_size is 8, expected 4");
    check(&maps::PER_PID, |found| found.value_size = 40, "its value_size is 40, expected 32");
    check(&maps::PER_PID, |found| found.max_entries = 1024, "its max_entries is 1024, expected 4096");
    check(&maps::PER_PID, |found| found.flags = 2, "its map_flags is 0x2, expected 0x0");
    check(&maps::STATE, |found| found.flags = 0, "its map_flags is 0x0, expected 0x400");
}

#[test]
#[expect(unsafe_code, reason = "libbpf's names are had by a C function")]
fn types_of_maps_are_called_as_libbpf_calls_them() {
    for bpf_type in 0.. {
        // SAFETY: it takes any number and gives a static text or null.
        let name = unsafe { libbpf_rs::libbpf_sys::libbpf_bpf_map_type_str(bpf_type) };
        if name.is_null() {
            assert!(bpf_type > 30, "libbpf knows more than {bpf_type}");
            break;
        }
        // SAFETY: not null, and static.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap();
        let found = MapShape { bpf_type, ..maps::PER_PID.shape() };
        match maps::PER_PID.difference(&found) {
            None => assert_eq!(name, "lru_hash"),
            Some(difference) => assert_eq!(difference.to_string(), format!("its type is {name}, expected lru_hash")),
        }
    }
}

#[test]
fn rust_constants_are_the_contracts() {
    assert_eq!(GPU_SCHEMA_VERSION, 1);
    assert_eq!(GPU_MAX_DEVICES, 16);
    assert_eq!(GPU_DEVICE_PRIMARY_MULTI, 0xff);
    assert_eq!(GPU_BRIDGE_STATE_VERSION, 1);
    assert_eq!(maps::PID_CAPACITY, 4096);
    assert_eq!(maps::PID_PUBLISH_LIMIT, 3968);
}
