//! An idle card falls asleep although it is asked ten times a second, and nobody wakes it.

use drm_sim::{
    Profile, Tree,
    proc::{FdinfoText, Proc},
    profiles::{A380_I915, B580, MI300X, PHOENIX, RX580, RX6900XT},
};

use proptest::prelude::*;
use test_support::eventually;

use super::Asked;
use crate::DrmOptions;

const AMDGPU_GENTLE: &[&str] =
    &["mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total", "mem_info_gtt_used", "unique_id", "product_name"];
const I915_GENTLE: &[&str] = &["rps_act_freq_mhz"];

/// Drivers with the delays that they set themselves.
const DRIVERS: [(Profile, u64, &[&str]); 3] = [(RX6900XT, 5_000, AMDGPU_GENTLE), (A380_I915, 10_000, I915_GENTLE), (B580, 1_000, &[])];

fn idle(tree: &Tree, profile: &Profile, delay_ms: u64) -> drm_sim::Card {
    let card = tree.add(0, profile);
    card.manage(delay_ms.cast_signed());
    if profile.driver == "amdgpu" {
        card.set("gpu_busy_percent", "0");
    }
    card
}

#[test]
fn an_idle_card_falls_asleep_and_is_not_woken() {
    for (profile, delay_ms, gentle) in DRIVERS {
        let tree = Tree::new();
        let _card = idle(&tree, &profile, delay_ms);
        let mut asked = Asked::open(&tree);
        asked.kernel.state().now_ms = asked.now_ms;
        asked.kernel.manage(delay_ms, gentle);
        asked.run(2 * delay_ms + 3_000);
        assert!(asked.metrics(0).temp_c.is_none(), "{}: it sleeps", profile.name);
        asked.run(120_000);
        let state = asked.kernel.state();
        let power = state.power.as_ref().unwrap();
        assert!(power.sleeps(state.now_ms), "{}", profile.name);
        assert_eq!(power.woken_by, Vec::<String>::new(), "{}", profile.name);
    }
}

#[test]
fn of_a_sleeping_card_nothing_but_its_status_is_read() {
    for (profile, delay_ms, gentle) in DRIVERS {
        let tree = Tree::new();
        let _card = idle(&tree, &profile, delay_ms);
        let mut asked = Asked::open(&tree);
        asked.kernel.state().now_ms = asked.now_ms;
        asked.kernel.manage(delay_ms, gentle);
        asked.run(2 * delay_ms + 3_000);
        let since = asked.now_ms;
        asked.run(60_000);
        assert_eq!(asked.kernel.read_since(since + 1), ["power/runtime_status"], "{}", profile.name);
    }
}

/// Its display or a client that does nothing keeps it awake: it is looked at now and then, and left alone for longer than the delay.
#[test]
fn an_idle_card_that_stays_awake_is_looked_at_rarely_and_wholly() {
    // xe is looked at together with all of /proc, every 5 s at most.
    let cases = [
        (RX6900XT, 5_000, "gpu_busy_percent", 8_000..=9_300),
        (A380_I915, 10_000, "temp1_input", 15_500..=16_800),
        (B580, 1_000, "act_freq", 5_000..=5_100),
        (B580, 6_000, "act_freq", 9_500..=9_600),
    ];
    for (profile, delay_ms, probe, expected) in cases {
        let tree = Tree::new();
        let _card = idle(&tree, &profile, delay_ms);
        let mut asked = Asked::open(&tree);
        asked.run(120_000);
        let looks = asked.kernel.reads_of(probe);
        let quiet = looks.iter().rev().take(5).zip(looks.iter().rev().skip(1)).map(|(later, earlier)| later - earlier);
        for gap in quiet {
            assert!(expected.contains(&gap), "{}: {gap} ms", profile.name);
        }
        // No look leaves a question out, and the questions of a look come together.
        for file in ["temp1_input", "temp2_input"].into_iter().filter(|file| !asked.kernel.reads_of(file).is_empty()) {
            let last = *asked.kernel.reads_of(file).last().unwrap();
            let others = *looks.last().unwrap();
            assert!(last.abs_diff(others) <= 1_000, "{}: {file} at {last}, {probe} at {others}", profile.name);
        }
    }
}

