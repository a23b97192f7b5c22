//! Everything that NVML has been seen to do, and what is read of it.

use std::{
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use nvml_sim::scenario::behaviours::{self, Behaviour};
use telemetry::{Answer, DeviceError, Metrics, Process, Reading, Stamp};

use crate::machine::{Gpu, Machine};

/// By behaviour: what opening says where it fails, else what is read of each device, in [`told`]'s words.
const EXPECTED: &[(&str, &[&str])] = &[
    ("a_process_is_sampled_once_a_second", &["temp 40 | 4711 1024M 70/30"]),
    ("nothing_is_newer_than_the_last_sample", &["temp 40 | 4711 1024M 70/30"]),
    ("the_first_answer_holds_samples_of_long_ago", &["temp 40 | 4711 1024M 70/30 of long ago"]),
    ("a_count_query_answers_the_capacity", &["temp 40 | 4711 1024M 70/30"]),
    ("a_process_has_several_new_samples", &["temp 40 | 4711 1024M 70/30"]),
    ("garbage_stands_among_the_samples", &["temp 40 | 4711 1024M 70/30"]),
    ("process_utilization_is_not_supported", &["temp 40 | 4711 1024M"]),
    ("the_older_process_utilization_is_missing", &["temp 40 | 4711 1024M 70/30"]),
    ("the_samples_grow_between_calls", &["temp 40 | 4711 1024M 70/30"]),
    ("the_samples_name_another_pid", &["temp 40 | 4711 1024M"]),
    ("the_lists_are_refused", &["temp 40 | 4711 70/30"]),
    ("a_process_stands_in_every_list", &["temp 40 | 4711 3072M"]),
    ("used_memory_is_not_available", &["temp 40 | 4711"]),
    ("the_lists_grow_between_calls", &["temp 40 | 40 processes of 780M"]),
    ("an_early_r535_writes_wide_rows", &["temp 40 | 40 processes of 780M"]),
    ("instances_are_all_ones_without_mig", &["temp 40 | 4711 1024M"]),
    (
        "a_mig_parent_lists_its_instances",
        &[
            "memory 40960/0/518 temp 33 power 49680 clocks 210/1215 reasons 1 pcie 0.0/0.0 nvlink 0.0/0.0 ecc 0/0 mode 0 | 4711 1024M in 1 | 4711 512M in 5",
        ],
    ),
    (
        "a_mig_parent_refuses_its_lists",
        &[
            "memory 40960/0/518 temp 33 power 49680 clocks 210/1215 reasons 1 pcie 0.0/0.0 nvlink 0.0/0.0 ecc 0/0 mode 0 | 4711 1024M in 1 | 4711 512M in 5",
        ],
    ),
    (
        "a_process_is_in_two_compute_instances",
        &["memory 40960/0/518 temp 33 power 49680 clocks 210/1215 reasons 1 pcie 0.0/0.0 nvlink 0.0/0.0 ecc 0/0 mode 0 | 4711 1536M in 1"],
    ),
    (
        "memory_is_integrated",
        &["sm 0 of the driver's time mem 0 temp 41 power 11200 clocks 208/- reasons 1 enc 0 dec 0 pcie 0.0/0.0 mode 0"],
    ),
    ("a_board_is_cooled_passively", &["temp 40"]),
    ("a_fan_turns_faster_than_nominal", &["temp 40 fan 100"]),
    ("ecc_is_off", &["temp 40"]),
    ("a_jetson_answers_zeros", &["sm 0 of the driver's time mem 0 temp 40 power 0"]),
    ("one_metric_fails", &["temp 40 mode 3"]),
    ("memory_of_version_2_is_refused", &["memory of 1000 B, 350 used, 0 reserved temp 40"]),
    ("event_reasons_have_their_older_name", &["temp 40 reasons 8000000000000004"]),
    ("codes_of_newer_drivers", &["temp 40 mode 3"]),
    ("a_name_is_broken_utf8", &["temp 40"]),
    ("utilization_has_its_own_times", &["sm 71 of the driver's time mem 53 temp 40"]),
    ("utilization_has_no_times", &["sm 61 of now mem 12 temp 40"]),
    ("garbage_stands_in_the_utilization", &["sm 33 of the driver's time temp 40"]),
    ("pcie_counters_of_64_bits", &["temp 40 pcie 1.0/0.5"]),
    ("pcie_counters_of_32_bits_on_a_fast_link", &["temp 40 pcie 1.0/0.5"]),
    ("pcie_counters_of_32_bits_on_a_slow_link", &["temp 40 pcie 1.0/0.5"]),
    ("pcie_counters_are_missing", &["temp 40 pcie 1.0/0.5"]),
    ("values_of_type_6", &["temp 40 pcie 1.0/0.5"]),
    ("the_pcie_call_hangs", &["temp 40"]),
    ("nvlinks_are_counted_together", &["temp 40 nvlink 2.0/1.0"]),
    ("nvlinks_are_counted_each", &["temp 40 nvlink 2.0/1.0"]),
    ("nvlinks_are_counted_in_bytes", &["temp 40 nvlink 2.0/1.0"]),
    (
        "gpus_have_no_handle",
        &[
            "lost: GPU is lost (15)",
            "lost: insufficient external power (8)",
            "lost: GPU requires a reset (16)",
            "lost: unknown error (999)",
            "lost: no data (21)",
            "temp 40",
        ],
    ),
    ("a_gpu_is_lost", &["lost: GPU is lost (15)", "temp 40"]),
    ("everything_is_unknown", &["failed: unknown error (999)"]),
    ("everything_becomes_unknown", &["lost: unknown error (999)"]),
    ("the_driver_is_unloaded", &["source gone: driver not loaded (9)"]),
    ("the_library_is_uninitialized", &["source gone: NVML is not initialised (1)"]),
    ("the_driver_is_of_another_version", &["failed: driver/library version mismatch (18)"]),
    ("the_driver_is_not_loaded", &["not available: driver not loaded (9)"]),
    ("more_gpus_than_slots", &["temp 40"; 18]),
    (
        "a_driver_of_version_470",
        &[
            "sm 71 of the driver's time mem 53 memory 40960/14171/0 temp 66 power 287654 clocks 1410/1215 reasons 8000000000000004 enc 21 dec 17 pcie 4.5/2.5 nvlink 24.0/12.0 ecc 12345/6 mode 0 | 4711 1024M 70/30",
        ],
    ),
    ("calls_cost_time", &["temp 40 | 4711 1024M 70/30"]),
    ("calls_cost_cpu_time", &["temp 40 | 4711 1024M 70/30"]),
    ("calls_hold_one_lock", &["temp 40 | 4711 1024M 70/30"; 2]),
    (
        "a_laptops_graphics_list_is_slow",
        &[
            "sm 0 of the driver's time mem 0 memory 16376/0/384 temp 45 power 14300 clocks 210/405 reasons 1 enc 0 dec 0 pcie 0.0/0.0 mode 0 | 4711 1024M",
        ],
    ),
    ("unsupported_fields_are_dear", &["temp 40"]),
];

/// Behaviours of which a call does not return: nothing can be asked from this thread. The whole bridge is shown to live with it.
const HANGING: &[&str] = &["a_gpu_hangs"];

#[test]
fn each_behaviour_reads_as_what_it_is() {
    let behaviours: Vec<_> = behaviours::ALL.iter().map(|behaviour| behaviour()).collect();
    let names: Vec<_> = behaviours.iter().map(|behaviour| behaviour.name).filter(|name| !HANGING.contains(name)).collect();
    let expected: Vec<_> = EXPECTED.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected, "a row for each behaviour");
    // Most of the time is waiting.
    thread::scope(|scope| {
        for (behaviour, (_, expected)) in behaviours.iter().filter(|behaviour| !HANGING.contains(&behaviour.name)).zip(EXPECTED) {
            let check = thread::Builder::new().name(behaviour.name.to_owned());
            check.spawn_scoped(scope, move || check_behaviour(behaviour, expected)).expect("a thread");
        }
    });
}

