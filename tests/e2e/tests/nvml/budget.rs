//! What the bridge costs a driver whose calls cost what was published, by the simulator's own account.
//!
//! The calls are counted and multiplied by their nominal costs, because a busy machine stretches the time that a simulated call really takes;
//! what they really took is looked at with a wide margin.

use std::thread;
use std::time::{Duration, Instant};

use e2e::until;
use map_reader::Reader;
use nvml_sim::scenario::{Board, CostMode, Costs, Device, Load, Process, Scenario};
use nvml_sim::stats::Stats;

use crate::machine::Machine;

/// Of each GPU-second.
const BUDGET: f64 = 0.010;
/// The first answers are no part of the budget: what a GPU does not report is found out, and each cost is learned by asking three times.
const LEARNING: Duration = Duration::from_secs(6);
/// Three of the rarest of the dear calls.
const WINDOW: Duration = Duration::from_secs(16);
/// The dearest call, one of which more or less falls into a window.
const DEAREST: Duration = Duration::from_millis(21);

/// Sixteen GPUs with four processes each: with everything that is dear on one or the other of them.
fn machine(mode: CostMode) -> Scenario {
    let boards = [Board::H100, Board::T4, Board::Laptop4090, Board::A100].map(Device::from);
    let each_link = |mut board: Device| {
        if let nvml_sim::scenario::Answer::Value(links) = &mut board.nvlinks {
            links.all_links = false;
        }
        board
    };
    let gpus = (0..16_u32).map(|index| {
        let board = boards[index as usize % 4].clone().at_work();
        // Where all links cannot be asked together, each costs as much.
        let board = if index == 3 { each_link(board) } else { board };
        let processes = (0..4).map(|n| Process::compute(100_000 + index * 10 + n, 1 << 30).busy(Load::new(20, 5)));
        let mut board = processes.fold(board, Device::process);
        if index % 4 == 2 {
            // Not an empty list, which would be asked for less often anyway.
            board = board.process(Process::graphics(100_000 + index * 10 + 4, 1 << 20));
        }
        board
    });
    gpus.fold(Scenario::new(), Scenario::device).costs(Costs::published(mode))
}

/// Rounds published in two seconds.
fn rounds(reader: &Reader) -> usize {
    let stamp = || reader.meta().unwrap().last_update_boottime_ns;
    let (mut last, mut rounds) = (stamp(), 0);
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
        let now = stamp();
        rounds += usize::from(now != last);
        last = now;
    }
    rounds
}

/// What a window cost, and how long it was.
fn window(machine: &Machine) -> (Stats, f64) {
    let (before, start) = (machine.stats(), Instant::now());
    thread::sleep(WINDOW);
    let stats = machine.stats().since(&before);
    (stats, start.elapsed().as_secs_f64())
}

#[track_caller]
fn check(mode: CostMode) {
    let (mut machine, reader) = Machine::start(machine(mode), &[]);
    thread::sleep(LEARNING);
    let (stats, seconds) = window(&machine);
    let spent: Vec<_> = (0..16).map(|device| stats.nominal(&machine.scenario, device)).collect();
    for (device, spent) in spent.iter().enumerate() {
        let limit = Duration::from_secs_f64(BUDGET * seconds) + DEAREST;
        assert!(*spent <= limit, "{mode:?}: GPU {device} cost {spent:?} of {limit:?} in {seconds:.1} s: {stats:?}");
    }
    let total: Duration = spent.iter().sum();
    assert!(total.as_secs_f64() <= BUDGET * 16.0 * seconds, "{mode:?}: all GPUs together cost {total:?} in {seconds:.1} s");
    check_rates(mode, &stats, seconds);
    // What the calls really took: a busy machine stretches each, and the bridge makes fewer of them.
    let real: Duration = (0..16).map(|device| stats.device(device)).map(|count| count.time - count.waiting).sum();
    assert!(real.as_secs_f64() <= 2.0 * BUDGET * 16.0 * seconds, "{mode:?}: {real:?} in calls in {seconds:.1} s");
    // Of other work on this machine some windows may suffer, not all.
    let full = until(Duration::from_secs(60), || (rounds(&reader) >= 19).then_some(()));
    assert!(full.is_some(), "{mode:?}: not once 10 updates a second; the bridge logged:\n{}", machine.bridge.log());
    machine.bridge.wait_for("every GPU", || (reader.meta().unwrap().n_devices == 16).then_some(()));
}

/// What is cheap is asked often, what is dear as often as it may, all by measurement.
#[track_caller]
fn check_rates(mode: CostMode, stats: &Stats, seconds: f64) {
    let a_second = |call, device| stats.on(call, device).calls as f64 / seconds;
    for device in 0..16 {
        let utilization = a_second("nvmlDeviceGetProcessUtilization", device);
        assert!(utilization > 0.0 && utilization <= 1.6, "{mode:?}: GPU {device}: process utilization {utilization:.1} times a second");
        let memory = a_second("nvmlDeviceGetMemoryInfo_v2", device);
        assert!(memory <= 10.5, "{mode:?}: GPU {device}: memory {memory:.1} times a second");
        let graphics = a_second("nvmlDeviceGetGraphicsRunningProcesses_v3", device);
        if device % 4 == 2 {
            // 4.5 ms ÷ 0.4 % is 1.1 s.
            assert!(graphics > 0.0 && graphics <= 1.1, "{mode:?}: GPU {device}: a list of 4.5 ms {graphics:.1} times a second");
        }
        let throughput = a_second("nvmlDeviceGetPcieThroughput", device);
        // 21 ms ÷ 0.4 % is 5.25 s, of which three begin in a window, or four.
        let most = if device % 4 == 1 { 4.0 / WINDOW.as_secs_f64() } else { 0.0 };
        assert!(throughput <= most, "{mode:?}: GPU {device}: PCIe throughput {throughput:.2} times a second");
    }
}

#[test]
fn sixteen_gpus_of_sleeping_calls_cost_10_ms_a_second_each() {
    check(CostMode::Sleep);
}

#[test]
fn sixteen_gpus_of_spinning_calls_cost_10_ms_a_second_each() {
    check(CostMode::Spin);
}

#[test]
fn sixteen_gpus_under_one_lock_cost_10_ms_a_second_each() {
    check(CostMode::OneLock);
}
