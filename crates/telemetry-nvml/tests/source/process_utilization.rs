//! The driver's samples of processes.

use std::time::Duration;

use nvml_sim::scenario::{Code, Device, Growth, Load, Process, ProcessUtilization, RawRow, Sample, Scenario};
use telemetry::{Answer, ProcessUtilization as Utilization, Stamp};

use crate::machine::{Gpu, Machine, one};

const PROBE: &str = "process utilization";
const SECOND: Duration = Duration::from_secs(1);

fn all_at(load: Load, at_us: u64, gpu: &Gpu) -> Utilization {
    Utilization {
        sampled: Stamp { realtime_ns: at_us * 1_000, clock_offset_ns: gpu.now.clock_offset_ns },
        sm_pct: load.sm,
        mem_pct: load.mem,
        enc_pct: load.enc,
        dec_pct: load.dec,
    }
}

fn with_samples(samples: &[(u64, Load)]) -> Process {
    Process::compute(7, 1).sampled_at(samples.iter().map(|(at_us, load)| Sample::new(*at_us, *load)).collect())
}

/// An open device with one listed process, PID 7, whose samples are made with the time that it believes to be now, in µs.
fn sampled(samples: impl FnOnce(u64) -> Vec<(u64, Load)>) -> (Machine, Gpu) {
    let (machine, mut gpu) = one(Device::h100());
    machine.play(&Scenario::new().device(Device::h100().process(with_samples(&samples(gpu.now_us())))));
    gpu.read("compute processes");
    (machine, gpu)
}

const BUSY: Load = Load::all(71, 53, 21, 17);

#[test]
fn a_sample_is_read_with_its_own_time_and_in_one_call() {
    let (machine, mut gpu) = sampled(|now| vec![(now - 250_000, BUSY)]);
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, Some(all_at(BUSY, gpu.now_us() - 250_000, &gpu)));
    assert_eq!(machine.stats().calls("nvmlDeviceGetProcessUtilization"), 1);
    assert_eq!(machine.stats().calls("nvmlDeviceGetProcessesUtilizationInfo"), 0);
}

#[test]
fn between_samples_a_busy_process_does_not_flicker() {
    let (machine, mut gpu) = sampled(|now| vec![(now - 250_000, BUSY)]);
    let expected = Some(all_at(BUSY, gpu.now_us() - 250_000, &gpu));
    for _ in 0..10 {
        gpu.read(PROBE);
        gpu.read("compute processes");
        assert_eq!(gpu.process(7).utilization, expected);
        gpu.later(Duration::from_millis(100));
    }
    assert_eq!(machine.stats().of("nvmlDeviceGetProcessUtilization").failures, 9, "nothing newer, nine times");
}

#[test]
fn an_old_sample_at_the_first_reading_keeps_its_old_time() {
    let (_machine, mut gpu) = sampled(|now| vec![(now - 15_000_000, BUSY)]);
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, Some(all_at(BUSY, gpu.now_us() - 15_000_000, &gpu)));
}

#[test]
fn several_samples_are_their_maximum_at_the_newest_time() {
    let (machine, mut gpu) = sampled(|now| vec![(now - 900_000, BUSY)]);
    gpu.read(PROBE);
    let now = gpu.now_us();
    let samples = [(now - 900_000, BUSY), (now - 500_000, Load::all(10, 90, 1, 2)), (now - 100_000, Load::all(40, 20, 3, 0))];
    let every = ProcessUtilization { every_sample: true, ..ProcessUtilization::default() };
    machine.play(&Scenario::new().device(Device::h100().process(with_samples(&samples)).process_utilization(every)));
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, Some(all_at(Load::all(40, 90, 3, 2), now - 100_000, &gpu)));
}

