//! What went wrong in other programs that read these files, by where it was reported.

use std::{
    thread,
    time::{Duration, Instant},
};

use drm_sim::{
    GpuMetrics, Profile, Tree,
    proc::{FdinfoText, Proc},
    profiles::{MI300X, PHOENIX, RX580, RX6900XT},
};
use telemetry::Metrics;
use test_support::eventually;

use crate::machine::{Machine, SECOND_MS};

#[test]
fn nvtop_208_a_pcie_bw_read_of_one_second_delays_no_tick() {
    let tree = Tree::new();
    let card = tree.add(0, &RX580);
    let fifo = card.trap("pcie_bw");
    let mut machine = Machine::open(&tree);
    let feeder = thread::spawn(move || {
        // As the kernel does: the reader waits a second.
        eventually("the reader of pcie_bw", || fifo.has_reader().then_some(()));
        thread::sleep(Duration::from_secs(1));
        fifo.feed("11886 2528 256\n");
    });
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    let mut ticks = 0;
    while machine.metrics(0).pcie_rx_kbps.is_none() {
        let tick = Instant::now();
        machine.tick(10);
        longest = longest.max(tick.elapsed());
        ticks += 1;
        assert!(start.elapsed() < Duration::from_secs(20), "no figure");
        thread::sleep(Duration::from_millis(10));
    }
    feeder.join().unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "the read took its second");
    assert!(ticks > 20 && longest < Duration::from_millis(500), "{ticks} ticks, the longest {longest:?}");
    assert_eq!((machine.metrics(0).pcie_rx_kbps, machine.metrics(0).pcie_tx_kbps), (Some(3_042), Some(647)));
    let spent = machine.lanes[0].device.time_elsewhere();
    assert!(spent > Duration::ZERO && spent < Duration::from_millis(500), "what it cost, not what it slept: {spent:?}");
}

#[test]
fn a_pcie_bw_read_that_never_ends_takes_neither_the_other_figures_nor_the_end_along() {
    let tree = Tree::new();
    let _fifo = tree.add(0, &RX580).trap("pcie_bw");
    let mut machine = Machine::open(&tree);
    machine.run(60 * SECOND_MS);
    assert_eq!((machine.metrics(0).pcie_rx_kbps, machine.metrics(0).temp_c), (None, Some(44)));
    let start = Instant::now();
    drop(machine);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn mangohud_1620_only_power1_input() {
    let tree = Tree::new();
    let card = tree.add(0, &PHOENIX);
    card.remove("hwmon/hwmon6/power1_average");
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    assert_eq!(machine.metrics(0).power_mw, Some(3_142));
}

#[test]
fn power1_average_that_is_there_and_fails_gives_way_to_power1_input() {
    let tree = Tree::new();
    tree.add(0, &PHOENIX).fail_on_read("hwmon/hwmon6/power1_average");
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    assert_eq!(machine.metrics(0).power_mw, Some(3_142));
}

#[test]
fn btop_1794_a_busy_file_that_fails_with_an_activity_of_all_bits_is_absent_and_not_655_per_cent() {
    let tree = Tree::new();
    let card = tree.add(0, &PHOENIX);
    card.fail_on_read("gpu_busy_percent");
    card.set("gpu_metrics", GpuMetrics { version: (2, 1), size: 120, words: &[], throttle: None }.bytes());
    let mut machine = Machine::open(&tree);
    machine.run(SECOND_MS);
    assert_eq!((machine.metrics(0).sm_util_pct, machine.metrics(0).temp_c), (None, Some(25)));
    assert_eq!(machine.lanes[0].reading.sampled, None);
}

#[test]
fn a_busy_file_that_fails_gives_way_to_the_activity_in_the_table() {
    for (profile, pct) in [(RX6900XT, 3), (MI300X, 88), (PHOENIX, 0)] {
        let tree = Tree::new();
        tree.add(0, &profile).fail_on_read("gpu_busy_percent");
        let mut machine = Machine::open(&tree);
        machine.run(SECOND_MS);
        assert_eq!(machine.metrics(0).sm_util_pct, Some(pct), "{}", profile.name);
    }
}

#[test]
fn qmassa_37_a_missing_mem_busy_percent_takes_nothing_else_along() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    let all = *machine.metrics(0);
    card.remove("mem_busy_percent");
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    assert_eq!(*machine.metrics(0), Metrics { mem_util_pct: None, ..all });
}

