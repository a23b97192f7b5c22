use telemetry::{Memory, ProcessUtilization};

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const OFFSET: i64 = 1_700_000_000 * S as i64;
/// Everything here happens around an hour after boot.
const NOW: Now = Now { boottime_ns: 3_600 * S, clock_offset_ns: OFFSET };
const HOLD: Duration = Duration::from_millis(500);

fn frame() -> Frame {
    Frame { now: NOW, hold: HOLD, last_stamp_ns: 0, helper_pid: 77 }
}

/// A time before `NOW`, read with the same offset.
fn ago(age_ns: u64) -> Stamp {
    Stamp { realtime_ns: NOW.realtime_ns() - age_ns, clock_offset_ns: OFFSET }
}

fn process(pid: u32, memory: u64) -> Process {
    Process { pid, used_memory_bytes: Some(memory), ..Process::default() }
}

fn busy(pid: u32, memory: u64, sm_pct: u32, age_ns: u64) -> Process {
    let utilization = ProcessUtilization { sampled: ago(age_ns), sm_pct, mem_pct: sm_pct / 2, enc_pct: 1, dec_pct: 2 };
    Process { utilization: Some(utilization), ..process(pid, memory) }
}

fn device(index: u32, processes: Vec<Process>) -> DeviceReading {
    DeviceReading {
        index,
        answered_boottime_ns: NOW.boottime_ns - 10 * MS,
        read: Some(ago(9 * MS)),
        lost: false,
        time_in_source_ns: 0,
        reading: Reading { processes, sampled: Some(ago(70 * MS)), ..Reading::default() },
        edition: None,
    }
}

fn round(devices: Vec<DeviceReading>) -> Round {
    Round { started_boottime_ns: NOW.boottime_ns - 10 * MS, has_news: true, skipped_ticks: 0, devices }
}

fn build_with(devices: Vec<DeviceReading>, frame: &Frame) -> RecordBuilder {
    let mut builder = RecordBuilder::default();
    builder.fill(&[Part::whole(&round(devices))], frame);
    builder
}

fn build(devices: Vec<DeviceReading>) -> RecordBuilder {
    build_with(devices, &frame())
}

#[test]
fn every_metric_has_its_field_and_what_is_absent_is_zero() {
    let mut device = device(1, vec![]);
    device.reading.metrics = Metrics {
        sm_util_pct: Some(1),
        mem_util_pct: Some(2),
        memory: Some(Memory { total_bytes: 3, used_bytes: 4, reserved_bytes: 5 }),
        temp_c: Some(6),
        power_mw: Some(7),
        sm_clock_mhz: Some(8),
        mem_clock_mhz: Some(9),
        throttle_reasons: Some(1 << 63 | 10),
        pcie_tx_kbps: Some(11),
        pcie_rx_kbps: Some(12),
        enc_util_pct: Some(13),
        dec_util_pct: Some(14),
        nvlink_tx_kbps: Some(15),
        nvlink_rx_kbps: Some(16),
        ecc_corrected_total: Some(17),
        ecc_uncorrected_total: Some(18),
        fan_speed_pct: Some(19),
        compute_mode: Some(20),
    };
    let records = build(vec![device]).records;
    let expected = GpuDeviceMetrics {
        timestamp_ns: ago(70 * MS).realtime_ns,
        sm_util_pct: 1,
        mem_util_pct: 2,
        mem_total: 3,
        mem_used: 4,
        mem_reserved: 5,
        temp_c: 6,
        power_mw: 7,
        sm_clock_mhz: 8,
        mem_clock_mhz: 9,
        throttle_reasons: 1 << 63 | 10,
        pcie_tx_kbps: 11,
        pcie_rx_kbps: 12,
        enc_util_pct: 13,
        dec_util_pct: 14,
        nvlink_tx_kbps: 15,
        nvlink_rx_kbps: 16,
        ecc_corrected_total: 17,
        ecc_uncorrected_total: 18,
        fan_speed_pct: 19,
        compute_mode: 20,
    };
    assert_eq!(records.devices[1], expected);
    assert_eq!(records.devices[0], GpuDeviceMetrics::default());
    let absent = build(vec![self::device(0, vec![])]).records.devices[0];
    assert_eq!(absent, GpuDeviceMetrics { timestamp_ns: ago(70 * MS).realtime_ns, ..GpuDeviceMetrics::default() });
    assert_eq!(metrics_present(&Metrics::default()), 1);
    assert_eq!(metrics_present(&Metrics { compute_mode: Some(0), temp_c: Some(0), ..Metrics::default() }), 1 | 1 << 6 | 1 << 20);
}

