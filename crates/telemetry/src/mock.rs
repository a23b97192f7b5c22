//! A source of invented data, for trying things out on machines without a GPU.
//!
//! Figures follow sine curves with a phase per device and process, memory climbs slowly and resets, clocks stand still. Processes are sampled ten
//! times a second, each at times of its own. Everything is a function of `CLOCK_BOOTTIME`, so two runs agree.

use std::time::Duration;

use crate::{
    Answer, Device, DeviceError, Identity, Memory, Metrics, Now, OpenError, OpenSource, Probe, Process, ProcessUtilization, Reading,
    SourceInfo, TelemetrySource,
};

const MIB: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 80 << 30;
const RESERVED_BYTES: u64 = 512 * MIB;
const FIRST_PID: u32 = 100_000;
/// Memory climbs for this long, then starts anew.
const MEMORY_PERIOD_S: f64 = 120.0;
const MEMORY_CLIMB_BYTES: f64 = (8_u64 << 30) as f64;

/// Says whether a PID belongs to a process of this machine.
pub type PidExists = fn(u32) -> bool;

/// The mock source.
#[derive(Clone, Copy, Debug)]
pub struct MockSource {
    devices: u32,
    processes_per_device: u32,
    pid_exists: Option<PidExists>,
}

impl Default for MockSource {
    fn default() -> Self {
        Self { devices: 2, processes_per_device: 3, pid_exists: None }
    }
}

impl MockSource {
    /// A source with this many devices and processes on each.
    pub fn new(devices: u32, processes_per_device: u32) -> Self {
        Self { devices, processes_per_device, pid_exists: None }
    }

    /// Passes over PIDs that `pid_exists` knows, so that no real process is given invented data. It is asked at every
    /// reading: a process may begin at any time.
    #[must_use]
    pub fn sparing_processes(self, pid_exists: PidExists) -> Self {
        Self { pid_exists: Some(pid_exists), ..self }
    }
}

impl TelemetrySource for MockSource {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        let devices = (0..self.devices).map(|index| -> Box<dyn Device> { Box::new(MockDevice::new(index, *self)) }).collect();
        Ok(OpenSource { info: SourceInfo { name: "mock".to_owned(), driver_version: None, library: None }, devices })
    }

    fn is_free(&self) -> bool {
        true
    }
}

/// How often each process is sampled.
const SAMPLE_PERIOD_NS: u64 = 100_000_000;

#[derive(Debug)]
struct MockDevice {
    identity: Identity,
    options: MockSource,
    workers: Vec<Worker>,
}

/// An invented process.
#[derive(Clone, Copy, Debug)]
struct Worker {
    /// Its number on the device.
    number: u32,
    pid: u32,
    /// When it was last sampled, on `CLOCK_BOOTTIME`, and what came out: a sample's time is told the same every time.
    sample_ns: Option<u64>,
    utilization: ProcessUtilization,
}

const EVERYTHING: [Probe; 1] = [Probe { name: "everything", period: Duration::ZERO }];

impl MockDevice {
    fn new(index: u32, options: MockSource) -> Self {
        let identity = Identity {
            index,
            uuid: format!("MOCK-00000000-0000-0000-0000-{index:012}"),
            pci_bus_id: String::new(),
            name: format!("MOCK GPU model {}", index % 2),
            vendor_id: 0,
        };
        let first = FIRST_PID + index * options.processes_per_device;
        let worker = |number| Worker { number, pid: first + number, sample_ns: None, utilization: ProcessUtilization::default() };
        Self { identity, workers: (0..options.processes_per_device).map(worker).collect(), options }
    }
}

