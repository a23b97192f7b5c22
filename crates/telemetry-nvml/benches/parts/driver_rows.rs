//! Rows as a driver of a full GPU gives them, for the criterion bench and the instruction count.

use telemetry::{Now, Process};

// What is pure in the crate, compiled once more: it is nobody's API.
#[path = "../../src/pure/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "only a part is measured, and the tests have run where they belong")]
mod pure;

use pure::processes::{ListKind, Processes};
use pure::samples::{ProcessRow, fold};
use pure::stride::ListRow;

const NOW: Now = Now { boottime_ns: 3_600_000_000_000, clock_offset_ns: 1_700_000_000_000_000_000 };

/// A list of processes, a sample of each, and a row in ten that is garbage.
pub(crate) struct DriverRows {
    list: Vec<ListRow>,
    samples: Vec<ProcessRow>,
    folded: Vec<(u32, telemetry::ProcessUtilization)>,
    processes: Processes,
    written: Vec<Process>,
}

impl DriverRows {
    pub(crate) fn new(processes: u32) -> Self {
        let now_us = NOW.realtime_ns() / 1_000;
        let list = (0..processes).map(|process| ListRow {
            pid: 1_000 + process,
            used_memory_bytes: Some(1 << 28),
            mig_instance: None,
            compute_instance: None,
        });
        let samples = (0..processes).map(|process| ProcessRow {
            pid: 1_000 + process,
            stamp_us: now_us - u64::from(process % 900) * 1_000,
            sm_pct: if process % 10 == 0 { 37_100 } else { process % 101 },
            mem_pct: process % 101,
            enc_pct: 0,
            dec_pct: 0,
        });
        Self { list: list.collect(), samples: samples.collect(), folded: Vec::new(), processes: Processes::default(), written: Vec::new() }
    }

    /// Once round; returns how many processes come out.
    pub(crate) fn filter(&mut self) -> usize {
        self.processes.read(ListKind::Compute, NOW, &self.list);
        fold(&self.samples, 0, NOW, &mut self.folded);
        self.processes.sampled(&self.folded);
        self.processes.write(NOW, &mut self.written);
        self.written.len()
    }
}