#[test]
fn percentages_over_100_are_cut() {
    let mut device = device(0, vec![busy(5, 1, 37_100, 0)]);
    device.reading.metrics = Metrics { fan_speed_pct: Some(127), sm_util_pct: Some(101), ..Metrics::default() };
    let records = build(vec![device]).records;
    assert_eq!((records.devices[0].fan_speed_pct, records.devices[0].sm_util_pct), (100, 100));
    assert_eq!(records.processes[0].1.sm_util_pct_max, 100);
}

#[test]
fn a_device_without_a_sample_time_has_the_time_of_its_reading() {
    let mut device = device(0, vec![]);
    device.reading.sampled = None;
    assert_eq!(build(vec![device]).records.devices[0].timestamp_ns, ago(9 * MS).realtime_ns);
}

#[test]
fn a_device_that_answered_nothing_yet_leaves_its_slot_empty() {
    let mut silent = device(0, vec![process(5, 1)]);
    silent.read = None;
    let built = build(vec![silent, device(1, vec![])]);
    assert_eq!(built.records.devices[0], GpuDeviceMetrics::default());
    assert_eq!((built.records.meta.n_devices, built.records.processes.len()), (1, 0));
}

#[test]
fn a_silent_device_is_held_and_then_removed_with_its_processes() {
    let silent_since = |age_ns: u64| {
        let silent = DeviceReading { answered_boottime_ns: NOW.boottime_ns - age_ns, ..device(0, vec![process(5, 1)]) };
        let built = build(vec![silent, device(1, vec![process(6, 1)])]);
        (built.records.devices[0].timestamp_ns > 0, built.records.meta.n_devices, built.records.processes.len())
    };
    assert_eq!(silent_since(500 * MS), (true, 2, 2));
    assert_eq!(silent_since(501 * MS), (false, 1, 1));
}

#[test]
fn a_device_beyond_the_slots_is_not_published() {
    let built = build(vec![device(15, vec![process(5, 1)]), device(16, vec![process(6, 1)])]);
    assert_eq!((built.records.meta.n_devices, built.records.process_devices.len()), (1, 1));
}

#[test]
fn a_process_is_summed_over_its_devices() {
    let records = build(vec![device(2, vec![busy(9, 100, 30, S), process(5, 7)]), device(0, vec![busy(9, 50, 80, 500 * MS)])]).records;
    let keys: Vec<_> = records.process_devices.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [5 << 32 | 2, 9 << 32, 9 << 32 | 2]);
    let both = GpuPidMetricsAggregated {
        timestamp_ns: ago(500 * MS).realtime_ns,
        used_gpu_memory_total: 150,
        sm_util_pct_max: 80,
        mem_util_pct_max: 40,
        gpu_device_primary: 0xff,
        device_count: 2,
        ..GpuPidMetricsAggregated::default()
    };
    let one =
        GpuPidMetricsAggregated { used_gpu_memory_total: 7, gpu_device_primary: 2, device_count: 1, ..GpuPidMetricsAggregated::default() };
    assert_eq!(records.processes, [(5, one), (9, both)]);
}