impl Device for MockDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn probes(&self) -> &[Probe] {
        &EVERYTHING
    }

    fn ask(&mut self, _probe: usize, now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
        let device = f64::from(self.identity.index);
        let seconds = now.boottime_ns as f64 / 1e9;

        let exists = self.options.pid_exists;
        reading.processes.clear();
        for worker in self.workers.iter_mut().filter(|worker| !exists.is_some_and(|exists| exists(worker.pid))) {
            let sample_ns = last_sample_ns(now, worker.pid);
            if worker.sample_ns != Some(sample_ns) {
                worker.sample_ns = Some(sample_ns);
                let (at, seconds) = (Now { boottime_ns: sample_ns, ..now }, sample_ns as f64 / 1e9);
                let phase = device * 0.9 + f64::from(worker.number) * 1.7;
                worker.utilization = ProcessUtilization {
                    sampled: at.stamp(),
                    sm_pct: wave(seconds, 40.0, phase, 5.0, 60.0) as u32,
                    mem_pct: wave(seconds, 40.0, phase + 0.5, 2.0, 40.0) as u32,
                    enc_pct: 0,
                    dec_pct: 0,
                };
            }
            reading.processes.push(Process {
                pid: worker.pid,
                mig_instance: None,
                used_memory_bytes: Some((256 + u64::from(worker.number) * 128) * MIB),
                utilization: Some(worker.utilization),
            });
        }

        let held: u64 = (0..u64::from(self.options.processes_per_device)).map(|j| (256 + j * 128) * MIB).sum();
        let climb = (seconds + device * 17.0) % MEMORY_PERIOD_S / MEMORY_PERIOD_S * MEMORY_CLIMB_BYTES;
        reading.metrics = Metrics {
            sm_util_pct: Some(wave(seconds, 30.0, device, 10.0, 95.0) as u32),
            mem_util_pct: Some(wave(seconds, 35.0, device + 0.5, 5.0, 70.0) as u32),
            memory: Some(Memory {
                total_bytes: TOTAL_BYTES,
                used_bytes: (held + climb as u64).min(TOTAL_BYTES - RESERVED_BYTES),
                reserved_bytes: RESERVED_BYTES,
            }),
            temp_c: Some(wave(seconds, 60.0, device, 45.0, 75.0) as u32),
            power_mw: Some(wave(seconds, 30.0, device, 90_000.0, 650_000.0) as u32),
            sm_clock_mhz: Some(1980),
            mem_clock_mhz: Some(2619),
            throttle_reasons: Some(0),
            pcie_tx_kbps: Some(wave(seconds, 45.0, device, 10_000.0, 4_000_000.0) as u64),
            pcie_rx_kbps: Some(wave(seconds, 50.0, device + 1.0, 10_000.0, 6_000_000.0) as u64),
            enc_util_pct: Some(0),
            dec_util_pct: Some(0),
            nvlink_tx_kbps: None,
            nvlink_rx_kbps: None,
            ecc_corrected_total: Some(0),
            ecc_uncorrected_total: Some(0),
            fan_speed_pct: None,
            compute_mode: Some(0),
        };
        reading.sampled = Some(now.stamp());
        reading.process_sample_period = None;
        Ok(Answer::Answered)
    }
}

/// When a process was last sampled, on `CLOCK_BOOTTIME`: as with a driver, at a rhythm of the source's own, and not all at once.
fn last_sample_ns(now: Now, pid: u32) -> u64 {
    let offset_ns = u64::from(pid) * 7_300_000 % SAMPLE_PERIOD_NS;
    now.boottime_ns.saturating_sub((now.boottime_ns + offset_ns) % SAMPLE_PERIOD_NS)
}

