//! The device's utilization and its sample time.

use std::time::Duration;

use nvml_sim::{
    abi::{NVML_GPU_UTILIZATION_SAMPLES as GPU, NVML_MEMORY_UTILIZATION_SAMPLES as MEMORY},
    scenario::{Board, Code, Device, SampleBuffer, Scenario, Utilization},
};
use telemetry::{Answer, Stamp};

use crate::machine::{Gpu, Machine, one};

const SECOND: Duration = Duration::from_secs(1);
const HOUR_NS: i64 = 3_600_000_000_000;

/// An open device whose sample buffers are made with the time that it believes to be now, in µs.
fn sampled(gpu: impl FnOnce(u64) -> Vec<(u64, u32)>, memory: impl FnOnce(u64) -> Vec<(u64, u32)>) -> (Machine, Gpu) {
    let (machine, device) = one(Device::default());
    let now_us = device.now_us();
    machine.play(&Scenario::new().device(rings(gpu(now_us), memory(now_us))));
    (machine, device)
}

/// A device with rings and without rates.
fn rings(gpu: Vec<(u64, u32)>, memory: Vec<(u64, u32)>) -> Device {
    Device::default().samples(GPU, SampleBuffer::given(gpu)).samples(MEMORY, SampleBuffer::given(memory))
}

#[track_caller]
fn check(gpu: &Gpu, sm: u32, mem: u32, at_us: u64) {
    assert_eq!((gpu.reading.metrics.sm_util_pct, gpu.reading.metrics.mem_util_pct), (Some(sm), Some(mem)));
    assert_eq!(gpu.reading.sampled.map(|stamp| stamp.realtime_ns), Some(at_us * 1_000));
}

#[test]
fn the_newest_sample_counts_with_its_own_time() {
    let (_machine, mut gpu) =
        sampled(|now| vec![(now - 300_000, 10), (now - 200_000, 90), (now - 100_000, 42)], |now| vec![(now - 150_000, 7)]);
    gpu.read("utilization");
    check(&gpu, 42, 7, gpu.now_us() - 100_000);
    assert_eq!(gpu.reading.sampled.unwrap().clock_offset_ns, gpu.now.clock_offset_ns);
}

#[test]
fn nothing_newer_leaves_the_last_sample_standing() {
    let (_machine, mut gpu) = sampled(|now| vec![(now - 100_000, 42)], |now| vec![(now - 100_000, 7)]);
    let at_us = gpu.now_us() - 100_000;
    gpu.read("utilization");
    gpu.read_after(SECOND, "utilization");
    check(&gpu, 42, 7, at_us);
}

/// An open device with one sample, 100 ms old, and rates.
fn with_rates() -> (Machine, Gpu) {
    let (machine, gpu) = one(Device::default());
    let at_us = gpu.now_us() - 100_000;
    let rates = Utilization { gpu: 99, memory: 98 }.into();
    machine.play(&Scenario::new().device(Device { utilization: rates, ..rings(vec![(at_us, 42)], vec![(at_us, 98)]) }));
    (machine, gpu)
}

#[test]
fn where_there_are_rates_they_spare_the_memory_ring() {
    let (machine, mut gpu) = with_rates();
    gpu.read("utilization");
    check(&gpu, 42, 98, gpu.now_us() - 100_000);
    assert_eq!(machine.stats().calls("nvmlDeviceGetSamples"), 1);
}

#[test]
fn a_ring_that_fell_silent_gives_way_to_the_present_rates() {
    let (_machine, mut gpu) = with_rates();
    gpu.read("utilization");
    gpu.read_after(SECOND * 4, "utilization");
    check(&gpu, 99, 98, gpu.now_us());
    assert_eq!(gpu.reading.sampled, Some(Stamp { realtime_ns: gpu.now.realtime_ns(), clock_offset_ns: gpu.now.clock_offset_ns }));
    assert_eq!(gpu.period("utilization"), Duration::ZERO);
}

#[test]
fn without_rings_the_rates_carry_the_clock() {
    let board = Device { utilization: Utilization { gpu: 61, memory: 12 }.into(), ..Device::default() };
    let (machine, mut gpu) = one(board);
    for _ in 0..3 {
        gpu.later(SECOND);
        gpu.read("utilization");
        assert_eq!((gpu.reading.metrics.sm_util_pct, gpu.reading.sampled), (Some(61), Some(gpu.now.stamp())));
    }
    assert_eq!(machine.stats().calls("nvmlDeviceGetSamples"), 1, "the ring once");
}

