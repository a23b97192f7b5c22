//! The tables that `gpu-events` prints.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::devices::DeviceLine;
use crate::events::{Cause, Event};
use crate::tasks::TaskLine;

/// Lets at most one event of a process through in each period, and counts the others.
#[derive(Debug)]
pub struct RateLimit {
    period: Duration,
    last: HashMap<u32, Instant>,
    held_back: u64,
}

impl RateLimit {
    /// One event a process in each `period`.
    pub fn new(period: Duration) -> Self {
        Self { period, last: HashMap::new(), held_back: 0 }
    }

    /// Whether this process's event at `now` may be shown.
    pub fn allows(&mut self, tgid: u32, now: Instant) -> bool {
        let due = self.last.get(&tgid).is_none_or(|last| now.duration_since(*last) >= self.period);
        if due {
            self.last.insert(tgid, now);
        } else {
            self.held_back += 1;
        }
        due
    }

    /// How many events were not let through.
    pub fn held_back(&self) -> u64 {
        self.held_back
    }
}

/// Writes the heading of the event table.
pub fn write_event_heading(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>12}  {:>7}  {:<15}  {:<7}  {:>4}  {:>10}  {:>5}  {:>5}  {:>7}  {:>8}",
        "UPTIME s", "PID", "COMM", "EVENT", "GPU", "GPU MEMORY", "SM %", "MEM %", "GPU SM%", "AGE"
    )
}

/// Writes one line of the event table.
pub fn write_event(out: &mut impl Write, event: &Event) -> io::Result<()> {
    let cause = match event.cause {
        Cause::ContextSwitch => "switch",
        Cause::SystemCall => "syscall",
    };
    let age = event.sample_age.map_or_else(|| "none".to_owned(), |age| format!("{} ms", age.as_millis()));
    writeln!(
        out,
        "{:>12.3}  {:>7}  {:<15}  {:<7}  {:>4}  {:>10}  {:>5}  {:>5}  {:>7}  {:>8}",
        Duration::from_nanos(event.boottime_ns).as_secs_f64(),
        event.tgid,
        printable(&event.comm),
        cause,
        device(event.device, event.device_count),
        bytes(event.gpu_memory_bytes),
        event.sm_util_pct,
        event.mem_util_pct,
        event.device_sm_util_pct,
        age,
    )
}

/// Writes the processes that use a GPU.
pub fn write_tasks(out: &mut impl Write, tasks: &[TaskLine]) -> io::Result<()> {
    writeln!(out, "{:>7}  {:<15}  {:>4}  {:>10}  {:>5}  {:>5}", "PID", "COMM", "GPU", "GPU MEMORY", "SM %", "MEM %")?;
    for task in tasks {
        writeln!(
            out,
            "{:>7}  {:<15}  {:>4}  {:>10}  {:>5}  {:>5}",
            task.tgid,
            printable(&task.comm),
            device(task.device, task.device_count),
            bytes(task.gpu_memory_bytes),
            task.sm_util_pct,
            task.mem_util_pct,
        )?;
    }
    Ok(())
}

/// Writes the GPUs.
pub fn write_devices(out: &mut impl Write, devices: &[DeviceLine]) -> io::Result<()> {
    writeln!(
        out,
        "{:>3}  {:>5}  {:>5}  {:>10}  {:>10}  {:>5}  {:>8}  {:>6}  {:>12}  {:>12}",
        "GPU", "SM %", "MEM %", "USED", "TOTAL", "TEMP", "POWER", "SM MHz", "PCIe TX kB/s", "PCIe RX kB/s"
    )?;
    for device in devices {
        writeln!(
            out,
            "{:>3}  {:>5}  {:>5}  {:>10}  {:>10}  {:>3} C  {:>6.1} W  {:>6}  {:>12}  {:>12}",
            device.index,
            device.sm_util_pct,
            device.mem_util_pct,
            bytes(device.mem_used),
            bytes(device.mem_total),
            device.temp_c,
            f64::from(device.power_mw) / 1000.0,
            device.sm_clock_mhz,
            device.pcie_tx_kbps,
            device.pcie_rx_kbps,
        )?;
    }
    Ok(())
}

fn device(primary: Option<u8>, count: u8) -> String {
    primary.map_or_else(|| format!("x{count}"), |index| index.to_string())
}

/// A process may name itself as it likes; the terminal shall not obey it.
fn printable(comm: &str) -> String {
    comm.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn bytes(count: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let tenths = |unit: u64| {
        let (whole, rest) = (count / unit, count % unit);
        format!("{whole}.{}", rest * 10 / unit)
    };
    match count {
        GIB.. => format!("{} GiB", tenths(GIB)),
        MIB.. => format!("{} MiB", tenths(MIB)),
        KIB.. => format!("{} KiB", tenths(KIB)),
        _ => format!("{count} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_let_through_once_a_period() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut limit = RateLimit::new(Duration::from_millis(200));
        assert!(limit.allows(1, at(0)));
        assert!(!limit.allows(1, at(199)));
        assert!(limit.allows(2, at(199)));
        assert!(limit.allows(1, at(200)));
        assert!(!limit.allows(1, at(399)));
        assert_eq!(limit.held_back(), 2);
    }

    #[test]
    fn byte_counts_have_the_unit_that_a_person_would_choose() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(268_435_456), "256.0 MiB");
        assert_eq!(bytes(85_899_345_920), "80.0 GiB");
        assert_eq!(bytes(u64::MAX), "17179869183.9 GiB");
    }

    #[test]
    fn the_columns_stand_under_their_headings() {
        let event = Event {
            boottime_ns: 1_234_567_891_234,
            tgid: 4_194_303,
            tid: 1,
            comm: "train\u{1b}[31m\nrun".to_owned(),
            cause: Cause::ContextSwitch,
            gpu_memory_bytes: 268_435_456,
            sm_util_pct: 38,
            mem_util_pct: 21,
            device_sm_util_pct: 71,
            device: None,
            device_count: 2,
            sample_age: None,
        };
        let mut out = Vec::new();
        write_event_heading(&mut out).unwrap();
        write_event(&mut out, &event).unwrap();
        write_event(&mut out, &Event { sample_age: Some(Duration::from_millis(42)), device: Some(3), ..event }).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "    UPTIME s      PID  COMM             EVENT     GPU  GPU MEMORY   SM %  MEM %  GPU SM%       AGE",
                "    1234.568  4194303  train?[31m?run   switch     x2   256.0 MiB     38     21       71      none",
                "    1234.568  4194303  train?[31m?run   switch      3   256.0 MiB     38     21       71     42 ms",
            ]
        );
    }
}