/// Of xe, looks through /proc are what looks at the card go along with. Where there are none, it is looked at all the same.
#[test]
fn an_idle_card_is_looked_at_where_nobody_looks_at_processes() {
    for (profile, delay_ms, gentle) in DRIVERS {
        let tree = Tree::new();
        let _card = idle(&tree, &profile, delay_ms);
        let without_processes = || DrmOptions { root: tree.root().to_owned(), looks_at_processes: false };
        let mut asked = Asked::open_with(without_processes());
        asked.run(60_000);
        let looks = ["temp1_input", "temp2_input"].map(|file| asked.kernel.reads_of(file)).concat();
        let gap = looks[looks.len() - 1] - looks[looks.len() - 2];
        let quiet = delay_ms * 3 / 2 + 500;
        assert!((quiet..=quiet + 1_300).contains(&gap), "{}: {gap} ms, {looks:?}", profile.name);

        let mut asked = Asked::open_with(without_processes());
        asked.kernel.state().now_ms = asked.now_ms;
        asked.kernel.manage(delay_ms, gentle);
        asked.run(2 * delay_ms + 60_000);
        let state = asked.kernel.state();
        let power = state.power.as_ref().unwrap();
        assert!(power.sleeps(state.now_ms) && power.woken_by.is_empty(), "{}: {power:?}", profile.name);
    }
}

#[test]
fn what_makes_no_power_call_is_read_on() {
    let tree = Tree::new();
    let card = idle(&tree, &RX6900XT, 5_000);
    let mut asked = Asked::open(&tree);
    asked.run(4_000);
    card.set("mem_info_vram_used", "4711");
    asked.tick(100);
    assert_eq!(asked.metrics(0).memory.unwrap().used_bytes, 4_711);

    let tree = Tree::new();
    let card = idle(&tree, &A380_I915, 10_000);
    let mut asked = Asked::open(&tree);
    asked.run(4_000);
    card.set("card/gt/gt0/rps_act_freq_mhz", "2450");
    asked.tick(100);
    assert_eq!(asked.metrics(0).sm_clock_mhz, Some(2_450));
}

#[test]
fn a_client_that_works_has_the_card_read_at_once() {
    let tree = Tree::new();
    let _card = idle(&tree, &RX6900XT, 5_000);
    let text = |busy_ns| FdinfoText::new("amdgpu", RX6900XT.pci, 7).engine("gfx", busy_ns);
    let process = Proc::new(tree.root()).process(4_711, "worker", 1_000);
    let client = process.open(5, "dev/dri/renderD128", text(1_000_000));
    let mut asked = Asked::open(&tree);
    asked.run(6_000);
    let looks = asked.kernel.reads_of("temp1_input").len();
    asked.tick(100);
    assert_eq!(asked.kernel.reads_of("temp1_input").len(), looks, "left alone");
    client.set(text(31_000_000));
    asked.tick(100);
    assert_eq!(asked.kernel.reads_of("temp1_input").len(), looks + 1);
    for tick in 2..30 {
        client.set(text(1_000_000 + tick * 30_000_000));
        asked.tick(100);
    }
    assert_eq!(asked.kernel.reads_of("temp1_input").len(), looks + 29, "and as long as it works");
}

#[test]
fn a_card_that_works_is_read_at_every_tick() {
    let tree = Tree::new();
    let card = idle(&tree, &RX6900XT, 5_000);
    card.set("gpu_busy_percent", "1");
    let mut asked = Asked::open(&tree);
    asked.run(60_000);
    assert_eq!(asked.kernel.reads_of("temp1_input").len(), 600);
}

#[test]
fn cards_that_are_never_put_to_sleep_are_read_at_every_tick() {
    type Set = fn(&drm_sim::Card);
    let sets: [Set; 3] =
        [|card| card.set("power/control", "on"), |card| card.set("power/autosuspend_delay_ms", "-1"), |card| card.remove("power/control")];
    for set in sets {
        let tree = Tree::new();
        set(&idle(&tree, &RX6900XT, 5_000));
        let mut asked = Asked::open(&tree);
        asked.run(30_000);
        assert_eq!(asked.kernel.reads_of("temp1_input").len(), 300);
    }
}

#[test]
fn power_management_that_is_turned_on_is_noticed() {
    let tree = Tree::new();
    let card = idle(&tree, &RX6900XT, 5_000);
    card.set("power/control", "on");
    let mut asked = Asked::open(&tree);
    asked.run(10_000);
    card.set("power/control", "auto");
    asked.run(6_000);
    let looks = asked.kernel.reads_of("temp1_input").len();
    asked.run(1_000);
    assert_eq!(asked.kernel.reads_of("temp1_input").len(), looks);
}

