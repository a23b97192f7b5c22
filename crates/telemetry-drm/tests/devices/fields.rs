//! Each field of each driver: published where its files are, absent where they are not.

use drm_sim::{
    Card, Profile, Tree,
    proc::{FdinfoText, Proc},
    profiles::{A380_I915, A380_XE, ALL, B580, COMETLAKE, MI300X, PHOENIX, RX580, RX6900XT, STRIXPOINT, TIGERLAKE, VEGA56},
};
use telemetry::{Memory, Metrics};
use test_support::eventually;

use crate::machine::{Machine, SECOND_MS};

/// What a profile's card says after two ticks of a second, in which an energy counter grows by 30 J.
fn read(profile: &Profile) -> Metrics {
    let tree = Tree::new();
    let card = tree.add(0, profile);
    let mut machine = Machine::open(&tree);
    machine.tick(SECOND_MS);
    spend_energy(&card);
    machine.tick(SECOND_MS);
    // PCIe counters are read beside the lane.
    if profile.files.iter().any(|(name, _)| *name == "pcie_bw") {
        eventually("PCIe counters", || {
            machine.tick(1);
            machine.metrics(0).pcie_rx_kbps
        });
    }
    *machine.metrics(0)
}

fn spend_energy(card: &Card) {
    for number in [1, 2] {
        let hwmon = ["hwmon/hwmon0", "hwmon/hwmon1", "hwmon/hwmon4"].into_iter();
        for name in hwmon.map(|hwmon| format!("{hwmon}/energy{number}_input")).filter(|name| card.path(name).exists()) {
            let before: u64 = card.get(&name).parse().unwrap();
            if before > 0 {
                card.set(&name, (before + 30_000_000).to_string());
            }
        }
    }
}

fn memory(total_bytes: u64, used_bytes: u64) -> Option<Memory> {
    Some(Memory { total_bytes, used_bytes, reserved_bytes: 0 })
}

#[test]
fn amdgpu_of_polaris() {
    let expected = Metrics {
        sm_util_pct: Some(12),
        mem_util_pct: Some(4),
        memory: memory(4_294_967_296, 536_870_912),
        temp_c: Some(44),
        power_mw: Some(41_045),
        sm_clock_mhz: Some(798),
        mem_clock_mhz: Some(1_750),
        pcie_rx_kbps: Some(12_000 * 256 / 1_000),
        pcie_tx_kbps: Some(2_500 * 256 / 1_000),
        fan_speed_pct: Some(20),
        ..Metrics::default()
    };
    assert_eq!(read(&RX580), expected);
}

#[test]
fn amdgpu_of_vega() {
    let expected = Metrics {
        sm_util_pct: Some(0),
        memory: memory(8_573_157_376, 16_613_376),
        temp_c: Some(38),
        power_mw: Some(8_000),
        sm_clock_mhz: Some(26),
        mem_clock_mhz: Some(167),
        pcie_rx_kbps: Some(21),
        pcie_tx_kbps: Some(0),
        fan_speed_pct: Some(0),
        ..Metrics::default()
    };
    assert_eq!(read(&VEGA56), expected);
}

#[test]
fn amdgpu_of_rdna() {
    let expected = Metrics {
        sm_util_pct: Some(3),
        mem_util_pct: Some(1),
        memory: memory(17_163_091_968, 668_274_688),
        temp_c: Some(56),
        power_mw: Some(36_000),
        sm_clock_mhz: Some(500),
        mem_clock_mhz: Some(1_000),
        throttle_reasons: Some(0),
        fan_speed_pct: Some(0),
        ..Metrics::default()
    };
    assert_eq!(read(&RX6900XT), expected);
}

