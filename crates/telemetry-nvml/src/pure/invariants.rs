//! Properties that hold for any driver, over the parts together: restarts, wraps, garbage, and a wall clock that is set at any time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use telemetry::Now;

use super::{
    clock::Cursor,
    counter::{Change, Count, Counter, Width},
    link::{nvlink_scale, pcie_scale},
    processes::{ListKind, Processes},
    samples::{ProcessRow, fold},
    stride::ListRow,
};

const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const START_NS: u64 = 7_200_000_000_000;
/// How far ahead of the clock a stamp is believed; whoever publishes it cuts it to now.
const FUTURE_NS: u64 = 1_000_000_000;

/// What a driver does between two readings.
#[derive(Clone, Debug)]
enum Event {
    /// Samples: PID, time before now in µs (or after), percentage.
    Samples(Vec<(u32, i64, u32)>),
    /// The wall clock is set, by so many ms.
    Step(i64),
    /// The driver starts again and its samples with it.
    Restart,
    /// The list names these.
    List(Vec<u32>),
}

fn event() -> impl Strategy<Value = Event> {
    let sample =
        (0_u32..4, prop_oneof![4 => -3_000_000_i64..1_500_000, 1 => any::<i64>()], prop_oneof![4 => 0_u32..=100, 1 => any::<u32>()]);
    prop_oneof![
        4 => prop::collection::vec(sample, 0..12).prop_map(Event::Samples),
        1 => prop_oneof![-3_600_000_i64..3_600_000, -20_i64..20].prop_map(Event::Step),
        1 => Just(Event::Restart),
        2 => prop::collection::vec(1_u32..4, 0..4).prop_map(Event::List),
    ]
}

proptest! {
    #[test]
    fn a_processs_time_never_goes_backwards_nor_far_into_the_future_and_no_percentage_exceeds_100(
        events in prop::collection::vec((event(), 1_u64..2_000), 1..80),
    ) {
        let (mut processes, mut cursor) = (Processes::default(), Cursor::default());
        let mut now = Now { boottime_ns: START_NS, clock_offset_ns: OFFSET_NS };
        let mut last = BTreeMap::new();
        let mut folded = Vec::new();
        for (event, gap_ms) in events {
            now.boottime_ns += gap_ms * 1_000_000;
            match event {
                Event::Step(ms) => now.clock_offset_ns += ms * 1_000_000,
                Event::Restart => cursor = Cursor::default(),
                Event::List(pids) => {
                    let row = |pid| ListRow { pid, used_memory_bytes: Some(1), mig_instance: None, compute_instance: None };
                    processes.read(ListKind::Compute, now, &pids.into_iter().map(row).collect::<Vec<_>>());
                }
                Event::Samples(samples) => {
                    let since_us = cursor.since(now);
                    prop_assert!(since_us <= now.realtime_ns() / 1_000 + 10_000, "a cursor in the future is blind");
                    let row = |(pid, at_us, pct): (u32, i64, u32)| ProcessRow {
                        pid,
                        stamp_us: (now.realtime_ns() / 1_000).saturating_add_signed(at_us),
                        sm_pct: pct,
                        mem_pct: pct / 2,
                        enc_pct: 0,
                        dec_pct: 0,
                    };
                    fold(&samples.into_iter().map(row).collect::<Vec<_>>(), since_us, now, &mut folded);
                    folded.iter().for_each(|(_, sample)| cursor.note(sample.sampled, now));
                    processes.sampled(&folded);
                }
            }
            let mut written = Vec::new();
            processes.write(now, &mut written);
            // A process that left and its PID's next one are two.
            last.retain(|pid, _| written.iter().any(|process| process.pid == *pid));
            for process in &written {
                let Some(used) = process.utilization else { continue };
                prop_assert!(used.sm_pct <= 100 && used.mem_pct <= 100);
                let at_ns = used.sampled.boottime_ns();
                prop_assert!(at_ns <= now.boottime_ns + FUTURE_NS, "{at_ns} at {now:?}");
                let before = last.insert(process.pid, at_ns);
                prop_assert!(before.is_none_or(|before| before <= at_ns), "from {before:?} to {at_ns}");
            }
        }
    }

    #[test]
    fn no_counter_gives_more_than_its_link_carries(
        readings in prop::collection::vec((any::<u64>(), 0_u8..4, 0_u64..5_000_000_000), 1..60),
        generation in 0_u32..8,
        lanes in 0_u32..33,
        is_nvlink in any::<bool>(),
    ) {
        let scale = if is_nvlink { nvlink_scale(1_024) } else { pcie_scale(generation, lanes) };
        let mut counter = Counter::default();
        let (mut now_ns, mut value) = (0, 0_u64);
        for (step, kind, gap_ns) in readings {
            now_ns += gap_ns;
            let width = [Width::Bits64, Width::Bits32, Width::Bits16, Width::Bits64][usize::from(kind)];
            // Growth, now and then a restart from nearly nothing.
            value = if kind == 3 { step % 1_000 } else { value.wrapping_add(step >> 20) };
            let modulus = match width {
                Width::Bits16 => u64::from(u16::MAX),
                Width::Bits32 => u64::from(u32::MAX),
                Width::Bits64 => u64::MAX,
            };
            if let Change::Rate(kbps) = counter.advance(Count { value: value & modulus, width }, now_ns, scale) {
                prop_assert!(kbps <= scale.limit_kbps);
                prop_assert!(width == Width::Bits64 || scale.limit_known, "a wrap that cannot be told");
            }
        }
    }
}