/// Counting for a second is use of the card for a second.
#[test]
fn pcie_counters_of_an_idle_card_are_absent() {
    let tree = Tree::new();
    let card = idle(&tree, &RX580, 5_000);
    let mut asked = Asked::open(&tree);
    eventually("the first reading", || {
        asked.tick(1);
        asked.metrics(0).pcie_rx_kbps
    });
    let fifo = card.trap("pcie_bw");
    asked.run(60_000);
    assert!(!fifo.has_reader());
    assert_eq!(asked.metrics(0).pcie_rx_kbps, None);
}

/// Each file once, and those that do not change not again.
#[test]
fn a_tick_reads_each_file_once() {
    for (profile, files) in [(RX6900XT, 10), (RX580, 9), (PHOENIX, 7), (MI300X, 8), (A380_I915, 5), (B580, 5)] {
        let tree = Tree::new();
        tree.add(0, &profile).set("power/control", "on");
        let mut asked = Asked::open(&tree);
        asked.run(2_000);
        let reads = |asked: &Asked| asked.kernel.state().reads.len();
        let before = reads(&asked);
        asked.tick(100);
        assert_eq!(reads(&asked) - before, files, "{}: {:?}", profile.name, asked.kernel.read_since(asked.now_ms));
    }
}

/// xe tells of work by its clients alone, and looking at them wakes it.
#[test]
fn work_on_an_idle_card_of_xe_is_noticed_with_the_next_look_at_all_processes() {
    let tree = Tree::new();
    let _card = idle(&tree, &B580, 1_000);
    let neighbour = tree.add(1, &RX580);
    let proc = Proc::new(tree.root());
    let mut asked = Asked::open(&tree);
    // The neighbour's work goes on, and has /proc looked at in its own time.
    let process = proc.process(4_000, "other", 1_000);
    let text = |pci, driver, busy_ns| FdinfoText::new(driver, pci, 7).engine("gfx", busy_ns);
    let other = process.open(5, "dev/dri/renderD129", text(neighbour.pci(), "amdgpu", 1));
    asked.run(20_000);
    let worker = proc.process(4_711, "worker", 1_000);
    let cycles = |second| FdinfoText::new("xe", B580.pci, 3).cycles("rcs", 40 * second, 100 * second);
    let client = worker.open(5, "dev/dri/renderD128", cycles(1));
    let begun = asked.now_ms;
    for second in 2.. {
        other.set(text(neighbour.pci(), "amdgpu", second * 1_000_000));
        client.set(cycles(second));
        asked.tick(100);
        if asked.metrics(1).sm_util_pct == Some(40) {
            break;
        }
        asked.run(900);
        assert!(asked.now_ms - begun <= 8_000, "not noticed: {:?}", asked.metrics(1));
    }
    let looks = asked.kernel.reads_of("act_freq").len();
    asked.run(1_000);
    assert_eq!(asked.kernel.reads_of("act_freq").len(), looks + 10, "and looked at at every tick from then on");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whoever else uses the card in between: it sleeps in the end, and it was never us who woke it.
    #[test]
    fn for_any_delay_and_rhythm_an_idle_card_falls_asleep_and_is_not_woken(
        driver in 0_usize..3,
        delay_ms in 0_u64..20_000,
        tick_ms in 20_u64..7_000,
        uses in prop::collection::vec(1_u64..40, 0..3),
    ) {
        let (profile, _, gentle) = DRIVERS[driver];
        let tree = Tree::new();
        let _card = idle(&tree, &profile, delay_ms);
        let mut asked = Asked::open(&tree);
        asked.kernel.state().now_ms = asked.now_ms;
        asked.kernel.manage(delay_ms, gentle);
        for ticks in uses {
            for _ in 0..ticks {
                asked.tick(tick_ms);
            }
            let mut state = asked.kernel.state();
            let now_ms = state.now_ms;
            state.power.as_mut().unwrap().used_ms = now_ms;
        }
        for _ in 0..(3 * delay_ms + 20_000) / tick_ms + 5 {
            asked.tick(tick_ms);
        }
        let state = asked.kernel.state();
        let power = state.power.as_ref().unwrap();
        prop_assert!(power.sleeps(state.now_ms));
        prop_assert_eq!(&power.woken_by, &Vec::<String>::new());
    }
}