#[test]
fn garbage_is_not_believed_and_does_not_move_the_cursor() {
    let (machine, mut gpu) = sampled(|_| Vec::new());
    let now = gpu.now_us();
    let raw = |pid, at_us, sm| RawRow { pid, sample: Sample::new(at_us, Load::new(sm, 0)) };
    let raw_rows = vec![
        raw(7, now - 1, 37_100),
        raw(0, now - 1, 50),
        raw(u32::MAX, now - 1, 50),
        raw(7, 0, 50),
        raw(7, 12_345, 50),
        raw(7, now + 3_600_000_000, 50),
        raw(7, u64::MAX, 50),
    ];
    let garbage = ProcessUtilization { raw_rows, ..ProcessUtilization::default() };
    let board = |samples: &[(u64, Load)]| Device::h100().process(with_samples(samples)).process_utilization(garbage.clone());
    machine.play(&Scenario::new().device(board(&[])));
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, None);
    // Older than what the garbage claimed.
    machine.play(&Scenario::new().device(board(&[(now - 400_000, BUSY)])));
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, Some(all_at(BUSY, now - 400_000, &gpu)));
}

#[test]
fn the_newer_call_serves_where_the_older_is_missing_or_not_supported() {
    let (machine, mut gpu) = sampled(|now| vec![(now - 250_000, BUSY)]);
    let at_us = gpu.now_us() - 250_000;
    let board = Device::h100().process(with_samples(&[(at_us, BUSY)]));
    machine.play(&Scenario::new().device(board.clone().fails("nvmlDeviceGetProcessUtilization", Code::NOT_SUPPORTED)));
    for _ in 0..3 {
        gpu.read(PROBE);
        assert_eq!(gpu.process(7).utilization, Some(all_at(BUSY, at_us, &gpu)));
    }
    assert_eq!(machine.stats().calls("nvmlDeviceGetProcessUtilization"), 1);
    assert_eq!(machine.stats().calls("nvmlDeviceGetProcessesUtilizationInfo"), 3);

    let machine = Machine::without(&["nvmlDeviceGetProcessUtilization"], &Scenario::new().device(board));
    let mut gpu = machine.gpu(0);
    gpu.read("compute processes");
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, Some(all_at(BUSY, at_us, &gpu)));
}

#[test]
fn without_either_call_only_memory_is_known() {
    let board = Device::h100().process(Process::compute(7, 5).busy(BUSY)).process_utilization(nvml_sim::scenario::Answer::NOT_SUPPORTED);
    let (machine, mut gpu) = one(board);
    gpu.read("compute processes");
    assert_eq!(gpu.ask(PROBE), Answer::NotSupported);
    assert_eq!(gpu.ask(PROBE), Answer::NotSupported);
    assert_eq!(machine.stats().calls("nvmlDeviceGetProcessUtilization"), 1);
    assert_eq!((gpu.process(7).used_memory_bytes, gpu.process(7).utilization), (Some(5), None));
}

#[test]
fn more_samples_than_the_buffer_holds_are_read_whole() {
    let processes: Vec<_> = (1..=600).map(|pid| Process::compute(pid, 1).busy(BUSY)).collect();
    for hidden in [&[][..], &["nvmlDeviceGetProcessUtilization"]] {
        let mut gpu = Machine::without(hidden, &Scenario::new().device(Device::h100().processes(processes.clone()))).gpu(0);
        gpu.read("compute processes");
        gpu.read(PROBE);
        assert_eq!(gpu.reading.processes.iter().filter(|process| process.utilization.is_some()).count(), 600);
    }
}

#[test]
fn samples_that_grow_between_calls_are_asked_for_again_within_bounds() {
    let board = |times| Device::h100().process(Process::compute(7, 1).busy(BUSY)).process_utilization_growth(Growth { times, by: 10 });
    let (_machine, mut gpu) = one(board(3));
    gpu.read("compute processes");
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization.map(|used| used.sm_pct), Some(71));
    let (machine, mut gpu) = one(board(1_000_000));
    gpu.read("compute processes");
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, None);
    assert_eq!(machine.stats().calls("nvmlDeviceGetProcessUtilization"), 4);
}

