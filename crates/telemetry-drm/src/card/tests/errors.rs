//! Errors that only the kernel can give.

use drm_sim::{
    Tree,
    profiles::{A380_I915, B580, MI300X, RX580, RX6900XT},
};
use rustix::io::Errno;
use telemetry::{DeviceError, Metrics};

use super::Asked;

const ERRORS: [Errno; 8] = [Errno::NODATA, Errno::OPNOTSUPP, Errno::INVAL, Errno::PERM, Errno::ACCESS, Errno::BUSY, Errno::IO, Errno::TIME];

type Clear = fn(&mut Metrics);

/// `amdgpu_top` 34 for `ENODATA`; the others as amdgpu answers during a reset, in sleep, for functions that it lacks, to the unprivileged.
#[test]
fn a_file_that_fails_takes_its_own_field_along_and_no_other_and_comes_back() {
    let cases: [(_, &str, Clear); 13] = [
        (&RX6900XT, "gpu_metrics", |metrics| metrics.throttle_reasons = None),
        (&RX6900XT, "mem_busy_percent", |metrics| metrics.mem_util_pct = None),
        (&RX6900XT, "mem_info_vram_used", |metrics| metrics.memory = None),
        (&RX6900XT, "power1_average", |metrics| metrics.power_mw = None),
        (&RX6900XT, "freq1_input", |metrics| metrics.sm_clock_mhz = None),
        (&RX6900XT, "freq2_input", |metrics| metrics.mem_clock_mhz = None),
        (&RX6900XT, "pwm1", |metrics| metrics.fan_speed_pct = None),
        (&RX580, "gpu_busy_percent", |metrics| metrics.sm_util_pct = None),
        (&RX580, "temp1_input", |metrics| metrics.temp_c = None),
        (&A380_I915, "rps_act_freq_mhz", |metrics| metrics.sm_clock_mhz = None),
        (&A380_I915, "throttle_reason_status", |metrics| metrics.throttle_reasons = None),
        (&B580, "act_freq", |metrics| metrics.sm_clock_mhz = None),
        (&B580, "temp2_input", |metrics| metrics.temp_c = None),
    ];
    for (profile, file, clear) in cases {
        for error in ERRORS {
            let tree = Tree::new();
            tree.add(0, profile).set("power/control", "on");
            let mut asked = Asked::open(&tree);
            asked.run(1_000);
            let pcie_apart = |metrics: &Metrics| Metrics { pcie_rx_kbps: None, pcie_tx_kbps: None, ..*metrics };
            let all = pcie_apart(asked.metrics(0));
            let mut expected = all;
            clear(&mut expected);
            assert_ne!(all, expected, "{}: {file}", profile.name);
            asked.kernel.fail(file, error);
            asked.run(1_000);
            assert_eq!(pcie_apart(asked.metrics(0)), expected, "{}: {file}: {error}", profile.name);
            asked.kernel.recover();
            asked.run(3_000);
            assert_eq!(pcie_apart(asked.metrics(0)), all, "{}: {file} after {error}", profile.name);
        }
    }
}

#[test]
fn edge_that_fails_gives_way_to_junction() {
    let tree = Tree::new();
    tree.add(0, &RX6900XT);
    let mut asked = Asked::open(&tree);
    asked.kernel.fail("temp1_input", Errno::OPNOTSUPP);
    asked.tick(100);
    assert_eq!(asked.metrics(0).temp_c, Some(59));
}

#[test]
fn ecc_counters_that_fail_are_absent() {
    for error in ERRORS {
        let tree = Tree::new();
        tree.add(0, &MI300X);
        let mut asked = Asked::open(&tree);
        asked.kernel.fail("umc_err_count", error);
        asked.tick(100);
        assert_eq!((asked.metrics(0).ecc_corrected_total, asked.metrics(0).temp_c), (None, Some(61)));
    }
}

#[test]
fn what_fails_is_not_tried_at_every_tick() {
    let tree = Tree::new();
    let card = tree.add(0, &RX580);
    let mut asked = Asked::open(&tree);
    asked.tick(100);
    card.fail_on_read("gpu_busy_percent");
    asked.kernel.fail("mem_busy_percent", Errno::OPNOTSUPP);
    asked.run(600_000);
    asked.kernel.recover();
    let since = asked.now_ms;
    asked.run(31_000);
    let again = asked.kernel.reads_of("mem_busy_percent").into_iter().find(|at_ms| *at_ms > since).unwrap();
    assert!(again - since > 500 && again - since <= 30_100, "{} ms", again - since);
}

/// A status that cannot be read, for whatever reason, is no sleep.
#[test]
fn a_status_that_fails_is_no_sleep() {
    for error in ERRORS {
        let tree = Tree::new();
        tree.add(0, &RX6900XT);
        let mut asked = Asked::open(&tree);
        asked.kernel.fail("runtime_status", error);
        asked.run(1_000);
        assert_eq!(asked.metrics(0).temp_c, Some(56), "{error}");
    }
}

/// What a file of an unplugged card answers, and that its directory is gone.
#[test]
fn a_card_that_fell_off_the_bus_is_lost_and_the_others_go_on_until_it_is_back() {
    let tree = Tree::new();
    tree.add(0, &RX580);
    let card = tree.add(1, &B580);
    let device = card.path("");
    let away = device.with_file_name("away");
    let mut asked = Asked::open(&tree);
    asked.tick(100);
    asked.kernel.fail("0000:0c:00.0/power/runtime_status", Errno::NODEV);
    asked.kernel.fail("card1/device/power/runtime_status", Errno::NODEV);
    std::fs::rename(&device, &away).unwrap();
    let answers = asked.try_tick(100);
    assert_eq!(answers[0], Ok(()));
    assert!(matches!(&answers[1], Err(DeviceError::Lost(text)) if text.contains("card1/device is gone")), "{:?}", answers[1]);
    std::fs::rename(&away, &device).unwrap();
    asked.kernel.recover();
    asked.tick(1_000);
    assert_eq!(asked.metrics(1).temp_c, Some(46));
    card.set_status("suspended");
    asked.tick(1_000);
    assert_eq!(asked.metrics(1).temp_c, None, "its status is looked at again");
}