#[track_caller]
fn check_behaviour(behaviour: &Behaviour, expected: &[&str]) {
    let machine = Machine::without(behaviour.hidden, &behaviour.scenario);
    let mut gpus: Vec<_> = match machine.try_open() {
        Ok(open) => open.devices.into_iter().map(Gpu::new).collect(),
        Err(error) => {
            let kind = if matches!(error, telemetry::OpenError::Failed(_)) { "failed" } else { "not available" };
            return check_error(behaviour.name, &format!("{kind}: {error}"), expected);
        }
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    // Rates need two readings, the blocking PCIe call its time; and then it stays so, but for rates that a busy machine disturbs.
    let mut settled = 0;
    loop {
        let told: Vec<_> = gpus.iter_mut().map(round).collect();
        let rates_aside = |told: &str| told.split(' ').filter(|word| !word.contains('.')).collect::<Vec<_>>().join(" ");
        let is_as_expected = match settled {
            0 => told == expected,
            _ => told.iter().map(|told| rates_aside(told)).eq(expected.iter().map(|expected| rates_aside(expected))),
        };
        assert!(settled == 0 || is_as_expected, "{}: was {expected:#?} and became {told:#?}", behaviour.name);
        settled += u32::from(is_as_expected);
        if settled == 5 {
            return;
        }
        assert!(Instant::now() < deadline, "{}: expected {expected:#?}, found {told:#?}", behaviour.name);
        thread::sleep(Duration::from_millis(200));
    }
}

#[track_caller]
fn check_error(name: &str, error: &str, expected: &[&str]) {
    let [expected] = expected else { panic!("{name} does not open: {error}") };
    let (kind, code) = expected.split_once(": ").expect("a kind and a code");
    assert!(error.starts_with(kind) && error.contains(code), "{name}: expected {expected}, found {error}");
}

/// Asks everything once and tells what is known then.
fn round(gpu: &mut Gpu) -> String {
    let probes: Vec<_> = gpu.device.probes().iter().map(|probe| probe.name).collect();
    let mut utilization_asked = gpu.now.stamp();
    for name in probes {
        gpu.now_is_now();
        if name == "utilization" {
            utilization_asked = gpu.now.stamp();
        }
        match gpu.try_ask(name) {
            Ok(Answer::Answered | Answer::NotSupported) => {}
            Err(DeviceError::Lost(text)) => return format!("lost: {}", code(&text)),
            Err(DeviceError::SourceGone(text)) => return format!("source gone: {}", code(&text)),
        }
    }
    told(&gpu.reading, gpu, utilization_asked)
}

/// What follows the call's name.
fn code(text: &str) -> &str {
    text.rsplit_once(": ").map_or(text, |(_, code)| code)
}

/// What a reading has, in a few words: memory in MiB, rates in GB/s to the nearest half.
fn told(reading: &Reading, gpu: &Gpu, utilization_asked: Stamp) -> String {
    let Metrics { memory, temp_c, power_mw, sm_clock_mhz, mem_clock_mhz, throttle_reasons, enc_util_pct, dec_util_pct, .. } =
        reading.metrics;
    let metrics = &reading.metrics;
    let mut told = String::new();
    let mut say = |words: &str| write!(told, "{words} ").expect("a string");
    if let Some(sm) = metrics.sm_util_pct {
        let whose = match reading.sampled {
            Some(sampled) if sampled == utilization_asked => "now",
            Some(_) => "the driver's time",
            None => "no time",
        };
        say(&format!("sm {sm} of {whose}"));
    }
    metrics.mem_util_pct.into_iter().for_each(|mem| say(&format!("mem {mem}")));
    if let Some(memory) = memory {
        let mib = [memory.total_bytes, memory.used_bytes, memory.reserved_bytes].map(|bytes| bytes >> 20);
        if mib[0] > 0 {
            say(&format!("memory {}/{}/{}", mib[0], mib[1], mib[2]));
        } else {
            say(&format!("memory of {} B, {} used, {} reserved", memory.total_bytes, memory.used_bytes, memory.reserved_bytes));
        }
    }
    temp_c.into_iter().for_each(|temp| say(&format!("temp {temp}")));
    power_mw.into_iter().for_each(|power| say(&format!("power {power}")));
    if let Some(sm) = sm_clock_mhz {
        say(&format!("clocks {sm}/{}", mem_clock_mhz.map_or("-".to_owned(), |mem| mem.to_string())));
    }
    throttle_reasons.into_iter().for_each(|reasons| say(&format!("reasons {reasons:x}")));
    enc_util_pct.into_iter().for_each(|enc| say(&format!("enc {enc}")));
    dec_util_pct.into_iter().for_each(|dec| say(&format!("dec {dec}")));
    let rates = |name, one: Option<u64>, other: Option<u64>| {
        let half = |kbps: u64| (kbps as f64 / 500_000.0).round() / 2.0;
        one.zip(other).map(|(one, other)| format!("{name} {:.1}/{:.1}", half(one), half(other)))
    };
    rates("pcie", metrics.pcie_tx_kbps, metrics.pcie_rx_kbps).into_iter().for_each(|rates| say(&rates));
    rates("nvlink", metrics.nvlink_tx_kbps, metrics.nvlink_rx_kbps).into_iter().for_each(|rates| say(&rates));
    let ecc = metrics.ecc_corrected_total.zip(metrics.ecc_uncorrected_total);
    ecc.into_iter().for_each(|(corrected, uncorrected)| say(&format!("ecc {corrected}/{uncorrected}")));
    metrics.fan_speed_pct.into_iter().for_each(|fan| say(&format!("fan {fan}")));
    metrics.compute_mode.into_iter().for_each(|mode| say(&format!("mode {mode}")));
    if reading.processes.len() > 4 {
        let memory: u64 = reading.processes.iter().filter_map(|process| process.used_memory_bytes).sum();
        say(&format!("| {} processes of {}M", reading.processes.len(), memory >> 20));
    } else {
        reading.processes.iter().for_each(|process| say(&told_process(process, gpu)));
    }
    told.trim_end().to_owned()
}

fn told_process(process: &Process, gpu: &Gpu) -> String {
    let mut told = format!("| {}", process.pid);
    process.used_memory_bytes.into_iter().for_each(|bytes| write!(told, " {}M", bytes >> 20).expect("a string"));
    process.mig_instance.into_iter().for_each(|instance| write!(told, " in {instance}").expect("a string"));
    if let Some(used) = process.utilization {
        write!(told, " {}/{}", used.sm_pct, used.mem_pct).expect("a string");
        let age_ns = gpu.now.boottime_ns.saturating_sub(used.sampled.boottime_ns());
        if age_ns > 14_000_000_000 {
            told.push_str(" of long ago");
        }
    }
    told
}