#[test]
fn mig_instances_of_one_process_are_folded_into_the_larger() {
    let instance = |mig_instance, memory, sm, age| Process { mig_instance: Some(mig_instance), ..busy(9, memory, sm, age) };
    let records = build(vec![device(0, vec![instance(3, 10, 70, 2 * MS), instance(7, 90, 20, MS)])]).records;
    let expected = GpuPidMetrics {
        timestamp_ns: ago(MS).realtime_ns,
        used_gpu_memory: 100,
        sm_util_pct: 70,
        mem_util_pct: 35,
        enc_util_pct: 1,
        dec_util_pct: 2,
        gpu_device: 0,
        mig_instance: 7,
        ..GpuPidMetrics::default()
    };
    assert_eq!(records.process_devices, [(9 << 32, expected)]);
    assert_eq!(records.processes[0].1.device_count, 1);
}

#[test]
fn unattributed_pids_and_unavailable_memory_are_not_published() {
    let records = build(vec![device(0, vec![process(0, 1), process(u32::MAX, 1), process(5, u64::MAX)])]).records;
    assert_eq!(records.processes.len(), 1);
    assert_eq!(records.processes[0].1.used_gpu_memory_total, 0);
}

#[test]
fn a_sample_counts_for_two_seconds_or_two_and_a_half_periods_and_then_is_zero() {
    let sm_at = |age_ns, period: Option<Duration>| {
        let mut device = device(0, vec![busy(9, 1, 80, age_ns)]);
        device.reading.process_sample_period = period;
        let record = build(vec![device]).records.process_devices[0].1;
        assert_eq!(record.timestamp_ns, ago(age_ns).realtime_ns, "its last sample time is kept");
        record.sm_util_pct
    };
    assert_eq!(sm_at(2 * S, None), 80);
    assert_eq!(sm_at(2 * S + 1, None), 0);
    let period = Some(Duration::from_secs(1));
    assert_eq!((sm_at(2_500 * MS, period), sm_at(2_500 * MS + 1, period)), (80, 0));
}

#[test]
fn a_process_without_a_sample_has_memory_and_no_time() {
    let record = build(vec![device(0, vec![process(9, 5)])]).records.process_devices[0].1;
    assert_eq!(record, GpuPidMetrics { used_gpu_memory: 5, ..GpuPidMetrics::default() });
}

#[test]
fn samples_from_before_a_clock_step_are_moved_with_it() {
    for step in [-3_600 * S as i64, -20 * MS as i64, 20 * MS as i64, 3_600 * S as i64] {
        let now = Now { clock_offset_ns: OFFSET + step, ..NOW };
        let built = build_with(vec![device(0, vec![busy(9, 1, 80, MS)])], &Frame { now, ..frame() });
        let boottime = |timestamp_ns: u64| NOW.boottime_ns as i64 - (timestamp_ns as i64 - now.clock_offset_ns);
        assert_eq!(boottime(built.records.devices[0].timestamp_ns), 70 * MS as i64, "step {step}");
        assert_eq!(boottime(built.records.process_devices[0].1.timestamp_ns), MS as i64, "step {step}");
        assert_eq!(built.records.process_devices[0].1.sm_util_pct, 80);
    }
}

#[test]
fn a_slewing_clock_leaves_the_sources_own_times_alone() {
    let now = Now { clock_offset_ns: OFFSET + 9 * MS as i64, ..NOW };
    let built = build_with(vec![device(0, vec![])], &Frame { now, ..frame() });
    assert_eq!(built.records.devices[0].timestamp_ns, ago(70 * MS).realtime_ns);
}