#[test]
fn amdgpu_of_an_accelerator() {
    let expected = Metrics {
        sm_util_pct: Some(88),
        mem_util_pct: Some(41),
        memory: memory(206_141_652_992, 103_079_215_104),
        temp_c: Some(61),
        power_mw: Some(512_000),
        sm_clock_mhz: Some(2_100),
        mem_clock_mhz: Some(1_300),
        ecc_corrected_total: Some(23),
        ecc_uncorrected_total: Some(1),
        ..Metrics::default()
    };
    assert_eq!(read(&MI300X), expected);
}

#[test]
fn amdgpu_of_an_apu_counts_its_system_memory_and_has_no_memory_clock_and_no_fan() {
    let expected = Metrics {
        sm_util_pct: Some(7),
        memory: memory(4_294_967_296 + 31_433_977_856, 1_272_893_440 + 211_398_656),
        temp_c: Some(25),
        power_mw: Some(3_103),
        sm_clock_mhz: Some(800),
        ..Metrics::default()
    };
    assert_eq!(read(&PHOENIX), expected);
    assert_eq!(read(&STRIXPOINT).memory, memory(536_870_912 + 16_441_004_032, 514_580_480 + 3_946_811_392));
}

/// No process uses it: utilization is 0, and not unknown.
#[test]
fn i915_of_a_discrete_gpu() {
    let expected = Metrics {
        sm_util_pct: Some(0),
        temp_c: Some(55),
        power_mw: Some(30_000),
        sm_clock_mhz: Some(600),
        throttle_reasons: Some(0),
        ..Metrics::default()
    };
    assert_eq!(read(&A380_I915), expected);
}

#[test]
fn i915_of_an_integrated_gpu_has_a_clock() {
    assert_eq!(read(&COMETLAKE), Metrics { sm_util_pct: Some(0), sm_clock_mhz: Some(350), ..Metrics::default() });
}

#[test]
fn xe_of_discrete_gpus() {
    let expected = Metrics {
        sm_util_pct: Some(0),
        temp_c: Some(56),
        power_mw: Some(30_000),
        sm_clock_mhz: Some(0),
        throttle_reasons: Some(0),
        ..Metrics::default()
    };
    assert_eq!(read(&A380_XE), expected);
    assert_eq!(read(&B580), Metrics { temp_c: Some(46), sm_clock_mhz: Some(400), ..expected });
}

#[test]
fn xe_of_an_integrated_gpu_has_a_clock_and_reasons() {
    let expected = Metrics { sm_util_pct: Some(0), sm_clock_mhz: Some(0), throttle_reasons: Some(0), ..Metrics::default() };
    assert_eq!(read(&TIGERLAKE), expected);
}

#[test]
fn what_no_driver_tells_is_absent_everywhere() {
    for profile in ALL {
        let metrics = read(&profile);
        assert_eq!((metrics.enc_util_pct, metrics.dec_util_pct), (None, None), "{}: one figure for both is neither's", profile.name);
        assert_eq!((metrics.nvlink_tx_kbps, metrics.nvlink_rx_kbps, metrics.compute_mode), (None, None, None), "{}", profile.name);
        assert_eq!(metrics.memory.map_or(0, |memory| memory.reserved_bytes), 0, "{}", profile.name);
    }
}

#[test]
fn intel_has_no_memory_utilization_memory_clock_ecc_pcie_and_fan() {
    for profile in ALL.into_iter().filter(|profile| profile.driver != "amdgpu") {
        let metrics = read(&profile);
        assert_eq!((metrics.mem_util_pct, metrics.mem_clock_mhz, metrics.fan_speed_pct), (None, None, None), "{}", profile.name);
        assert_eq!((metrics.ecc_corrected_total, metrics.ecc_uncorrected_total), (None, None), "{}", profile.name);
        assert_eq!((metrics.pcie_tx_kbps, metrics.pcie_rx_kbps), (None, None), "{}", profile.name);
    }
}

