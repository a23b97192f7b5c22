//! Each kind of board, from the driver's answers to the maps.

use gpu_types::GpuDeviceMetrics;
use map_reader::Reader;
use nvml_sim::scenario::behaviours::{self, BUSY, PID, USED};
use nvml_sim::scenario::{Answer, Board, Code, Device, MigInstance, Process, Scenario};
use nvml_sim::symbols::ABSENT_IN_470;

use crate::machine::Machine;

fn value<T: Copy + Default>(answer: &Answer<T>) -> T {
    answer.get().copied().unwrap_or_default()
}

/// The record of a board: its profile, with 0 for what it does not report.
fn record(board: &Device) -> GpuDeviceMetrics {
    let (utilization, memory, ecc) = (value(&board.utilization), value(&board.memory), value(&board.ecc));
    let links = board.nvlinks.get().map(|links| links.links.clone()).unwrap_or_default();
    let counted = |bytes_per_s: u64| bytes_per_s / 1_000;
    GpuDeviceMetrics {
        sm_util_pct: utilization.gpu,
        mem_util_pct: utilization.memory,
        mem_total: memory.total,
        mem_used: memory.used,
        mem_reserved: memory.reserved,
        temp_c: value(&board.temperature_c).unsigned_abs(),
        power_mw: value(&board.power_mw),
        sm_clock_mhz: value(&board.clocks.sm),
        mem_clock_mhz: value(&board.clocks.mem),
        throttle_reasons: value(&board.event_reasons),
        pcie_tx_kbps: value(&board.pcie.tx_kbps).into(),
        pcie_rx_kbps: value(&board.pcie.rx_kbps).into(),
        enc_util_pct: value(&board.encoder),
        dec_util_pct: value(&board.decoder),
        nvlink_tx_kbps: links.iter().map(|link| counted(link.tx.bytes_per_s)).sum(),
        nvlink_rx_kbps: links.iter().map(|link| counted(link.rx.bytes_per_s)).sum(),
        ecc_corrected_total: ecc.corrected,
        ecc_uncorrected_total: ecc.uncorrected,
        fan_speed_pct: board.fans.first().copied().unwrap_or(0),
        compute_mode: value(&board.compute_mode),
        ..GpuDeviceMetrics::default()
    }
}

/// Whether what was read is what was expected; a rate over real time within a fifth.
fn agrees(read: &GpuDeviceMetrics, expected: &GpuDeviceMetrics) -> bool {
    let rates = |record: &GpuDeviceMetrics| [record.pcie_tx_kbps, record.pcie_rx_kbps, record.nvlink_tx_kbps, record.nvlink_rx_kbps];
    let near = rates(read).iter().zip(rates(expected)).all(|(read, expected)| read.abs_diff(expected) <= expected / 5);
    let [pcie_tx_kbps, pcie_rx_kbps, nvlink_tx_kbps, nvlink_rx_kbps] = rates(expected);
    let aside = GpuDeviceMetrics { timestamp_ns: 0, pcie_tx_kbps, pcie_rx_kbps, nvlink_tx_kbps, nvlink_rx_kbps, ..*read };
    read.timestamp_ns > 0 && near && aside == *expected
}

/// So many boards, each with a process of its own.
fn machine(board: &Device, count: u32) -> Scenario {
    let gpus = (0..count).map(|index| board.clone().process(Process::compute(PID + index, USED).busy(BUSY)));
    gpus.fold(Scenario::new(), Scenario::device)
}

#[track_caller]
fn check_machine(scenario: Scenario, hidden: &[&str], expected: &[GpuDeviceMetrics], sm_pct: u32) {
    let (mut machine, reader) = Machine::start(scenario, hidden);
    let devices: Vec<u32> = (0..).take(expected.len()).collect();
    let all = |reader: &Reader| devices.iter().map(|index| reader.device(*index).unwrap().unwrap_or_default()).collect::<Vec<_>>();
    let found = e2e::until(e2e::WAIT, || {
        let read = all(&reader);
        read.iter().zip(expected).all(|(read, expected)| agrees(read, expected)).then_some(())
    });
    assert!(found.is_some(), "expected {expected:#?}, found {:#?}; the bridge logged:\n{}", all(&reader), machine.bridge.log());
    for (index, device) in devices.iter().zip(0_u8..) {
        let process = machine.bridge.wait_for("a process with its utilization", || {
            reader.process(PID + index).unwrap().filter(|process| process.sm_util_pct_max == sm_pct)
        });
        assert_eq!((process.used_gpu_memory_total, process.gpu_device_primary, process.device_count), (USED, device, 1));
    }
    assert_eq!(reader.meta().unwrap().n_devices as usize, expected.len());
}

