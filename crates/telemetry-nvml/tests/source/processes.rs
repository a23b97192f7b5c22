//! Process lists.

use std::time::Duration;

use nvml_sim::scenario::{Code, Device, Growth, List, MigInstance, Process, Scenario};
use telemetry::Answer;

use crate::machine::{Gpu, Machine, one};

const LISTS: [&str; 3] = ["compute processes", "graphics processes", "mps processes"];

fn read_lists(gpu: &mut Gpu) -> Vec<(u32, Option<u64>, Option<u8>)> {
    LISTS.iter().for_each(|list| {
        gpu.ask(list);
    });
    gpu.processes()
}

#[test]
fn three_lists_are_one_with_the_maximum_of_memory() {
    let board = Device::h100()
        .process(Process::compute(10, 100))
        .process(Process::compute(11, 500))
        .process(Process::graphics(11, 700))
        .process(Process::graphics(12, 30))
        .process(Process::mps(11, 600))
        .process(Process::mps(13, 7))
        .process(Process::compute(14, 0).memory_not_available())
        .process(Process::graphics(14, 9))
        .process(Process::compute(15, 0).memory_not_available());
    let (_machine, mut gpu) = one(board);
    let expected = [(10, Some(100)), (11, Some(700)), (12, Some(30)), (13, Some(7)), (14, Some(9)), (15, None)];
    assert_eq!(read_lists(&mut gpu), expected.map(|(pid, memory)| (pid, memory, None)));
}

#[test]
fn what_is_no_process_is_left_out() {
    let (_machine, mut gpu) =
        one(Device::h100().process(Process::compute(0, 1)).process(Process::compute(u32::MAX, 1)).process(Process::compute(7, 1)));
    assert_eq!(read_lists(&mut gpu), [(7, Some(1), None)]);
}

fn forty() -> Vec<Process> {
    (0..40).map(|n| Process::compute(1_000 + n, u64::from(n) << 28)).collect()
}

fn as_read(processes: &[Process]) -> Vec<(u32, Option<u64>, Option<u8>)> {
    processes.iter().map(|process| (process.pid, process.used_memory, None)).collect()
}

#[test]
fn the_wide_rows_of_early_r535_are_recognised() {
    for count in [1, 2, 15, 16, 40] {
        let processes = forty()[..count].to_vec();
        let (machine, mut gpu) = one(Device::h100().processes(processes.clone()).wide_rows());
        assert_eq!(read_lists(&mut gpu), as_read(&processes), "{count}");
        assert_eq!(machine.stats().calls("nvmlDeviceGetComputeRunningProcesses_v3"), 1, "no count query");
    }
}

#[test]
fn a_list_longer_than_the_buffer_is_read_whole() {
    let processes: Vec<_> = (1..=700).map(|pid| Process::compute(pid, u64::from(pid))).collect();
    // The buffer stays grown, for the other GPUs that this thread asks too.
    for (board, calls) in [(Device::h100(), 3), (Device::h100().wide_rows(), 2)] {
        let (machine, mut gpu) = one(board.processes(processes.clone()));
        assert_eq!(read_lists(&mut gpu), as_read(&processes));
        assert_eq!(read_lists(&mut gpu), as_read(&processes));
        assert_eq!(machine.stats().calls("nvmlDeviceGetComputeRunningProcesses_v3"), calls);
    }
}

#[test]
fn a_list_that_grows_between_calls_is_asked_again() {
    let (_machine, mut gpu) = one(Device::h100().processes(forty()).list_growth(Growth { times: 3, by: 40 }));
    assert_eq!(read_lists(&mut gpu), as_read(&forty()));
}

#[test]
fn a_list_that_never_ends_growing_is_given_up_for_this_time_and_the_last_one_stands_for_a_while() {
    let (machine, mut gpu) = one(Device::h100().processes(forty()));
    read_lists(&mut gpu);
    machine.play(&Scenario::new().device(Device::h100().processes(forty()).list_growth(Growth { times: 1_000_000, by: 1 })));
    let before = machine.stats();
    assert_eq!(gpu.ask("compute processes"), Answer::Answered);
    assert_eq!(machine.stats().since(&before).calls("nvmlDeviceGetComputeRunningProcesses_v3"), 4);
    assert_eq!(gpu.processes(), as_read(&forty()));
    gpu.later(Duration::from_secs(3));
    gpu.ask("compute processes");
    assert_eq!(gpu.processes(), []);
}

#[test]
fn older_versions_of_the_lists_are_read() {
    const V3: [&str; 3] = [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    ];
    const V2: [&str; 3] = [
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    ];
    let mut processes = forty();
    processes[3].lists = vec![List::Graphics, List::Mps];
    let scenario = Scenario::new().device(Device::h100().processes(processes.clone()));
    let both = [V3, V2].concat();
    for (hidden, called) in [(&V3[..], V2[0]), (&both, "nvmlDeviceGetComputeRunningProcesses")] {
        let machine = Machine::without(hidden, &scenario);
        let mut gpu = machine.gpu(0);
        assert_eq!(read_lists(&mut gpu), as_read(&processes));
        assert_eq!(read_lists(&mut gpu), as_read(&processes));
        assert_eq!(machine.stats().calls(called), 2);
    }
}

