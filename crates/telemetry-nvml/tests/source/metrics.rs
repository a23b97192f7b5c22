//! Metrics of one value each.

use nvml_sim::scenario::{Answer as Sim, Board, Code, Device, Ecc, Scenario};
use telemetry::{Answer, Memory, Metrics};

use crate::machine::{Machine, one};

const MIB: u64 = 1 << 20;
/// The probes whose metrics do not need two readings.
const SINGLE: [&str; 6] = ["utilization", "sensors", "memory", "fan", "ecc", "compute mode"];

#[track_caller]
fn check(board: impl Into<Device>, expected: &Metrics) {
    let (_machine, mut gpu) = one(board);
    SINGLE.iter().for_each(|name| {
        gpu.ask(name);
    });
    assert_eq!(gpu.reading.metrics, *expected);
}

/// An idle H100.
fn h100() -> Metrics {
    Metrics {
        sm_util_pct: Some(0),
        mem_util_pct: Some(0),
        memory: Some(Memory { total_bytes: 81_559 * MIB, used_bytes: 0, reserved_bytes: 480 * MIB }),
        temp_c: Some(29),
        power_mw: Some(68_920),
        sm_clock_mhz: Some(345),
        mem_clock_mhz: Some(2_619),
        throttle_reasons: Some(1),
        enc_util_pct: Some(0),
        dec_util_pct: Some(0),
        ecc_corrected_total: Some(0),
        ecc_uncorrected_total: Some(0),
        compute_mode: Some(0),
        ..Metrics::default()
    }
}

#[test]
fn an_idle_data_centre_board_reads_as_it_is() {
    check(Board::H100, &h100());
}

#[test]
fn a_board_at_work_reads_as_it_is() {
    let expected = Metrics {
        sm_util_pct: Some(71),
        mem_util_pct: Some(53),
        memory: Some(Memory { total_bytes: 81_559 * MIB, used_bytes: 81_559 * MIB / 3, reserved_bytes: 480 * MIB }),
        temp_c: Some(66),
        power_mw: Some(287_654),
        sm_clock_mhz: Some(1_980),
        mem_clock_mhz: Some(2_619),
        // The top bit has no name.
        throttle_reasons: Some(0x8000_0000_0000_0004),
        enc_util_pct: Some(21),
        dec_util_pct: Some(17),
        ecc_corrected_total: Some(12_345),
        ecc_uncorrected_total: Some(6),
        fan_speed_pct: Some(44),
        compute_mode: Some(3),
        ..Metrics::default()
    };
    check(Device::h100().at_work().fans(vec![44, 90]).compute_mode(3_u32), &expected);
}

#[test]
fn integrated_memory_takes_no_other_metric_along() {
    let (machine, mut gpu) = one(Board::Gb10);
    assert_eq!(gpu.ask("memory"), Answer::NotSupported);
    assert_eq!(gpu.ask("ecc"), Answer::NotSupported);
    let metrics = gpu.read("sensors").metrics;
    assert_eq!((metrics.memory, metrics.temp_c, metrics.sm_clock_mhz, metrics.mem_clock_mhz), (None, Some(41), Some(208), None));
    assert_eq!((machine.stats().calls("nvmlDeviceGetMemoryInfo_v2"), machine.stats().calls("nvmlDeviceGetMemoryInfo")), (1, 1));
}

#[test]
fn what_is_not_supported_is_asked_once() {
    let (machine, mut gpu) = one(Board::Gb10);
    for _ in 0..5 {
        gpu.ask("sensors");
        gpu.ask("fan");
        gpu.ask("ecc");
    }
    let stats = machine.stats();
    assert_eq!((stats.calls("nvmlDeviceGetFanSpeed"), stats.calls("nvmlDeviceGetTotalEccErrors")), (1, 2));
    assert_eq!(stats.calls("nvmlDeviceGetClockInfo"), 6, "the memory clock once, the SM clock five times");
    assert_eq!(stats.calls("nvmlDeviceGetTemperature"), 5);
}

#[test]
fn memory_falls_back_to_version_1_where_used_includes_what_is_reserved() {
    let scenario = Scenario::new().device(Device::default().memory(1_000, 300, 50));
    let expected = Some(Memory { total_bytes: 1_000, used_bytes: 350, reserved_bytes: 0 });
    let refused = scenario.clone().missing("nvmlDeviceGetMemoryInfo_v2");
    for (hidden, scenario) in [(&["nvmlDeviceGetMemoryInfo_v2"][..], scenario), (&[], refused)] {
        let mut gpu = Machine::without(hidden, &scenario).gpu(0);
        assert_eq!(gpu.read("memory").metrics.memory, expected);
        assert_eq!(gpu.read("memory").metrics.memory, expected);
    }
}

