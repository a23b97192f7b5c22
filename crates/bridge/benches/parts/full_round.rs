//! A round as a full machine gives it, for the criterion bench and the instruction count.

use std::time::Duration;

use bridge::{
    records::{Frame, Part, RecordBuilder},
    sampler::{DeviceReading, Round},
};
use telemetry::{Memory, Metrics, Now, Process, ProcessUtilization, Reading, Stamp};

const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const NOW: Now = Now { boottime_ns: 3_600_000_000_000, clock_offset_ns: OFFSET_NS };
const MS: u64 = 1_000_000;

/// A round, and who makes records of it.
pub(crate) struct FullRound {
    round: Round,
    builder: RecordBuilder,
}

impl FullRound {
    /// So many GPUs with so many processes each, no process on two of them.
    pub(crate) fn new(gpus: u32, processes: u32) -> Self {
        let devices = (0..gpus).map(|gpu| device(gpu, processes)).collect();
        let round = Round { started_boottime_ns: NOW.boottime_ns - 2 * MS, has_news: true, skipped_ticks: 0, devices };
        Self { round, builder: RecordBuilder::default() }
    }

    /// Makes the records; returns how many processes they are of.
    pub(crate) fn fill(&mut self) -> usize {
        let frame = Frame { now: NOW, hold: Duration::from_millis(500), last_stamp_ns: 0, helper_pid: 1 };
        self.builder.fill(&[Part::whole(&self.round)], &frame);
        self.builder.records.processes.len()
    }
}

fn ago(ms: u64) -> Stamp {
    Stamp { realtime_ns: NOW.realtime_ns() - ms * MS, clock_offset_ns: OFFSET_NS }
}

fn device(index: u32, processes: u32) -> DeviceReading {
    let processes = (0..processes).map(|process| Process {
        // PIDs of one GPU lie between those of the others, as they do where jobs come and go.
        pid: 1_000 + process * 64 + index,
        mig_instance: None,
        used_memory_bytes: Some(u64::from(process + 1) << 24),
        utilization: Some(ProcessUtilization {
            sampled: ago(u64::from(process % 900)),
            sm_pct: process % 101,
            mem_pct: process % 51,
            enc_pct: 0,
            dec_pct: 0,
        }),
    });
    let memory = Memory { total_bytes: 80 << 30, used_bytes: 30 << 30, reserved_bytes: 1 << 29 };
    let metrics = Metrics { sm_util_pct: Some(70), memory: Some(memory), power_mw: Some(300_000), ..Metrics::default() };
    DeviceReading {
        index,
        answered_boottime_ns: NOW.boottime_ns - MS,
        read: Some(ago(1)),
        lost: false,
        time_in_source_ns: 0,
        reading: Reading { metrics, sampled: Some(ago(90)), processes: processes.collect(), ..Reading::default() },
        // So that the processes are looked at every time.
        edition: None,
    }
}
