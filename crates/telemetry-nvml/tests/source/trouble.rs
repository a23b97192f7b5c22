//! Whose trouble it is: a metric's, a device's, or the whole source's.

use std::time::Duration;

use nvml_sim::scenario::{Answer as Sim, Board, Code, Device, Scenario};
use telemetry::{Answer, DeviceError};

use crate::machine::{Gpu, Machine, one};

#[test]
fn a_lost_gpu_is_lost_alone_and_comes_back() {
    for code in [Code::GPU_IS_LOST, Code::RESET_REQUIRED, Code::INSUFFICIENT_POWER, Code::GPU_NOT_FOUND] {
        let scenario = Scenario::new().devices(2, Board::H100);
        let machine = Machine::new(&scenario);
        let mut gpus: Vec<_> = machine.open().devices.into_iter().map(Gpu::new).collect();
        gpus.iter_mut().for_each(|gpu| {
            gpu.ask_all();
        });
        let mut lost = scenario.clone();
        lost.change(0, |device| device.lost(code));
        machine.play(&lost);
        for name in ["sensors", "memory", "utilization", "compute processes", "process utilization", "pcie counters", "nvlink"] {
            let error = gpus[0].try_ask(name).expect_err(name);
            assert!(matches!(&error, DeviceError::Lost(text) if text.contains(&format!("({})", code.0))), "{name}: {error:?}");
            assert_eq!(gpus[1].ask(name), Answer::Answered, "{name}");
        }
        machine.play(&scenario);
        gpus[0].later(Duration::from_secs(1));
        assert_eq!(gpus[0].read("sensors").metrics.temp_c, Some(29));
        assert_eq!(gpus[0].ask("nvlink"), Answer::Answered);
    }
}

#[test]
fn a_driver_that_is_gone_takes_the_source_along() {
    for code in [Code::UNINITIALIZED, Code::DRIVER_NOT_LOADED, Code::LIB_RM_VERSION_MISMATCH] {
        let machine = Machine::new(&Scenario::new().device(Board::H100));
        let mut gpu = machine.gpu(0);
        gpu.ask_all();
        machine.play(&Scenario::new().device(Board::H100).fails("nvmlDevice*", code));
        for name in ["sensors", "memory", "utilization", "compute processes", "process utilization", "pcie counters", "nvlink"] {
            let error = gpu.try_ask(name).expect_err(name);
            assert!(matches!(&error, DeviceError::SourceGone(text) if text.contains(&format!("({})", code.0))), "{name}: {error:?}");
        }
    }
}

#[test]
fn unknown_errors_from_everything_are_a_lost_device() {
    let (machine, mut gpu) = one(Board::H100);
    gpu.ask_all();
    machine.play(&Scenario::new().device(Board::H100).fails("nvmlDevice*", Code::UNKNOWN));
    let error = gpu.try_ask("sensors").expect_err("a lost device");
    assert!(matches!(&error, DeviceError::Lost(text) if text.contains("(999)")), "{error:?}");
    for name in ["memory", "utilization", "compute processes", "process utilization", "pcie counters", "nvlink"] {
        assert!(matches!(gpu.try_ask(name), Err(DeviceError::Lost(_))), "{name}, as long as nothing answers");
    }
    machine.play(&Scenario::new().device(Board::H100));
    assert_eq!(gpu.read("memory").metrics.memory.map(|memory| memory.total_bytes), Some(81_559 << 20));
    assert_eq!(gpu.read("sensors").metrics.temp_c, Some(29));
}

#[test]
fn unknown_errors_from_some_calls_are_those_metrics_trouble() {
    let unknown = Sim::error(Code::UNKNOWN);
    let board = Device { temperature_c: Sim::error(Code::UNKNOWN), power_mw: unknown.clone(), compute_mode: unknown, ..Device::h100() };
    let board = board.fails("nvmlDeviceGetFanSpeed", Code::UNKNOWN).fails("nvmlDeviceGetMemoryInfo*", Code::UNKNOWN);
    let (_machine, mut gpu) = one(board.fails("nvmlDeviceGetTotalEccErrors", Code::UNKNOWN));
    for _ in 0..3 {
        for (name, answer) in gpu.ask_all() {
            assert!(matches!(answer, Answer::Answered | Answer::NotSupported), "{name}");
        }
    }
    assert_eq!((gpu.reading.metrics.power_mw, gpu.reading.metrics.sm_clock_mhz), (None, Some(345)));
}

#[test]
fn a_failure_that_passes_leaves_the_last_answer_standing_and_one_that_lasts_does_not() {
    let (machine, mut gpu) = one(Board::H100);
    gpu.ask_all();
    let before = (gpu.reading.metrics, gpu.reading.sampled);
    assert!(before.0.memory.is_some() && before.0.mem_util_pct.is_some() && before.0.temp_c.is_some());
    let failing = Device::h100().fails("nvmlDeviceGetUtilizationRates", Code::NO_DATA);
    let failing = failing.fails("nvmlDeviceGetSamples", Code::NO_DATA).fails("nvmlDeviceGetMemoryInfo*", Code::NO_DATA);
    machine.play(&Scenario::new().device(failing.fails("nvmlDeviceGetTemperature", Code::NO_DATA)));
    for _ in 0..4 {
        gpu.later(Duration::from_millis(100));
        for name in ["utilization", "sensors", "memory"] {
            gpu.read(name);
        }
        assert_eq!((gpu.reading.metrics, gpu.reading.sampled), before, "with the time that it had");
    }
    gpu.later(Duration::from_millis(200));
    for name in ["sensors", "memory"] {
        gpu.read(name);
    }
    assert_eq!((gpu.reading.metrics.temp_c, gpu.reading.metrics.memory), (None, None), "absent after half a second");
    assert_eq!(gpu.reading.metrics.sm_clock_mhz, before.0.sm_clock_mhz, "the others are answered");
}

#[test]
fn a_handle_that_is_refused_is_looked_up_anew() {
    let scenario = Scenario::new().device(Device::h100().uuid("GPU-7"));
    let machine = Machine::new(&scenario);
    let mut gpu = machine.gpu(0);
    gpu.ask_all();
    machine.play(&scenario.clone().fails("nvmlDeviceGetTemperature", Code::INVALID_ARGUMENT));
    gpu.read("sensors");
    assert_eq!(machine.stats().calls("nvmlDeviceGetHandleByUUID"), 0, "not before it is asked again");
    machine.play(&scenario);
    gpu.later(Duration::from_secs(1));
    assert_eq!(gpu.read("sensors").metrics.temp_c, Some(29));
    assert_eq!(machine.stats().calls("nvmlDeviceGetHandleByUUID"), 1);
}

#[test]
fn a_call_that_is_always_refused_does_not_have_the_handle_looked_up_each_time() {
    let board = Device::h100().fails("nvmlDeviceGetFanSpeed", Code::INVALID_ARGUMENT);
    let (machine, mut gpu) = one(board);
    for _ in 0..120 {
        gpu.later(Duration::from_secs(1));
        gpu.read("fan");
    }
    let lookups = machine.stats().calls("nvmlDeviceGetHandleByUUID");
    assert!((1..=8).contains(&lookups), "{lookups} in two minutes");
}