#[test]
fn what_is_not_available_is_absent_and_not_a_huge_number() {
    let board =
        Device::default().memory(80, u64::MAX, 0).power_mw(u32::MAX).ecc(Ecc { enabled: true, corrected: u64::MAX, uncorrected: 3 });
    let board = board.encoder(4_000_000_000_u32).temperature_c(50).fans(vec![u32::MAX]);
    check(board, &Metrics { temp_c: Some(50), ecc_uncorrected_total: Some(3), ..Metrics::default() });
}

#[test]
fn a_board_that_answers_zeros_for_memory_has_none() {
    check(Device::default().memory(0, 0, 0), &Metrics::default());
}

#[test]
fn event_reasons_fall_back_to_throttle_reasons() {
    let scenario = Scenario::new().device(Device::default().event_reasons(0x4000_0000_0000_0060_u64));
    let machine = Machine::without(&["nvmlDeviceGetCurrentClocksEventReasons"], &scenario);
    let mut gpu = machine.gpu(0);
    assert_eq!(gpu.read("sensors").metrics.throttle_reasons, Some(0x4000_0000_0000_0060));
    assert_eq!(machine.stats().calls("nvmlDeviceGetCurrentClocksThrottleReasons"), 1);
}

#[test]
fn a_fan_faster_than_nominal_is_at_100() {
    let (_machine, mut gpu) = one(Device::default().fans(vec![130]));
    assert_eq!(gpu.read("fan").metrics.fan_speed_pct, Some(100));
}

#[test]
fn a_temperature_call_that_is_gone_has_its_successor() {
    let scenario = Scenario::new().device(Device::default().temperature_c(61));
    let mut gpu = Machine::without(&["nvmlDeviceGetTemperature"], &scenario).gpu(0);
    assert_eq!(gpu.read("sensors").metrics.temp_c, Some(61));
}

#[test]
fn a_metric_that_fails_for_a_while_is_absent_for_a_while() {
    for code in (23..=30).chain([10, 11, 17, 20, 21, 77]).filter(|code| ![25, 26, 28].contains(code)) {
        let failing = Device { power_mw: Sim::error(nvml_sim::abi::nvmlReturn_t(code)), ..Device::h100() };
        let scenario = Scenario::new().device(failing);
        let machine = Machine::new(&scenario);
        let mut gpu = machine.gpu(0);
        let metrics = gpu.read("sensors").metrics;
        assert_eq!((metrics.power_mw, metrics.temp_c, metrics.sm_clock_mhz), (None, Some(29), Some(345)), "{code}");
        machine.play(&Scenario::new().device(Board::H100));
        assert_eq!(gpu.read("sensors").metrics.power_mw, Some(68_920), "{code}");
    }
}

#[test]
fn calls_that_fail_are_counted_and_those_that_are_not_there_are_not() {
    let failing = Device { power_mw: Sim::error(Code::TIMEOUT), temperature_c: Sim::error(Code::NOT_SUPPORTED), ..Device::h100() };
    let (_machine, mut gpu) = one(failing);
    for count in 1..=3 {
        let failures: Vec<_> = gpu.read("sensors").failures.iter().map(|failures| (failures.call.as_str(), failures.count)).collect();
        assert_eq!(failures, [("Power", count)]);
    }
    // A lane that begins a reading anew is told everything again.
    gpu.reading = telemetry::Reading::default();
    gpu.ask_all();
    assert_eq!(gpu.reading.failures.iter().map(|failures| failures.count).collect::<Vec<_>>(), [4]);
}

#[test]
fn with_ecc_off_there_are_no_counts() {
    let (machine, mut gpu) = one(Device::h100().ecc(Ecc { enabled: false, ..Ecc::default() }));
    assert_eq!(gpu.ask("ecc"), Answer::NotSupported);
    assert_eq!(gpu.ask("ecc"), Answer::NotSupported);
    assert_eq!(machine.stats().calls("nvmlDeviceGetTotalEccErrors"), 2);
    assert_eq!(gpu.reading.metrics.ecc_corrected_total, None);
}

#[test]
fn a_driver_with_only_its_oldest_calls_reads() {
    // What came with drivers 510 to 555.
    const NEW: &[&str] = &[
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetTemperatureV",
    ];
    let mut gpu = Machine::without(NEW, &Scenario::new().driver("470.82.01").device(Board::H100)).gpu(0);
    gpu.ask_all();
    let memory = Some(Memory { total_bytes: 81_559 * MIB, used_bytes: 480 * MIB, reserved_bytes: 0 });
    let read = Metrics { pcie_tx_kbps: None, pcie_rx_kbps: None, ..gpu.reading.metrics };
    assert_eq!(read, Metrics { memory, ..h100() });
}

#[test]
fn a_mode_that_no_header_names_is_read_as_it_is() {
    check(Device { compute_mode: 7.into(), ..Device::default() }, &Metrics { compute_mode: Some(7), ..Metrics::default() });
    let refused = Device { compute_mode: Sim::error(Code::DEPRECATED), ..Device::default() };
    check(refused, &Metrics::default());
}
