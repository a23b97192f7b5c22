//! The simulated GPUs of the demo, and the processes that are said to use them.

use std::env;
use std::f64::consts::TAU;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result};
use nvml_sim::abi::{NVML_GPU_UTILIZATION_SAMPLES, NVML_MEMORY_UTILIZATION_SAMPLES};
use nvml_sim::library::{self, Installed};
use nvml_sim::scenario::{Board, Device, Ecc, Load, Process, SampleBuffer, Scenario};

use super::daemon::Child;
use crate::shell;

const MIB: u64 = 1 << 20;
/// A clocks-event reason of a GPU at its power limit.
const SW_POWER_CAP: u64 = 4;
/// How often a driver takes samples of a device and of a process.
const DEVICE_SAMPLE_US: u64 = 166_667;
const PROCESS_SAMPLE_MS: u64 = 1_000;

/// What one process does to CPU and GPU.
#[derive(Debug)]
struct Job {
    name: &'static str,
    gpu: usize,
    memory_mib: u64,
    burst_ms: u64,
    rest_ms: u64,
    swing: Swing,
}

/// A utilization that swings between two percentages, once in some seconds.
#[derive(Clone, Copy, Debug)]
struct Swing {
    low: u32,
    high: u32,
    period_s: u32,
}

const GPUS: [Swing; 2] = [Swing { low: 55, high: 97, period_s: 6 }, Swing { low: 40, high: 92, period_s: 4 }];
const JOBS: [Job; 3] = [
    Job { name: "train.py", gpu: 0, memory_mib: 24_576, burst_ms: 15, rest_ms: 60, swing: GPUS[0] },
    Job { name: "train.py", gpu: 1, memory_mib: 30_720, burst_ms: 20, rest_ms: 80, swing: GPUS[1] },
    Job { name: "infer", gpu: 1, memory_mib: 6_144, burst_ms: 2, rest_ms: 120, swing: Swing { low: 0, high: 35, period_s: 3 } },
];

/// A driver's library with the scenario that it plays, and the processes that this names. They end when it is dropped.
#[derive(Debug)]
pub(super) struct Simulation {
    workload: Vec<Child>,
    library: Installed,
}

impl Simulation {
    /// Starts the processes and installs the library in `folder`.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let own = env::current_exe().context("cannot tell where this program lies")?;
        let start = |job: &Job| {
            let times = [job.burst_ms, job.rest_ms].map(|time| time.to_string());
            Child::start_silently(shell::command(&own).args(["workload", job.name]).args(times))
        };
        let workload = JOBS.iter().map(start).collect::<Result<Vec<_>>>()?;
        let pids: Vec<u32> = workload.iter().map(Child::pid).collect();
        let library = library::install(folder, &[])?;
        library.play(&scenario(&pids))?;
        Ok(Self { workload, library })
    }

    /// The processes, for people.
    pub(super) fn processes(&self) -> String {
        let name = |(job, child): (&Job, &Child)| format!("{} (pid {})", job.name, child.pid());
        JOBS.iter().zip(&self.workload).map(name).collect::<Vec<_>>().join(", ")
    }

    /// The flag that makes a bridge use it.
    pub(super) fn flag(&self) -> OsString {
        super::flag("--nvml-library-path=", &self.library.path())
    }
}

/// The GPUs, used by a process for each job, in order.
pub(crate) fn scenario(pids: &[u32]) -> Scenario {
    let device = |(gpu, swing): (usize, &Swing)| {
        let jobs = JOBS.iter().zip(pids).filter(|(job, _)| job.gpu == gpu);
        let used: u64 = jobs.clone().map(|(job, _)| job.memory_mib * MIB).sum();
        let (sm, mem) = (
            swing.percentages(DEVICE_SAMPLE_US),
            Swing { low: swing.low / 2, high: swing.high / 2, ..*swing }.percentages(DEVICE_SAMPLE_US),
        );
        let mut device = Device::from(Board::H100)
            .at_work()
            .event_reasons(SW_POWER_CAP)
            .ecc(Ecc { enabled: true, ..Ecc::default() })
            .encoder(0)
            .decoder(0)
            .samples(NVML_GPU_UTILIZATION_SAMPLES, SampleBuffer::periodic(DEVICE_SAMPLE_US, sm))
            .samples(NVML_MEMORY_UTILIZATION_SAMPLES, SampleBuffer::periodic(DEVICE_SAMPLE_US, mem));
        device = device.memory(81_559 * MIB, used, 480 * MIB);
        jobs.fold(device, |device, (job, pid)| {
            let loads = job.swing.percentages(PROCESS_SAMPLE_MS * 1_000).into_iter().map(|sm| Load::new(sm, sm / 2)).collect();
            device.process(Process::compute(*pid, job.memory_mib * MIB).sampled_every(PROCESS_SAMPLE_MS, loads))
        })
    };
    GPUS.iter().enumerate().map(device).fold(Scenario::new(), Scenario::device)
}

impl Swing {
    /// One period's percentages, a sample's time apart.
    fn percentages(self, sample_us: u64) -> Vec<u32> {
        let samples = (u64::from(self.period_s) * 1_000_000 / sample_us).max(1);
        let (middle, half) = (f64::from(self.low + self.high) / 2.0, f64::from(self.high - self.low) / 2.0);
        let percentage = |sample| middle + half * (sample as f64 / samples as f64 * TAU).sin();
        (0..samples).map(|sample| percentage(sample).round() as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swing_stays_between_its_ends_and_reaches_them() {
        let samples = Swing { low: 20, high: 80, period_s: 4 }.percentages(1_000_000);
        assert_eq!(samples, [50, 80, 50, 20]);
    }

    #[test]
    fn every_process_stands_on_the_gpu_of_its_job() {
        let scenario = scenario(&[11, 12, 13]);
        let pids: Vec<Vec<u32>> =
            scenario.devices.iter().map(|device| device.processes.iter().map(|process| process.pid).collect()).collect();
        assert_eq!(pids, [vec![11], vec![12, 13]]);
    }
}