#[test]
fn no_record_is_later_than_the_stamp_and_the_stamp_not_later_than_now() {
    let mut future = device(0, vec![]);
    future.reading.sampled = Some(Stamp { realtime_ns: NOW.realtime_ns() + 900 * MS, clock_offset_ns: OFFSET });
    let records = build(vec![future]).records;
    assert_eq!(records.meta.last_update_boottime_ns, NOW.boottime_ns);
    assert_eq!(records.devices[0].timestamp_ns, NOW.realtime_ns());

    let records = build(vec![device(0, vec![busy(9, 1, 80, 3 * MS)])]).records;
    assert_eq!(records.meta.last_update_boottime_ns, NOW.boottime_ns - 3 * MS, "the newest sample");
    let records = build(vec![device(0, vec![])]).records;
    assert_eq!(records.meta.last_update_boottime_ns, NOW.boottime_ns - 10 * MS, "before the first read");
}

#[test]
fn the_stamp_does_not_run_backwards() {
    let last_stamp_ns = NOW.boottime_ns - 2 * MS;
    let built = build_with(vec![device(0, vec![])], &Frame { last_stamp_ns, ..frame() });
    assert_eq!(built.records.meta.last_update_boottime_ns, last_stamp_ns);
    let expected = GpuMeta {
        schema_version: 1,
        n_devices: 1,
        last_update_boottime_ns: last_stamp_ns,
        helper_pid: 77,
        _reserved: 0,
        clock_offset_ns: OFFSET,
    };
    assert_eq!(built.records.meta, expected);
}

#[test]
fn sources_side_by_side_have_their_devices_behind_each_other() {
    let shared = busy(9, 100, 30, 20 * MS);
    let first = round(vec![device(0, vec![shared, process(5, 1)]), device(1, vec![])]);
    let mut second = round(vec![device(0, vec![busy(9, 50, 60, 40 * MS)]), device(14, vec![process(6, 1)])]);
    second.started_boottime_ns = NOW.boottime_ns - 12 * MS;
    let build = |news: [News; 2]| {
        let parts = [Part { first_index: 0, news: news[0], round: &first }, Part { first_index: 2, news: news[1], round: &second }];
        let mut builder = RecordBuilder::default();
        builder.fill(&parts, &frame());
        builder.records
    };
    let records = build([News::InTime; 2]);
    let used: Vec<_> = records.devices.iter().map(|record| record.timestamp_ns > 0).collect();
    assert_eq!(used, (0..16).map(|index| index < 3).collect::<Vec<_>>(), "the fourth has an index beyond the slots");
    assert_eq!(records.meta.n_devices, 3);
    let keys: Vec<_> = records.process_devices.iter().map(|(key, record)| (*key >> 32, *key as u32, record.gpu_device)).collect();
    assert_eq!(keys, [(5, 0, 0), (9, 0, 0), (9, 2, 2)]);
    let (_, both) = records.processes[1];
    assert_eq!((both.used_gpu_memory_total, both.sm_util_pct_max, both.device_count, both.gpu_device_primary), (150, 60, 2, 0xFF));

    let stamp = |news| NOW.boottime_ns - build(news).meta.last_update_boottime_ns;
    assert_eq!(stamp([News::InTime; 2]), 12 * MS, "the earliest of those with news");
    for other in [News::Late, News::Nothing] {
        assert_eq!(
            (stamp([other, News::InTime]), stamp([News::InTime, other])),
            (12 * MS, 10 * MS),
            "whoever is late does not make it older"
        );
    }
    assert_eq!(stamp([News::Nothing; 2]), 20 * MS, "the newest sample");
}

