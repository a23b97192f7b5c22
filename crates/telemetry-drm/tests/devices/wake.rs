//! Sleeping cards stay asleep. Files that must not be opened are FIFOs: whoever opens one hangs.

use std::time::Duration;

use drm_sim::{
    Card, Profile, Tree,
    profiles::{A380_I915, ALL, B580, RX580, RX6900XT},
};
use telemetry::{Metrics, Reading};

use crate::machine::{Machine, SECOND_MS, within, without_hanging};

fn sleeping(tree: &Tree, number: u32, profile: &Profile) -> Card {
    let card = tree.add(number, profile);
    card.manage(5_000);
    card.set_status("suspended");
    card.trap_everything();
    card
}

/// bottom 803, `amdgpu_top` 90.
#[test]
fn nothing_of_a_sleeping_card_is_opened_while_the_source_is_opened_and_asked() {
    for profile in ALL {
        for status in ["suspended", "suspending", "resuming"] {
            let name = profile.name;
            let readings = without_hanging(&format!("{name}, {status}"), move || {
                let tree = Tree::new();
                sleeping(&tree, 0, &profile).set_status(status);
                let mut machine = Machine::open(&tree);
                machine.run(30 * SECOND_MS);
                machine.lanes[0].reading.clone()
            });
            assert_eq!(readings, Reading::default(), "{name}, {status}");
        }
    }
}

/// Otherwise the tests with FIFOs would show nothing.
#[test]
#[should_panic(expected = "a forbidden file was opened")]
fn a_forbidden_open_is_caught() {
    within(Duration::from_secs(1), "a card that is awake", || {
        let tree = Tree::new();
        sleeping(&tree, 0, &RX6900XT).set_status("active");
        Machine::open(&tree).run(SECOND_MS);
    });
}

#[test]
fn a_sleeping_card_has_a_place_and_a_kind_and_its_neighbour_its_figures() {
    let tree = Tree::new();
    sleeping(&tree, 0, &RX6900XT);
    tree.add(1, &RX580);
    let machine = without_hanging("a card beside one that sleeps", move || {
        let mut machine = Machine::open(&tree);
        machine.tick(100);
        machine
    });
    let identity = machine.lanes[1].device.identity();
    assert_eq!((identity.pci_bus_id.as_str(), identity.name.as_str(), identity.uuid.as_str()), ("0000:2d:00.0", "AMD GPU 1002:73bf", ""));
    assert_eq!(machine.metrics(0).temp_c, Some(44));
    assert_eq!(*machine.metrics(1), Metrics::default());
}

#[test]
fn what_a_card_said_ends_when_it_falls_asleep_and_comes_back_when_it_wakes() {
    for profile in [RX6900XT, A380_I915, B580] {
        let tree = Tree::new();
        let card = tree.add(0, &profile);
        card.manage(1_000);
        let mut machine = Machine::open(&tree);
        machine.run(SECOND_MS);
        let awake = *machine.metrics(0);
        assert!(awake.temp_c.is_some(), "{}", profile.name);
        card.set_status("suspended");
        machine.tick(100);
        assert_eq!(machine.lanes[0].reading, Reading::default(), "{}", profile.name);
        card.set_status("active");
        machine.tick(100);
        let again = machine.metrics(0);
        assert_eq!((again.temp_c, again.sm_clock_mhz), (awake.temp_c, awake.sm_clock_mhz), "{}", profile.name);
    }
}

#[test]
fn energy_used_in_sleep_is_no_power() {
    let tree = Tree::new();
    let card = tree.add(0, &A380_I915);
    card.manage(1_000);
    let mut machine = Machine::open(&tree);
    machine.run(SECOND_MS);
    card.set_status("suspended");
    machine.run(60 * SECOND_MS);
    card.set("hwmon/hwmon1/energy1_input", "99999999999");
    card.set_status("active");
    machine.tick(100);
    assert_eq!(machine.metrics(0).power_mw, None);
}

/// ECC counters are asked for once a minute, but not first a minute after the card woke.
#[test]
fn a_card_that_wakes_is_asked_everything_at_once() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    card.set("ras/umc_err_count", "ue: 0\nce: 5");
    card.set_status("suspended");
    let mut machine = Machine::open(&tree);
    machine.run(3 * SECOND_MS);
    card.set_status("active");
    machine.tick(100);
    assert_eq!(machine.metrics(0).ecc_corrected_total, Some(5));
    assert_eq!(machine.lanes[0].device.identity().uuid, "GPU-0123456789abcdef", "now it could be asked");
}

/// `amdgpu_top` 119; and kernels without power management have no such file.
#[test]
fn unreadable_runtime_status_is_not_suspended() {
    type Break = fn(&Card);
    let breaks: [(&str, Break); 5] = [
        ("fails on read", |card| card.fail_on_read("power/runtime_status")),
        ("fails on open", |card| card.fail_on_open("power/runtime_status")),
        ("missing", |card| card.remove("power/runtime_status")),
        ("unsupported", |card| card.set_status("unsupported")),
        ("error", |card| card.set_status("error")),
    ];
    for (what, break_it) in breaks {
        let tree = Tree::new();
        break_it(&tree.add(0, &RX6900XT));
        let mut machine = Machine::open(&tree);
        machine.run(2 * SECOND_MS);
        assert_eq!(machine.metrics(0).temp_c, Some(56), "{what}");
    }
}

/// The rest of what an idle card is asked, and when, the unit tests of the card show: they see every read.
#[test]
fn figures_of_an_idle_card_stand_with_the_time_at_which_they_were_read() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    card.set("gpu_busy_percent", "0");
    let mut machine = Machine::open(&tree);
    machine.run(3 * SECOND_MS);
    let sampled = machine.lanes[0].reading.sampled.unwrap();
    machine.run(2 * SECOND_MS);
    let reading = &machine.lanes[0].reading;
    assert_eq!(reading.sampled, Some(sampled));
    assert_eq!((reading.metrics.sm_util_pct, reading.metrics.temp_c), (Some(0), Some(56)));
    machine.run(10 * SECOND_MS);
    assert!(machine.lanes[0].reading.sampled.unwrap().realtime_ns > sampled.realtime_ns, "it is looked at again");
}

/// It is looked at together with all of /proc, which is its neighbour's turn every time.
#[test]
fn an_idle_card_of_xe_beside_another_card_is_looked_at_again() {
    let tree = Tree::new();
    let (_neighbour, card) = (tree.add(0, &RX580), tree.add(1, &B580));
    card.manage(1_000);
    let mut machine = Machine::open(&tree);
    machine.run(10 * SECOND_MS);
    for degrees in [50, 51, 52] {
        card.set("hwmon/hwmon4/temp2_input", (degrees * 1_000).to_string());
        // A look through /proc, what is left of the delay, and a tick.
        machine.run(8 * SECOND_MS);
        assert_eq!(machine.metrics(1).temp_c, Some(degrees));
    }
}

#[test]
fn a_card_whose_status_changes_back_and_forth_is_followed() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let mut machine = Machine::open(&tree);
    for _ in 0..20 {
        card.set_status("active");
        machine.tick(100);
        assert_eq!(machine.metrics(0).temp_c, Some(56));
        card.set_status("suspending");
        machine.tick(100);
        assert_eq!(*machine.metrics(0), Metrics::default());
    }
}
