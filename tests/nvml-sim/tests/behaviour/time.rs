//! What changes with time.

use std::{thread::sleep, time::Duration};

use nvml_sim::{
    abi::{self, nvmlProcessUtilizationSample_t},
    boottime_ns, realtime_us,
    scenario::{Code, Counter, Device, Load, NvLinks, Pcie, Process, Scenario},
};

use crate::nvml::{Nvml, wait_for};

/// A counter's value, and the times between which it was read.
fn read(nvml: &Nvml, id: u32, scope: u32) -> (u64, u64, u64) {
    let before = boottime_ns();
    let (_, value) = nvml.field(nvml.device(0), id, scope).unwrap();
    (value, before, boottime_ns())
}

/// The counter grows by `units_per_s` units of real time.
#[track_caller]
fn check_rate(nvml: &Nvml, id: u32, scope: u32, units_per_s: u64) {
    let (first, first_before, first_after) = read(nvml, id, scope);
    sleep(Duration::from_millis(50));
    let (second, second_before, second_after) = read(nvml, id, scope);
    let grown = u128::from(second.wrapping_sub(first)) * 1_000_000_000;
    let rate = u128::from(units_per_s);
    // One unit either way is lost in rounding.
    let least = rate * u128::from(second_before - first_after) - 1_000_000_000;
    let most = rate * u128::from(second_after - first_before) + 1_000_000_000;
    assert!(grown >= least && grown <= most, "{least} {grown} {most}");
}

#[test]
fn counters_grow_with_real_time() {
    let device = Device::a100().pcie(Pcie::link(4, 16).traffic(3_000_000, 1_000_000)).nvlinks(NvLinks::new(7, 4).traffic(1 << 30, 1 << 20));
    let nvml = Nvml::start(&Scenario::new().device(device));
    check_rate(&nvml, abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 3_000_000_000);
    check_rate(&nvml, abi::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1_000_000_000);
    check_rate(&nvml, abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 3, 1 << 20);
    check_rate(&nvml, abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, abi::ALL_LINKS, 4 << 20);
    check_rate(&nvml, abi::NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 1, 1 << 20);
}

#[test]
fn a_narrow_counter_wraps_at_32_bits_and_says_so() {
    let pcie = Pcie { counter_bits: 32, ..Pcie::link(5, 16).traffic(63_000_000, 0) };
    let nvml = Nvml::start(&Scenario::new().device(Device::a100().pcie(pcie)));
    let read = || nvml.field(nvml.device(0), abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0).unwrap();
    let mut last = read().1;
    let mut wraps = 0;
    wait_for("three wraps, 68 ms each", || {
        let (value_type, value) = read();
        assert!(value_type == abi::NVML_VALUE_TYPE_UNSIGNED_INT && value < 1 << 32);
        wraps += u32::from(value < last);
        last = value;
        wraps == 3
    });
}

#[test]
fn a_reset_counter_starts_again() {
    let pcie = |counter: Counter| Pcie { tx_bytes: counter.into(), ..Pcie::link(5, 16) };
    let scenario = |counter| Scenario::new().device(Device::a100().pcie(pcie(counter)));
    let nvml = Nvml::start(&scenario(Counter::growing(1_000).starting_at(1 << 40)));
    let read = || nvml.field(nvml.device(0), abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0).unwrap().1;
    assert!(read() >= 1 << 40);
    nvml.installed.play(&scenario(Counter::growing(1_000))).unwrap();
    wait_for("the reset", || read() < 1 << 20);
}

#[test]
fn a_busy_process_has_a_new_sample_once_a_period_and_none_in_between() {
    let load = Load::all(40, 30, 20, 10);
    let device = Device::a100().process(Process::compute(77, 0).sampled_every(200, vec![load]));
    let nvml = Nvml::start(&Scenario::new().device(device));
    let device = nvml.device(0);
    let mut rows = [nvmlProcessUtilizationSample_t::default(); 8];
    let mut seen = Vec::new();
    let mut unchanged = 0;
    wait_for("three samples", || {
        let last = seen.last().copied().unwrap_or_default();
        match nvml.utilization(device, &mut rows, last) {
            (Code::SUCCESS, 1) => seen.push(rows[0].timeStamp),
            (Code::NOT_FOUND, _) => unchanged += 1,
            other => panic!("{other:?}"),
        }
        seen.len() == 4
    });
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1] && pair[1] % 200_000 == 0) && unchanged > 3, "{seen:?} {unchanged}");
    assert!(seen[3] <= realtime_us() && seen[3] % 200_000 == 0);
    assert_eq!((rows[0].pid, rows[0].smUtil, rows[0].memUtil, rows[0].encUtil, rows[0].decUtil), (77, 40, 30, 20, 10));
}