#[test]
fn with_too_many_processes_those_with_the_most_memory_are_published() {
    // Two devices each with 2,500 processes, 1,000 of them on both: 4,000 PIDs, 5,000 entries.
    let on = |index: u32| device(index, (1..=2_500).map(|i| process(i + index * 1_500, u64::from(i + index * 1_500))).collect());
    let first = build(vec![on(0), on(1)]);
    let second = build(vec![on(1), on(0)]);
    assert_eq!(first.records, second.records, "the same choice every tick");
    let records = &first.records;
    assert!(records.process_devices.len() <= 3_968);
    assert_eq!(records.processes.len() + first.left_out, 4_000);
    let pids: std::collections::BTreeSet<_> = records.process_devices.iter().map(|(key, _)| (*key >> 32) as u32).collect();
    assert!(records.processes.iter().map(|(pid, _)| *pid).eq(pids.iter().copied()), "the same processes in both maps");
    let least = records.processes.iter().map(|(_, record)| record.used_gpu_memory_total).min().unwrap();
    let left_out =
        (1..=4_000_u32).filter(|pid| !pids.contains(pid)).map(|pid| u64::from(pid) * if (1_501..=2_500).contains(&pid) { 2 } else { 1 });
    assert!(left_out.max().unwrap() <= least);
    assert!(records.process_devices.is_sorted_by_key(|(key, _)| *key));
    let full = build(vec![device(0, (1..=3_968).map(|pid| process(pid, 1)).collect())]);
    assert_eq!((full.records.processes.len(), full.left_out), (3_968, 0));
}