#[test]
fn a_list_that_is_not_supported_is_asked_once_and_the_others_are_read() {
    let board = Device::h100().process(Process::compute(7, 1)).fails("nvmlDeviceGetGraphicsRunningProcesses_v3", Code::NOT_SUPPORTED);
    let (machine, mut gpu) = one(board);
    assert_eq!(gpu.ask("graphics processes"), Answer::NotSupported);
    assert_eq!(gpu.ask("graphics processes"), Answer::NotSupported);
    assert_eq!(machine.stats().calls("nvmlDeviceGetGraphicsRunningProcesses_v3"), 1);
    assert_eq!(read_lists(&mut gpu), [(7, Some(1), None)]);
}

#[test]
fn a_process_that_left_is_gone_at_the_next_reading() {
    let (machine, mut gpu) = one(Device::h100().process(Process::compute(7, 1)).process(Process::compute(8, 2)));
    read_lists(&mut gpu);
    machine.play(&Scenario::new().device(Device::h100().process(Process::compute(8, 2))));
    gpu.read("compute processes");
    assert_eq!(gpu.processes(), [(8, Some(2), None)]);
}

#[test]
fn an_empty_list_of_graphics_or_mps_is_read_less_often() {
    let (machine, mut gpu) = one(Device::h100());
    read_lists(&mut gpu);
    let periods = |gpu: &Gpu| LISTS.map(|list| gpu.period(list).as_millis());
    assert_eq!(periods(&gpu), [0, 500, 500]);
    machine.play(&Scenario::new().device(Device::h100().process(Process::mps(9, 1)).process(Process::graphics(10, 1))));
    read_lists(&mut gpu);
    assert_eq!(periods(&gpu), [0, 0, 0]);
}

fn instance(index: u32, gpu_instance: u32) -> MigInstance {
    MigInstance { index, gpu_instance, ..MigInstance::default() }
}

fn mig() -> Device {
    Device::a100()
        .with_mig(vec![instance(0, 1), instance(2, 5)])
        .process(Process::compute(7, 100).in_instance(1, 0))
        .process(Process::compute(7, 30).in_instance(5, 0))
        .process(Process::compute(8, 4).in_instance(5, 0))
}

const IN_INSTANCES: [(u32, Option<u64>, Option<u8>); 3] = [(7, Some(100), Some(1)), (7, Some(30), Some(5)), (8, Some(4), Some(5))];

#[test]
fn with_mig_each_instance_of_a_process_is_a_row() {
    let (_machine, mut gpu) = one(mig());
    assert_eq!(read_lists(&mut gpu), IN_INSTANCES);
}

#[test]
fn where_the_mig_parent_refuses_the_instances_are_asked() {
    for code in [Code::NO_PERMISSION, Code::NOT_SUPPORTED] {
        let (machine, mut gpu) = one(mig().lists_answer(code));
        for _ in 0..3 {
            assert_eq!(read_lists(&mut gpu), IN_INSTANCES, "{code:?}");
        }
        // The parent once, the two instances three times.
        assert_eq!(machine.stats().calls("nvmlDeviceGetComputeRunningProcesses_v3"), 7, "{code:?}");
        assert_eq!(machine.stats().calls("nvmlDeviceGetMaxMigDeviceCount"), 1, "{code:?}");
    }
}

#[test]
fn a_mig_layout_that_changes_is_followed() {
    let (machine, mut gpu) = one(mig().lists_answer(Code::NO_PERMISSION));
    read_lists(&mut gpu);
    let moved = Device::a100().with_mig(vec![instance(1, 3)]).process(Process::compute(9, 6).in_instance(3, 0));
    machine.play(&Scenario::new().device(moved.lists_answer(Code::NO_PERMISSION)));
    gpu.later(Duration::from_secs(6));
    assert_eq!(read_lists(&mut gpu), [(9, Some(6), Some(3))]);
}

#[test]
fn old_list_versions_on_mig_devices_still_name_the_instance() {
    let hidden = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"];
    let machine = Machine::without(&hidden, &Scenario::new().device(mig().lists_answer(Code::NO_PERMISSION)));
    assert_eq!(read_lists(&mut machine.gpu(0)), IN_INSTANCES);
}

#[test]
fn without_permission_and_without_mig_there_is_no_process_and_no_error() {
    let (_machine, mut gpu) = one(Device::t4().process(Process::compute(7, 1)).lists_answer(Code::NO_PERMISSION));
    assert_eq!(gpu.ask("compute processes"), Answer::Answered);
    assert_eq!(gpu.processes(), []);
}