#[test]
fn a_sample_is_joined_only_to_a_process_that_a_list_names() {
    let stray = Process::compute(8, 1).in_lists(&[]).busy(BUSY);
    let (_machine, mut gpu) = one(Device::h100().process(Process::compute(7, 1).busy(BUSY)).process(stray));
    gpu.read("compute processes");
    gpu.read(PROBE);
    assert_eq!(gpu.processes(), [(7, Some(1), None)]);
}

#[test]
fn where_no_list_can_be_read_samples_make_processes_for_ten_seconds() {
    let (machine, mut gpu) = one(Device::h100());
    let at_us = gpu.now_us() - 100_000;
    machine.play(&Scenario::new().device(Device::h100().process(with_samples(&[(at_us, BUSY)])).lists_answer(Code::NOT_SUPPORTED)));
    for list in ["compute processes", "graphics processes", "mps processes"] {
        assert_eq!(gpu.ask(list), Answer::NotSupported);
    }
    gpu.read(PROBE);
    assert_eq!(gpu.processes(), [(7, None, None)]);
    assert_eq!(gpu.process(7).utilization, Some(all_at(BUSY, at_us, &gpu)));
    gpu.read_after(SECOND * 11, PROBE);
    assert_eq!(gpu.processes(), []);
}

#[test]
fn a_new_process_with_the_pid_of_one_that_left_has_no_sample_yet() {
    let (machine, mut gpu) = sampled(|now| vec![(now - 250_000, BUSY)]);
    gpu.read(PROBE);
    machine.play(&Scenario::new().device(Device::h100()));
    gpu.read("compute processes");
    machine.play(&Scenario::new().device(Device::h100().process(Process::compute(7, 3))));
    gpu.read("compute processes");
    assert_eq!((gpu.process(7).used_memory_bytes, gpu.process(7).utilization), (Some(3), None));
}

#[test]
fn the_drivers_rhythm_is_learned_and_followed() {
    let (machine, mut gpu) = sampled(|_| Vec::new());
    gpu.read(PROBE);
    assert_eq!(gpu.reading.process_sample_period, None);
    for _ in 0..4 {
        gpu.later(SECOND);
        let at_us = gpu.now_us() - 300_000;
        machine.play(&Scenario::new().device(Device::h100().process(with_samples(&[(at_us, BUSY)]))));
        gpu.read(PROBE);
    }
    assert_eq!(gpu.reading.process_sample_period, Some(SECOND));
    assert_eq!(gpu.period(PROBE), Duration::from_millis(700), "the next one can exist then");
    gpu.read(PROBE);
    assert_eq!(gpu.period(PROBE), Duration::from_millis(250), "asked in vain: soon again");
}

#[test]
fn while_nobody_is_listed_the_dear_call_is_not_due() {
    let (machine, mut gpu) = one(Device::h100());
    gpu.read("compute processes");
    assert!(gpu.period(PROBE) > Duration::from_secs(60));
    machine.play(&Scenario::new().device(Device::h100().process(Process::compute(7, 1))));
    gpu.read("compute processes");
    assert!(gpu.period(PROBE) <= SECOND);
}

#[test]
fn a_step_of_the_wall_clock_back_does_not_blind() {
    let (machine, mut gpu) = one(Device::h100());
    let true_offset = gpu.now.clock_offset_ns;
    gpu.now.clock_offset_ns += 3_600_000_000_000;
    let before_us = gpu.now_us() - 100_000;
    machine.play(&Scenario::new().device(Device::h100().process(with_samples(&[(before_us, BUSY)]))));
    gpu.read("compute processes");
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization.map(|used| used.sm_pct), Some(71));
    gpu.now.clock_offset_ns = true_offset;
    gpu.later(SECOND);
    let after_us = gpu.now_us() - 200_000;
    machine.play(&Scenario::new().device(Device::h100().process(with_samples(&[(after_us, Load::new(5, 1))]))));
    gpu.read(PROBE);
    assert_eq!(gpu.process(7).utilization, Some(all_at(Load::new(5, 1), after_us, &gpu)));
}