/// One file less, one field less: nothing else changes.
#[test]
fn each_file_that_is_missing_or_fails_takes_its_own_field_along_and_no_other() {
    type Clear = fn(&mut Metrics);
    let cases: [(&Profile, &str, Clear); 14] = [
        (&RX580, "gpu_busy_percent", |metrics| metrics.sm_util_pct = None),
        (&RX580, "mem_busy_percent", |metrics| metrics.mem_util_pct = None),
        (&RX580, "mem_info_vram_total", |metrics| metrics.memory = None),
        (&RX580, "mem_info_vram_used", |metrics| metrics.memory = None),
        (&RX580, "hwmon/hwmon4/temp1_input", |metrics| metrics.temp_c = None),
        (&RX580, "hwmon/hwmon4/power1_average", |metrics| metrics.power_mw = None),
        (&RX580, "hwmon/hwmon4/freq1_input", |metrics| metrics.sm_clock_mhz = None),
        (&MI300X, "hwmon/hwmon9/freq2_label", |metrics| metrics.mem_clock_mhz = None),
        (&RX580, "hwmon/hwmon4/pwm1", |metrics| metrics.fan_speed_pct = None),
        (&RX6900XT, "gpu_metrics", |metrics| metrics.throttle_reasons = None),
        (&MI300X, "ras/umc_err_count", |metrics| (metrics.ecc_corrected_total, metrics.ecc_uncorrected_total) = (None, None)),
        (&B580, "hwmon/hwmon4/energy2_input", |metrics| metrics.power_mw = None),
        (&B580, "tile0/gt0/freq0/act_freq", |metrics| metrics.sm_clock_mhz = None),
        (&A380_I915, "card/gt/gt0/throttle_reason_status", |metrics| metrics.throttle_reasons = None),
    ];
    type Break = fn(&Card, &str);
    let breaks: [(&str, Break); 3] =
        [("missing", |card, name| card.remove(name)), ("fails on read", Card::fail_on_read), ("fails on open", Card::fail_on_open)];
    for (profile, file, clear) in cases {
        let mut expected = read_with(profile, |_| {});
        clear(&mut expected);
        for (what, break_it) in breaks {
            assert_eq!(read_with(profile, |card| break_it(card, file)), expected, "{}: {file} {what}", profile.name);
        }
    }
}

/// The same without PCIe counters, which need time.
fn read_with(profile: &Profile, change: impl FnOnce(&Card)) -> Metrics {
    let tree = Tree::new();
    let card = tree.add(0, profile);
    change(&card);
    let mut machine = Machine::open(&tree);
    machine.tick(SECOND_MS);
    spend_energy_where_it_counts(&card);
    machine.tick(SECOND_MS);
    Metrics { pcie_tx_kbps: None, pcie_rx_kbps: None, ..*machine.metrics(0) }
}

fn spend_energy_where_it_counts(card: &Card) {
    if card.path("hwmon/hwmon4/energy2_input").is_file() {
        spend_energy(card);
    }
}

#[test]
fn figures_follow_the_files() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    for (busy, temp, used) in [(0, 40, 1), (100, 95, 17_163_091_968_u64), (55, 70, 77)] {
        card.set("gpu_busy_percent", busy.to_string());
        card.set("hwmon/hwmon5/temp1_input", (temp * 1_000 + 999).to_string());
        card.set("mem_info_vram_used", used.to_string());
        machine.tick(100);
        let metrics = machine.metrics(0);
        assert_eq!((metrics.sm_util_pct, metrics.temp_c, metrics.memory), (Some(busy), Some(temp), memory(17_163_091_968, used)));
    }
}

#[test]
fn figures_out_of_range_are_none() {
    let tree = Tree::new();
    let card = tree.add(0, &RX580);
    card.set("gpu_busy_percent", "655");
    card.set("mem_busy_percent", "-1");
    card.set("hwmon/hwmon4/temp1_input", "-273150");
    card.set("hwmon/hwmon4/power1_average", "99999999999999");
    card.set("hwmon/hwmon4/pwm1", "256");
    card.set("hwmon/hwmon4/freq1_input", "18446744073709551615");
    card.set("mem_info_vram_total", "0");
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    let left = Metrics { mem_clock_mhz: Some(1_750), ..Metrics::default() };
    assert_eq!(Metrics { pcie_tx_kbps: None, pcie_rx_kbps: None, ..*machine.metrics(0) }, left);
}