/// A sine of the given period and phase, between `low` and `high`.
fn wave(seconds: f64, period: f64, phase: f64, low: f64, high: f64) -> f64 {
    // Not the C library's: its file of half a megabyte would be loaded for this.
    let unit = libm::sin(std::f64::consts::TAU * seconds / period + phase) * 0.5 + 0.5;
    low + unit * (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut source: MockSource, boottime_ns: u64) -> Vec<Reading> {
        let now = Now { boottime_ns, clock_offset_ns: 1_700_000_000_000_000_000 };
        let mut devices = source.open().unwrap().devices;
        devices
            .iter_mut()
            .map(|device| {
                let mut reading = Reading::default();
                assert_eq!(device.ask(0, now, &mut reading), Ok(Answer::Answered));
                reading
            })
            .collect()
    }

    #[test]
    fn two_devices_with_three_processes_each_by_default() {
        let readings = read(MockSource::default(), 5_000_000_000);
        let held: Vec<_> = readings.iter().flat_map(|r| &r.processes).map(|p| (p.pid, p.used_memory_bytes.unwrap())).collect();
        assert_eq!(
            held,
            [
                (100_000, 268_435_456),
                (100_001, 402_653_184),
                (100_002, 536_870_912),
                (100_003, 268_435_456),
                (100_004, 402_653_184),
                (100_005, 536_870_912),
            ]
        );
        assert!(readings.iter().all(|r| r.metrics.memory.unwrap().total_bytes == 85_899_345_920));
        assert!(readings.iter().all(|r| r.metrics.memory.unwrap().reserved_bytes == 536_870_912));
    }

    #[test]
    fn figures_stay_in_range_and_move() {
        let mut seen = std::collections::BTreeSet::new();
        for second in 0..300 {
            for reading in read(MockSource::new(16, 4), second * 1_000_000_000) {
                let metrics = reading.metrics;
                let memory = metrics.memory.unwrap();
                assert!(metrics.sm_util_pct.unwrap() <= 100 && metrics.mem_util_pct.unwrap() <= 100);
                assert!(memory.used_bytes + memory.reserved_bytes <= memory.total_bytes);
                assert!(reading.processes.iter().all(|p| p.utilization.unwrap().sm_pct <= 100));
                seen.insert(metrics.sm_util_pct);
            }
        }
        assert!(seen.len() > 50, "utilization took only {} values", seen.len());
    }

    #[test]
    fn each_process_is_sampled_ten_times_a_second_and_never_in_the_future() {
        let mut source = MockSource::new(2, 40);
        let mut devices = source.open().unwrap().devices;
        let mut reading = Reading::default();
        let mut samples = std::collections::BTreeMap::<u32, std::collections::BTreeSet<u64>>::new();
        for ms in 0..1_000 {
            let now = Now { boottime_ns: 50_000_000_000 + ms * 1_000_000, clock_offset_ns: 7 };
            for device in &mut devices {
                device.ask(0, now, &mut reading).unwrap();
                for process in &reading.processes {
                    let sampled = process.utilization.unwrap().sampled;
                    assert!(sampled.realtime_ns <= now.realtime_ns() && now.realtime_ns() - sampled.realtime_ns < SAMPLE_PERIOD_NS);
                    samples.entry(process.pid).or_default().insert(sampled.realtime_ns);
                }
            }
        }
        assert_eq!(samples.len(), 80);
        assert!(samples.values().all(|times| (10..=11).contains(&times.len())), "{samples:?}");
    }

    #[test]
    fn a_pid_that_becomes_a_real_processs_is_passed_over_at_once() {
        static EXISTS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let mut source = MockSource::new(1, 2).sparing_processes(|pid| pid == 100_001 && EXISTS.load(std::sync::atomic::Ordering::Relaxed));
        let mut device = source.open().unwrap().devices.remove(0);
        let mut reading = Reading::default();
        let mut pids_at = |seconds: u64| {
            let now = Now { boottime_ns: seconds * 1_000_000_000, clock_offset_ns: 0 };
            device.ask(0, now, &mut reading).unwrap();
            reading.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids_at(100), [100_000, 100_001]);
        EXISTS.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(pids_at(101), [100_000]);
        EXISTS.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(pids_at(102), [100_000, 100_001]);
    }

    #[test]
    fn pids_of_real_processes_are_passed_over() {
        let source = MockSource::default().sparing_processes(|pid| pid == 100_001 || pid == 100_003);
        let pids: Vec<_> = read(source, 0).iter().flat_map(|r| r.processes.clone()).map(|p| p.pid).collect();
        assert_eq!(pids, [100_000, 100_002, 100_004, 100_005]);
    }
}
