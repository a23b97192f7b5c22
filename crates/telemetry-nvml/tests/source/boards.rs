//! What each board reports, and what it does not.

use std::time::Duration;

use nvml_sim::scenario::{Answer as Sim, Board, Device, Scenario};
use telemetry::{Answer, Memory, Metrics};

use crate::machine::Machine;

/// The names of the metrics that a board at work does not report.
fn absent(metrics: &Metrics) -> Vec<&'static str> {
    let Metrics { memory, mem_clock_mhz, pcie_tx_kbps, pcie_rx_kbps, nvlink_tx_kbps, nvlink_rx_kbps, fan_speed_pct, .. } = *metrics;
    let named = [
        ("sm_util", metrics.sm_util_pct.is_some()),
        ("mem_util", metrics.mem_util_pct.is_some()),
        ("memory", memory.is_some()),
        ("temp", metrics.temp_c.is_some()),
        ("power", metrics.power_mw.is_some()),
        ("sm_clock", metrics.sm_clock_mhz.is_some()),
        ("mem_clock", mem_clock_mhz.is_some()),
        ("throttle", metrics.throttle_reasons.is_some()),
        ("pcie", pcie_tx_kbps.is_some() && pcie_rx_kbps.is_some()),
        ("enc", metrics.enc_util_pct.is_some()),
        ("dec", metrics.dec_util_pct.is_some()),
        ("nvlink", nvlink_tx_kbps.is_some() && nvlink_rx_kbps.is_some()),
        ("ecc", metrics.ecc_corrected_total.is_some() && metrics.ecc_uncorrected_total.is_some()),
        ("fan", fan_speed_pct.is_some()),
        ("compute_mode", metrics.compute_mode.is_some()),
    ];
    named.into_iter().filter(|(_, is_there)| !is_there).map(|(name, _)| name).collect()
}

/// What a board's profile says, rates aside.
fn profile(board: &Device) -> Metrics {
    fn value<T: Copy>(answer: &Sim<T>) -> Option<T> {
        answer.get().ok().copied()
    }
    let ecc = value(&board.ecc).filter(|ecc| ecc.enabled);
    Metrics {
        sm_util_pct: value(&board.utilization).map(|rates| rates.gpu),
        mem_util_pct: value(&board.utilization).map(|rates| rates.memory),
        memory: value(&board.memory).map(|memory| Memory {
            total_bytes: memory.total,
            used_bytes: memory.used,
            reserved_bytes: memory.reserved,
        }),
        temp_c: value(&board.temperature_c).map(i32::unsigned_abs),
        power_mw: value(&board.power_mw),
        sm_clock_mhz: value(&board.clocks.sm),
        mem_clock_mhz: value(&board.clocks.mem),
        throttle_reasons: value(&board.event_reasons),
        enc_util_pct: value(&board.encoder),
        dec_util_pct: value(&board.decoder),
        ecc_corrected_total: ecc.map(|ecc| ecc.corrected),
        ecc_uncorrected_total: ecc.map(|ecc| ecc.uncorrected),
        fan_speed_pct: board.fans.first().copied(),
        compute_mode: value(&board.compute_mode),
        ..Metrics::default()
    }
}

#[test]
fn each_boards_figures_are_read_as_its_profile_says() {
    for board in Board::ALL {
        for device in [Device::from(*board), Device::from(*board).at_work()] {
            let machine = Machine::new(&Scenario::new().driver(board.driver_version()).device(device.clone()));
            let mut gpu = machine.gpu(0);
            gpu.ask_all();
            let read =
                Metrics { pcie_tx_kbps: None, pcie_rx_kbps: None, nvlink_tx_kbps: None, nvlink_rx_kbps: None, ..gpu.reading.metrics };
            assert_eq!(read, profile(&device), "{board:?}");
        }
    }
}

#[track_caller]
fn check(board: impl Into<Device>, driver: &str, expected: &[&str]) {
    let board = board.into();
    let machine = Machine::new(&Scenario::new().driver(driver).device(board.clone().at_work()));
    let mut gpu = machine.gpu(0);
    let first = gpu.ask_all();
    // Rates take two readings.
    gpu.now_is_now();
    gpu.later(Duration::from_millis(500));
    gpu.ask("pcie counters");
    gpu.ask("nvlink");
    assert_eq!(absent(&gpu.reading.metrics), expected, "{board:?}");
    // What is not supported is not asked again: a second round makes no call that only it would make.
    let before = machine.stats();
    let unsupported: Vec<_> = first.into_iter().filter(|(_, answer)| *answer == Answer::NotSupported).collect();
    for (name, _) in unsupported {
        assert_eq!(gpu.ask(name), Answer::NotSupported, "{name}");
    }
    let made = machine.stats().since(&before);
    // Made on a thread of its own, whenever that gets to it.
    assert_eq!(made.total().calls - made.calls("nvmlDeviceGetPcieThroughput"), 0, "{made:?}");
}

#[test]
fn each_board_reports_what_it_has() {
    // The PCIe figures of a T4 come from the dear call, which is not awaited here.
    let boards: [(Board, &[&str]); 9] = [
        (Board::A100, &["fan"]),
        (Board::H100, &["fan"]),
        (Board::B200, &["fan"]),
        (Board::Gb200, &["fan"]),
        (Board::Gb300, &["fan"]),
        (Board::L40s, &["nvlink", "fan"]),
        (Board::T4, &["pcie", "nvlink", "fan"]),
        (Board::Gb10, &["memory", "mem_clock", "nvlink", "ecc", "fan"]),
        (Board::Laptop4090, &["nvlink", "ecc", "fan"]),
    ];
    assert_eq!(boards.map(|(board, _)| board), Board::ALL);
    for (board, expected) in boards {
        check(board, board.driver_version(), expected);
    }
}

#[test]
fn with_mig_the_parent_has_no_utilization() {
    let expected = ["sm_util", "mem_util", "enc", "dec", "fan"];
    check(Device::from(Board::A100).with_mig(Vec::new()), Board::A100.driver_version(), &expected);
}