#[test]
fn reasons_for_throttling_are_nvmls_bits() {
    let tree = Tree::new();
    let amd = tree.add(0, &RX6900XT);
    let i915 = tree.add(1, &A380_I915);
    let xe = tree.add(2, &B580);
    let mut machine = Machine::open(&tree);
    amd.set("gpu_metrics", RX6900XT.table.unwrap().throttled(1 << 0 | 1 << 36).bytes());
    i915.set("card/gt/gt0/throttle_reason_status", "1");
    i915.set("card/gt/gt0/throttle_reason_pl4", "1");
    xe.set("tile0/gt0/freq0/throttle/status", "1");
    xe.set("tile0/gt0/freq0/throttle/reason_thermal", "1");
    xe.set("tile0/gt0/freq0/throttle/reason_pl1", "1");
    machine.tick(100);
    // In PCI order: i915 at 0b, xe at 0c, amdgpu at 2d.
    assert_eq!([0, 1, 2].map(|index| machine.metrics(index).throttle_reasons), [Some(0x8), Some(0x24), Some(0x24)]);
}

#[test]
fn intels_utilization_is_the_busiest_engine_of_all_clients() {
    type Work = fn(FdinfoText, u64, u64) -> FdinfoText;
    // So many per cent of each second, in ns, and in ticks of a clock that makes a hundred a second.
    let engine: Work = |text, pct, second| text.engine("render", pct * second * 10_000_000).engine("copy", 1);
    let cycles: Work = |text, pct, second| text.cycles("rcs", pct * second, 100 * second).cycles("bcs", 0, 100 * second);
    for (profile, work) in [(A380_I915, engine), (B580, cycles)] {
        let tree = Tree::new();
        tree.add(0, &profile).set("power/control", "on");
        let text = |pid, pct, second| work(FdinfoText::new(profile.driver, profile.pci, u64::from(pid)), pct, second);
        let clients = [(3, 20), (4, 50)].map(|(pid, pct)| {
            let process = Proc::new(tree.root()).process(pid, "worker", 1);
            (process.open(7, "dev/dri/renderD128", text(pid, pct, 1)), pid, pct)
        });
        let mut machine = Machine::open(&tree);
        machine.tick(SECOND_MS);
        assert_eq!(machine.metrics(0).sm_util_pct, None, "{}: not seen twice", profile.name);
        clients.iter().for_each(|(client, pid, pct)| client.set(text(*pid, *pct, 2)));
        machine.tick(SECOND_MS);
        assert_eq!(machine.metrics(0).sm_util_pct, Some(70), "{}", profile.name);
        let reading = &machine.lanes[0].reading;
        assert_eq!((reading.sampled, reading.processes.len()), (Some(machine.now().stamp()), 2));
    }
}

/// From the cgroup controller for device memory, where there is one.
#[test]
fn intels_memory_is_what_its_processes_hold_of_what_there_is() {
    let tree = Tree::new();
    tree.add(0, &B580);
    tree.write("sys/fs/cgroup/dmem.capacity", "drm/0000:0c:00.0/vram0 12884901888\ndrm/0000:0c:00.0/stolen 1\n");
    let text = FdinfoText::new("xe", B580.pci, 1).resident("vram0", 1 << 20).cycles("rcs", 1, 2);
    let _client = Proc::new(tree.root()).process(4_711, "worker", 1).open(7, "dev/dri/renderD128", text);
    let mut machine = Machine::open(&tree);
    machine.tick(SECOND_MS);
    assert_eq!(machine.metrics(0).memory, memory(12_884_901_888, 1 << 30));
}
