//! Lists of processes and their utilization.

use nvml_sim::{
    abi::{NO_INSTANCE, nvmlProcessDetail_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessUtilizationSample_t},
    scenario::{Code, Device, Growth, List, Load, Process, ProcessUtilization, Sample, Scenario},
};

use crate::nvml::Nvml;

const COMPUTE_V3: &str = "nvmlDeviceGetComputeRunningProcesses_v3";

fn with(processes: u32) -> Device {
    Device::a100().processes((1..=processes).map(|pid| Process::compute(pid, u64::from(pid) << 20)).collect::<Vec<_>>())
}

#[test]
fn a_count_query_says_how_many_and_a_fill_gives_them() {
    let nvml = Nvml::start(&Scenario::new().device(with(3)).device(with(0)));
    let device = nvml.device(0);
    assert_eq!(nvml.list::<u8>(COMPUTE_V3, device, &mut [], 0), (Code::INSUFFICIENT_SIZE, 3));
    assert_eq!(nvml.list::<u8>(COMPUTE_V3, nvml.device(1), &mut [], 0), (Code::SUCCESS, 0));
    let mut rows = [nvmlProcessInfo_v2_t::default(); 5];
    assert_eq!(nvml.list(COMPUTE_V3, device, &mut rows, 2), (Code::INSUFFICIENT_SIZE, 3));
    assert_eq!(rows[0].pid, 0);
    assert_eq!(nvml.list(COMPUTE_V3, device, &mut rows, 5), (Code::SUCCESS, 3));
    assert_eq!(rows.map(|row| row.pid), [1, 2, 3, 0, 0]);
    assert_eq!((rows[2].usedGpuMemory, rows[2].gpuInstanceId), (3 << 20, NO_INSTANCE));
    let mut rows = [nvmlProcessInfo_v1_t::default(); 3];
    assert_eq!(nvml.list("nvmlDeviceGetComputeRunningProcesses", device, &mut rows, 3), (Code::SUCCESS, 3));
    assert_eq!(rows.map(|row| row.usedGpuMemory), [1 << 20, 2 << 20, 3 << 20]);
}

#[test]
fn wide_rows_run_over_the_callers_array() {
    const ROWS: usize = 40;
    let nvml = Nvml::start(&Scenario::new().device(with(ROWS as u32).wide_rows()));
    let sentinel = nvmlProcessDetail_v1_t { pid: u32::MAX, usedGpuMemory: u64::MAX, ..nvmlProcessDetail_v1_t::default() };
    let mut rows = [sentinel; ROWS + 1];
    assert_eq!(nvml.list(COMPUTE_V3, nvml.device(0), &mut rows, ROWS as u32), (Code::SUCCESS, ROWS as u32));
    assert!((0..ROWS).all(|at| rows[at].pid == at as u32 + 1 && rows[at].usedGpuMemory == u64::from(rows[at].pid) << 20));
    assert_eq!(rows[ROWS].pid, u32::MAX);
    // The older version of the call is right.
    let mut rows = [nvmlProcessInfo_v2_t::default(); ROWS];
    nvml.list("nvmlDeviceGetComputeRunningProcesses_v2", nvml.device(0), &mut rows, ROWS as u32);
    assert_eq!(rows[ROWS - 1].pid, ROWS as u32);
}

#[test]
fn a_growing_list_asks_for_more_room_each_time() {
    let nvml = Nvml::start(&Scenario::new().device(with(2).list_growth(Growth { times: 2, by: 7 })));
    let device = nvml.device(0);
    let mut rows = [nvmlProcessInfo_v2_t::default(); 30];
    assert_eq!(nvml.list(COMPUTE_V3, device, &mut rows, 8), (Code::INSUFFICIENT_SIZE, 15));
    assert_eq!(nvml.list(COMPUTE_V3, device, &mut rows, 15), (Code::INSUFFICIENT_SIZE, 22));
    assert_eq!(nvml.list(COMPUTE_V3, device, &mut rows, 22), (Code::SUCCESS, 2));
}

#[test]
fn a_process_stands_in_the_lists_it_is_said_to() {
    let both = Process::graphics(9, 1).in_lists(&[List::Graphics, List::Mps]);
    let nvml = Nvml::start(&Scenario::new().device(Device::a100().process(both)));
    let count = |symbol: &str| nvml.list::<u8>(symbol, nvml.device(0), &mut [], 0).1;
    let symbols = [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    ];
    assert_eq!(symbols.map(count), [0, 1, 1]);
}

#[test]
fn process_utilization_has_a_ring_a_cursor_and_growth() {
    let samples = vec![Sample::new(1_000, Load::new(10, 1)), Sample::new(2_000, Load::new(20, 2))];
    let device = with(0)
        .process(Process::compute(7, 0).sampled_at(samples))
        .process_utilization(ProcessUtilization { capacity: 72, ..ProcessUtilization::default() })
        .process_utilization_growth(Growth { times: 1, by: 3 });
    let nvml = Nvml::start(&Scenario::new().device(device));
    let device = nvml.device(0);
    assert_eq!(nvml.utilization::<u8>(device, &mut [], 0), (Code::INSUFFICIENT_SIZE, 72));
    let mut rows = [nvmlProcessUtilizationSample_t::default(); 72];
    assert_eq!(nvml.utilization(device, &mut rows, 0), (Code::INSUFFICIENT_SIZE, 75));
    assert_eq!(nvml.utilization(device, &mut rows, 0), (Code::SUCCESS, 1));
    assert_eq!((rows[0].pid, rows[0].timeStamp, rows[0].smUtil), (7, 2_000, 20));
    assert_eq!(nvml.utilization(device, &mut rows, 2_000).0, Code::NOT_FOUND);
}