#[test]
fn processes_of_an_edition_that_is_known_are_not_looked_at_again_while_nothing_expires() {
    let mut builder = RecordBuilder::default();
    let mut round = round(vec![device(0, vec![busy(5, 100, 40, 0)])]);
    round.devices[0].edition = Some(Edition::new());
    let mut sm_after = |round: &mut Round, ms: u64| {
        let now = Now { boottime_ns: NOW.boottime_ns + ms * MS, ..NOW };
        round.devices[0].answered_boottime_ns = now.boottime_ns;
        builder.fill(&[Part::whole(round)], &Frame { now, ..frame() });
        builder.records.process_devices[0].1.sm_util_pct
    };
    assert_eq!(sm_after(&mut round, 0), 40);
    // Against the rule, to see whether anybody looks.
    round.devices[0].reading.processes[0].utilization.as_mut().unwrap().sm_pct = 41;
    assert_eq!(sm_after(&mut round, 2_000), 40);
    assert_eq!(sm_after(&mut round, 2_001), 0, "too old");
    round.devices[0].reading.processes[0].utilization.as_mut().unwrap().sampled = ago(0);
    round.devices[0].edition = Some(Edition::new());
    assert_eq!(sm_after(&mut round, 1_000), 41);
    round.devices[0].edition = None;
    round.devices[0].reading.processes[0].utilization.as_mut().unwrap().sm_pct = 42;
    assert_eq!(sm_after(&mut round, 1_000), 42, "who does not know is asked");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn any_stamp() -> impl Strategy<Value = Stamp> {
        let realtime = prop_oneof![Just(0), any::<u64>(), (0..4 * S).prop_map(|age| NOW.realtime_ns() + S - age)];
        let offset = prop_oneof![Just(OFFSET), OFFSET - 7_200 * S as i64..OFFSET + 7_200 * S as i64, any::<i64>()];
        (realtime, offset).prop_map(|(realtime_ns, clock_offset_ns)| Stamp { realtime_ns, clock_offset_ns })
    }

    fn any_process() -> impl Strategy<Value = Process> {
        let utilization = (any_stamp(), any::<u32>(), 0..200_u32).prop_map(|(sampled, sm_pct, mem_pct)| ProcessUtilization {
            sampled,
            sm_pct,
            mem_pct,
            enc_pct: 0,
            dec_pct: 0,
        });
        (0..40_u32, prop::option::of(0..8_u8), prop::option::of(any::<u64>()), prop::option::of(utilization))
            .prop_map(|(pid, mig_instance, used_memory_bytes, utilization)| Process { pid, mig_instance, used_memory_bytes, utilization })
    }

    fn any_device() -> impl Strategy<Value = DeviceReading> {
        let processes = prop::collection::vec(any_process(), 0..30);
        (0..20_u32, 0..2 * S, prop::option::of(any_stamp()), prop::option::of(any_stamp()), processes).prop_map(
            |(index, silence, read, sampled, processes)| DeviceReading {
                index,
                answered_boottime_ns: NOW.boottime_ns - silence,
                read,
                lost: false,
                time_in_source_ns: 0,
                reading: Reading { processes, sampled, ..Reading::default() },
                edition: None,
            },
        )
    }

    /// What is another in a round than in the one before.
    #[derive(Clone, Debug)]
    struct Change {
        later_ns: u64,
        clock_step_ns: i64,
        answers: bool,
        processes: Option<Vec<Process>>,
        sample_period: Option<Duration>,
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let step = prop_oneof![6 => Just(0), 2 => -20 * MS as i64..20 * MS as i64, 1 => Just(-3_600 * S as i64)];
        let processes = prop_oneof![3 => Just(None), 1 => prop::collection::vec(any_process(), 0..10).prop_map(Some)];
        let period = prop_oneof![4 => Just(None), 1 => Just(Some(S)), 1 => Just(Some(2 * S))].prop_map(|ns| ns.map(Duration::from_nanos));
        let later = prop_oneof![3 => 0..200 * MS, 1 => 0..3 * S];
        (later, step, prop::bool::weighted(0.9), processes, period).prop_map(
            |(later_ns, clock_step_ns, answers, processes, sample_period)| Change {
                later_ns,
                clock_step_ns,
                answers,
                processes,
                sample_period,
            },
        )
    }

    proptest! {
        #[test]
        fn records_do_not_depend_on_what_was_built_before(changes in prop::collection::vec((0..2_usize, any_change()), 1..20)) {
            let mut builder = RecordBuilder::default();
            let mut devices = vec![device(0, vec![]), device(3, vec![])];
            let mut now = NOW;
            for (index, change) in changes {
                now.boottime_ns += change.later_ns;
                now.clock_offset_ns += change.clock_step_ns;
                let device = &mut devices[index];
                device.reading.process_sample_period = change.sample_period;
                if change.answers {
                    device.answered_boottime_ns = now.boottime_ns;
                }
                if let Some(processes) = change.processes {
                    device.reading.processes = processes;
                    device.edition = Some(Edition::new());
                }
                let (round, frame) = (round(devices.clone()), Frame { now, ..frame() });
                builder.fill(&[Part::whole(&round)], &frame);
                let afresh = build_with(devices.clone(), &frame);
                prop_assert_eq!(&builder.records, &afresh.records);
            }
        }

        #[test]
        fn whatever_a_source_says_the_contract_holds(devices in prop::collection::vec(any_device(), 0..4), offset in any::<i64>()) {
            let mut devices = devices;
            devices.sort_by_key(|device| device.index);
            devices.dedup_by_key(|device| device.index);
            let now = Now { clock_offset_ns: offset, ..NOW };
            for now in [NOW, now] {
                let records = build_with(devices.clone(), &Frame { now, ..frame() }).records;
                let stamp = records.meta.last_update_boottime_ns;
                prop_assert!(stamp <= now.boottime_ns);
                let times = records.devices.iter().map(|r| r.timestamp_ns).chain(records.process_devices.iter().map(|(_, r)| r.timestamp_ns));
                for timestamp_ns in times.filter(|&time| time > 0 && now == NOW) {
                    prop_assert!(timestamp_ns as i64 - now.clock_offset_ns <= stamp as i64);
                }
                prop_assert!(records.process_devices.iter().all(|(_, r)| r.sm_util_pct <= 100 && r.mem_util_pct <= 100));
                prop_assert!(records.process_devices.is_sorted_by(|(a, _), (b, _)| a < b));
                prop_assert!(records.processes.is_sorted_by(|(a, _), (b, _)| a < b));
                prop_assert_eq!(records.devices.iter().filter(|r| r.timestamp_ns > 0).count() as u32, records.meta.n_devices);
                let counted: usize = records.processes.iter().map(|(_, r)| usize::from(r.device_count)).sum();
                prop_assert_eq!(counted, records.process_devices.len());
            }
        }
    }
}