#[test]
fn mangohud_2121_gpu_metrics_that_opens_and_fails_on_read() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    let all = *machine.metrics(0);
    card.fail_on_read("gpu_metrics");
    let mut machine = Machine::open(&tree);
    machine.run(SECOND_MS);
    assert_eq!(*machine.metrics(0), Metrics { throttle_reasons: None, ..all });
}

#[test]
fn nvtop_492_an_apu_with_25_gigabytes_in_gtt_and_5_megabytes_in_vram() {
    let tree = Tree::new();
    let card = tree.add(0, &PHOENIX);
    card.set("mem_info_vram_total", "536870912");
    card.set("mem_info_vram_used", (5_u64 << 20).to_string());
    card.set("mem_info_gtt_total", (60_u64 << 30).to_string());
    card.set("mem_info_gtt_used", (25_u64 << 30).to_string());
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    let memory = machine.metrics(0).memory.unwrap();
    assert_eq!((memory.used_bytes, memory.total_bytes), ((25 << 30) + (5 << 20), (60 << 30) + 536_870_912));
}

#[test]
fn ras_counters_that_cannot_be_had_now_are_absent_and_come_back() {
    let tree = Tree::new();
    let card = tree.add(0, &MI300X);
    card.set("ras/umc_err_count", "Query currently inaccessible");
    let mut machine = Machine::open(&tree);
    machine.run(SECOND_MS);
    assert_eq!((machine.metrics(0).ecc_corrected_total, machine.metrics(0).ecc_uncorrected_total), (None, None));
    card.set("ras/umc_err_count", "ue: 0\nce: 7");
    machine.run(58 * SECOND_MS);
    assert_eq!(machine.metrics(0).ecc_corrected_total, None, "looked at no more than once a minute");
    machine.run(2 * SECOND_MS);
    assert_eq!((machine.metrics(0).ecc_corrected_total, machine.metrics(0).ecc_uncorrected_total), (Some(7), Some(0)));
}

/// A driver that registers its sensors anew gives them another number.
#[test]
fn sensors_that_moved_are_found_again() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    card.set("power/control", "on");
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    std::fs::rename(card.path("hwmon/hwmon5"), card.path("hwmon/hwmon7")).unwrap();
    card.set("hwmon/hwmon7/temp1_input", "77000");
    machine.run(40 * SECOND_MS);
    assert_eq!(machine.metrics(0).temp_c, Some(77));
}

/// A known fault of the driver on these APUs.
#[test]
fn a_raven_that_is_stuck_at_100_per_cent_while_nobody_works_is_not_believed() {
    let tree = Tree::new();
    let card = tree.add(0, &Profile { id: "1002:15dd", table: None, ..PHOENIX });
    card.set("gpu_busy_percent", "100");
    let text = |busy_ns| FdinfoText::new("amdgpu", PHOENIX.pci, 1).engine("gfx", busy_ns);
    let client = Proc::new(tree.root()).process(40, "game", 1).open(5, "dev/dri/renderD128", text(1));
    let mut machine = Machine::open(&tree);
    machine.run(SECOND_MS);
    assert_eq!((machine.metrics(0).sm_util_pct, machine.metrics(0).temp_c), (None, Some(25)));
    client.set(text(100_000_001));
    machine.tick(100);
    assert_eq!(machine.metrics(0).sm_util_pct, Some(100), "somebody works");
    // Of other GPUs it is believed: compute does not show in their clients.
    let tree = Tree::new();
    tree.add(0, &PHOENIX).set("gpu_busy_percent", "100");
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    assert_eq!(machine.metrics(0).sm_util_pct, Some(100));
}