#[track_caller]
fn check(board: impl Into<Device>, count: u32) {
    let board = board.into().at_work();
    check_machine(machine(&board, count), &[], &vec![record(&board); count as usize], BUSY.sm);
}

#[test]
fn eight_a100_with_nvlink() {
    check(Board::A100, 8);
}

#[test]
fn eight_a100_with_mig() {
    let instance = MigInstance { gpu_instance: 3, ..MigInstance::default() };
    let board = Device::from(Board::A100).at_work().with_mig(vec![instance]);
    let gpus = (0..8).map(|index| board.clone().process(Process::compute(PID + index, USED).busy(BUSY).in_instance(3, 0)));
    let scenario = gpus.fold(Scenario::new(), Scenario::device);
    // With MIG enabled there is no utilization, of the GPU or of a process.
    check_machine(scenario, &[], &[record(&board); 8], 0);
}

#[test]
fn h100_b200_and_gb200() {
    check(Board::H100, 2);
    check(Board::B200, 2);
    check(Board::Gb200, 1);
}

#[test]
fn boards_without_nvlink() {
    check(Board::L40s, 1);
    check(Board::T4, 2);
}

#[test]
fn integrated_memory_and_a_laptop() {
    check(Board::Gb10, 1);
    check(Board::Laptop4090, 1);
}

#[test]
fn a_driver_of_version_470() {
    let board = Device::from(Board::A100).at_work();
    // Its memory call counts what is reserved among what is used.
    let told = record(&board);
    let told = GpuDeviceMetrics { mem_used: told.mem_used + told.mem_reserved, mem_reserved: 0, ..told };
    check_machine(machine(&board, 2).driver_470(), ABSENT_IN_470, &[told; 2], BUSY.sm);
}

#[test]
fn an_early_r535_with_forty_processes() {
    let behaviour = behaviours::an_early_r535_writes_wide_rows();
    let (mut machine, reader) = Machine::start(behaviour.scenario, behaviour.hidden);
    let processes = machine.bridge.wait_for("forty processes", || {
        let processes = reader.snapshot().processes.unwrap();
        (processes.len() == 40).then_some(processes)
    });
    for (pid, process) in processes {
        assert_eq!(process.used_gpu_memory_total, u64::from(pid - 1_000) << 20, "{pid}");
    }
}

#[test]
fn a_gpu_whose_calls_hang_holds_up_no_other() {
    let behaviour = behaviours::a_gpu_hangs();
    let (mut machine, reader) = Machine::start(behaviour.scenario, behaviour.hidden);
    let temperature = machine.bridge.wait_for("the other GPU", || reader.device(1).unwrap());
    assert_eq!((temperature.temp_c, reader.device(0).unwrap()), (40, None));
    let stamp = reader.meta().unwrap().last_update_boottime_ns;
    machine.bridge.wait_for("rounds", || (reader.meta().unwrap().last_update_boottime_ns > stamp + 500_000_000).then_some(()));
}

#[test]
fn a_gpu_without_handle_at_start_holds_up_no_other_and_comes_later() {
    let scenario = machine(&Device::from(Board::L40s).at_work(), 2);
    let mut bad = scenario.clone();
    bad.change(1, |device| device.fails("nvmlDeviceGetHandleByIndex*", Code::RESET_REQUIRED));
    let (mut machine, reader) = Machine::start(bad, &[]);
    machine.bridge.wait_for("the GPU that is there", || reader.device(0).unwrap());
    assert_eq!((reader.meta().unwrap().n_devices, reader.device(1).unwrap()), (1, None));
    machine.bridge.wait_for_log("device 1 does not answer: no handle: GPU requires a reset (16)");
    machine.change(1, |mut device| {
        device.faults.clear();
        device
    });
    let found = machine.bridge.wait_for("the GPU that came", || reader.device(1).unwrap().filter(|device| device.sm_util_pct == 71));
    assert_eq!(found.temp_c, 66);
    machine.bridge.wait_for("its process", || reader.process(PID + 1).unwrap());
    machine.bridge.wait_for_log("answers again");
    machine.bridge.wait_for("its name", || {
        let state = reader.state().unwrap();
        state.device(1).filter(|device| device.name().contains("L40S") && device.uuid().starts_with("GPU-")).map(|_| ())
    });
    machine.bridge.wait_for_log("device 1 is NVIDIA L40S GPU-");
    let log = machine.bridge.log();
    assert_eq!(log.lines().filter(|line| line.contains("does not answer") || line.contains("answers again")).count(), 2, "{log}");
}
