//! Publishes invented rounds in a directory until its standard input ends: `publish DIR [PROCESSES]`.
//!
//! Prints `ready` after the first round; removes the pins at the end.

use std::env;
use std::error::Error;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gpu_types::{GPU_SCHEMA_VERSION, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated, keys::PidDeviceKey};
use map_publisher::{Options, Publisher, Records, chain, cpu};
use nix::time::{ClockId, clock_gettime};

#[expect(clippy::print_stderr, reason = "the example's only output besides the word ready")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("publish: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the word ready is the example's output")]
fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let dir = arguments.next().ok_or("which directory?")?;
    let processes = arguments.next().map_or(Ok(4), |number| number.parse())?;

    cpu::bind_to_lowest()?;
    let helper_pid = std::process::id();
    let mut publisher = Publisher::open(&Options::new(dir, helper_pid, now_ns(ClockId::CLOCK_BOOTTIME)?))?;

    let (end, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        drop((io::stdin().read_to_end(&mut Vec::new()), end));
    });
    let mut records = Records::default();
    for round in 0u32.. {
        let (realtime, boottime) = (now_ns(ClockId::CLOCK_REALTIME)?, now_ns(ClockId::CLOCK_BOOTTIME)?);
        records.meta = GpuMeta {
            schema_version: GPU_SCHEMA_VERSION,
            n_devices: 1,
            last_update_boottime_ns: boottime,
            helper_pid,
            clock_offset_ns: realtime as i64 - boottime as i64,
            ..GpuMeta::default()
        };
        records.devices[0] =
            GpuDeviceMetrics { timestamp_ns: realtime, sm_util_pct: round % 101, mem_total: 1 << 30, ..Default::default() };
        records.processes.clear();
        records.process_devices.clear();
        // Every round one process goes and another comes.
        for pid in (1..=processes).map(|process| 1_000_000 + round + process) {
            let (timestamp_ns, memory, used) = (realtime, 1 << 20, round % 101);
            let process =
                GpuPidMetricsAggregated { timestamp_ns, used_gpu_memory_total: memory, sm_util_pct_max: used, ..Default::default() };
            records.processes.push((pid, GpuPidMetricsAggregated { device_count: 1, ..process }));
            let on_device = GpuPidMetrics { timestamp_ns, used_gpu_memory: memory, sm_util_pct: used, ..Default::default() };
            records.process_devices.push((PidDeviceKey::new(pid, 0).into(), on_device));
        }
        publisher.publish(&records)?;
        if round == 0 {
            println!("ready");
        }
        match ended.recv_timeout(Duration::from_millis(1)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    publisher.close(false)?;
    Ok(())
}

fn now_ns(clock: ClockId) -> nix::Result<u64> {
    let now = clock_gettime(clock)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