#[test]
fn without_either_there_is_no_utilization() {
    let (_machine, mut gpu) = one(Device::h100().without_utilization());
    assert_eq!(gpu.ask("utilization"), Answer::NotSupported);
    assert_eq!((gpu.reading.metrics.sm_util_pct, gpu.reading.sampled), (None, None));
}

#[test]
fn garbage_in_the_ring_is_not_believed() {
    let (_machine, mut gpu) =
        sampled(|now| vec![(5, 1), (now - 400_000, 33), (now - 1, 37_100), (now + 3_600_000_000, 50)], |now| vec![(now - 400_000, 3)]);
    gpu.read("utilization");
    check(&gpu, 33, 3, gpu.now_us() - 400_000);
}

#[test]
fn the_ring_is_read_when_its_period_says_that_there_can_be_a_new_sample() {
    let (_machine, mut gpu) = sampled(
        |now| (0..20).map(|n| (now - 50_000 - (19 - n) * 500_000, 1)).collect(),
        |now| (0..20).map(|n| (now - 50_000 - (19 - n) * 500_000, 1)).collect(),
    );
    gpu.read("utilization");
    assert_eq!(gpu.period("utilization"), Duration::from_millis(450));
}

#[test]
fn a_step_of_the_wall_clock_back_by_an_hour_does_not_blind() {
    let (machine, mut gpu) = one(Device::default());
    let true_offset = gpu.now.clock_offset_ns;
    // The clock is an hour ahead, and is then set right.
    gpu.now.clock_offset_ns += HOUR_NS;
    let before_us = gpu.now_us();
    machine.play(&Scenario::new().device(rings(vec![(before_us - 100_000, 42)], vec![(before_us - 100_000, 7)])));
    gpu.read("utilization");
    check(&gpu, 42, 7, before_us - 100_000);
    gpu.now.clock_offset_ns = true_offset;
    gpu.later(SECOND);
    let after_us = gpu.now_us();
    // The ring still holds what was stamped before the step.
    let ring = |pct| vec![(after_us - 200_000, pct), (before_us - 100_000, 42)];
    machine.play(&Scenario::new().device(rings(ring(55), ring(5))));
    gpu.read("utilization");
    check(&gpu, 55, 5, after_us - 200_000);
}

#[test]
fn a_step_forward_brings_no_old_sample_back() {
    let (machine, mut gpu) = sampled(|now| vec![(now - 100_000, 42)], |now| vec![(now - 100_000, 7)]);
    let at_us = gpu.now_us() - 100_000;
    gpu.read("utilization");
    gpu.now.clock_offset_ns += HOUR_NS;
    gpu.read_after(SECOND, "utilization");
    check(&gpu, 42, 7, at_us);
    let now_us = gpu.now_us();
    machine.play(&Scenario::new().device(rings(vec![(at_us, 42), (now_us - 9, 11)], vec![(at_us, 7), (now_us - 9, 1)])));
    gpu.read_after(SECOND, "utilization");
    check(&gpu, 11, 1, now_us - 9);
}

#[test]
fn a_driver_that_really_samples_is_followed() {
    let (_machine, mut gpu) = one(Device::from(Board::L40s).utilization(71, 53));
    gpu.now_is_now();
    let before_us = gpu.now_us();
    gpu.read("utilization");
    let stamp = gpu.reading.sampled.unwrap();
    assert!((before_us - 166_667..=nvml_sim::realtime_us()).contains(&(stamp.realtime_ns / 1_000)), "{stamp:?} against {before_us}");
    assert_eq!(stamp.realtime_ns / 1_000 % 166_667, 0, "the sample's own time, a multiple of the simulated period");
    assert!(gpu.period("utilization") <= Duration::from_micros(166_667));
}

#[test]
fn a_ring_that_fails_is_replaced_by_the_rates() {
    let board = Device { utilization: Utilization { gpu: 61, memory: 12 }.into(), ..Device::default() };
    let (_machine, mut gpu) = one(board.fails("nvmlDeviceGetSamples", Code::TIMEOUT));
    gpu.read("utilization");
    assert_eq!((gpu.reading.metrics.sm_util_pct, gpu.reading.sampled), (Some(61), Some(gpu.now.stamp())));
}
