//! The iterator over `gpu_device` prints what is in the map.

mod common;

use common::{DEVICE_BYTES, Record, device, write};
use consumers::devices::{self, DeviceLine, Devices};
use e2e::Bpffs;
use libbpf_rs::{MapHandle, MapType};

#[test]
fn every_field_of_a_used_slot_is_read_where_the_contract_puts_it() {
    let pins = Bpffs::mount();
    assert_eq!(devices::read(pins.path()).unwrap(), [], "a new map has no used slot");

    let record = Record::new(DEVICE_BYTES)
        .u64(0, 1_700_000_000_123_456_789)
        .u32(8, 71)
        .u32(12, 53)
        .u64(16, 85_899_345_920)
        .u64(24, 12_345_678_901)
        .u64(32, 536_870_912)
        .u32(40, 64)
        .u32(44, 412_345)
        .u32(48, 1980)
        .u32(52, 2619)
        .u64(56, 0x8000_0000_0000_0004)
        .u64(64, 1_234_567)
        .u64(72, 7_654_321)
        .u32(80, 11)
        .u32(84, 12)
        .u64(88, 450_000_000)
        .u64(96, 449_999_999)
        .u64(104, u64::MAX)
        .u64(112, 3)
        .u32(120, 100)
        .u32(124, 3);
    write(pins.path(), "gpu_device", 7_u32, &record);

    let expected = DeviceLine {
        index: 7,
        timestamp_ns: 1_700_000_000_123_456_789,
        sm_util_pct: 71,
        mem_util_pct: 53,
        mem_total: 85_899_345_920,
        mem_used: 12_345_678_901,
        mem_reserved: 536_870_912,
        temp_c: 64,
        power_mw: 412_345,
        sm_clock_mhz: 1980,
        mem_clock_mhz: 2619,
        throttle_reasons: 0x8000_0000_0000_0004,
        pcie_tx_kbps: 1_234_567,
        pcie_rx_kbps: 7_654_321,
        enc_util_pct: 11,
        dec_util_pct: 12,
        nvlink_tx_kbps: 450_000_000,
        nvlink_rx_kbps: 449_999_999,
        ecc_corrected_total: u64::MAX,
        ecc_uncorrected_total: 3,
        fan_speed_pct: 100,
        compute_mode: 3,
    };
    assert_eq!(devices::read(pins.path()).unwrap(), [expected]);
}

#[test]
fn slots_without_a_time_are_skipped_and_the_others_come_in_order() {
    let pins = Bpffs::mount();
    let reader = Devices::open(pins.path()).unwrap();
    for index in [15, 2, 0] {
        write(pins.path(), "gpu_device", index, &device(1, 10 + index));
    }
    write(pins.path(), "gpu_device", 1_u32, &device(0, 99));
    let read =
        |reader: &Devices| -> Vec<(u32, u32)> { reader.read().unwrap().iter().map(|device| (device.index, device.sm_util_pct)).collect() };
    assert_eq!(read(&reader), [(0, 10), (2, 12), (15, 25)]);

    write(pins.path(), "gpu_device", 0_u32, &device(0, 0));
    assert_eq!(read(&reader), [(2, 12), (15, 25)]);
}

#[test]
fn a_reader_keeps_its_map_when_the_pin_is_removed() {
    let pins = Bpffs::mount();
    let reader = Devices::open(pins.path()).unwrap();
    write(pins.path(), "gpu_device", 3_u32, &device(5, 1));
    std::fs::remove_file(pins.pin("gpu_device")).unwrap();
    assert_eq!(reader.read().unwrap().len(), 1);
}

#[test]
fn a_pin_of_another_size_is_refused_and_left_alone() {
    let pins = Bpffs::mount();
    let options =
        libbpf_sys::bpf_map_create_opts { sz: size_of::<libbpf_sys::bpf_map_create_opts>().try_into().unwrap(), ..Default::default() };
    let mut foreign = MapHandle::create(MapType::Array, Some("gpu_device"), 4, 120, 16, &options).unwrap();
    foreign.pin(pins.pin("gpu_device")).unwrap();

    let error = devices::read(pins.path()).unwrap_err();
    assert!(matches!(error, consumers::Error::Load { program: "gpu_devices", .. }), "{error:?}");
    assert_eq!(pins.pins(), ["gpu_device"]);
}
