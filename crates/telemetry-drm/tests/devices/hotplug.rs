//! Cards that come and go.

use std::fs;

use drm_sim::{
    Tree,
    profiles::{A380_XE, B580, RX580},
};
use telemetry::DeviceError;

use crate::machine::Machine;

impl Machine {
    /// Ticks until an error, which says how the cards changed.
    #[track_caller]
    fn run_until_error(&mut self, within_ms: u64, change: &str) {
        for _ in 0..within_ms / 100 {
            match self.try_tick(100) {
                Ok(()) => {}
                Err(DeviceError::SourceGone(text)) => {
                    assert!(text.ends_with(&format!("sys/class/drm changed: {change}")), "{text}");
                    return;
                }
                Err(lost) => panic!("{lost}"),
            }
        }
        panic!("not noticed in {within_ms} ms");
    }
}

#[test]
fn a_card_that_comes_is_noticed_within_five_seconds() {
    let tree = Tree::new();
    tree.add(0, &RX580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    tree.add(1, &B580);
    machine.run_until_error(5_100, &format!("{} of xe came", B580.pci));
    assert_eq!(Machine::open(&tree).lanes.len(), 2);
}

#[test]
fn a_card_that_goes_is_noticed_within_five_seconds() {
    let tree = Tree::new();
    tree.add(0, &RX580);
    let gone = tree.add(1, &B580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    gone.unplug();
    machine.run_until_error(5_100, &format!("{} of xe went", B580.pci));
    assert_eq!(Machine::open(&tree).lanes.len(), 1);
}

/// Between two looks, as while the machine was suspended.
#[test]
fn another_card_in_the_same_place_is_noticed() {
    let tree = Tree::new();
    let before = tree.add(0, &RX580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    before.unplug();
    tree.add(0, &RX580);
    machine.run_until_error(5_100, &format!("{0} of amdgpu went, {0} of amdgpu came", RX580.pci));
}

/// Unbound and bound again: the same name, another card.
#[test]
fn a_card_that_was_replaced_is_noticed() {
    let tree = Tree::new();
    let before = tree.add(0, &RX580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    before.unplug();
    tree.add_at(0, "0000:0a:00.0", &RX580);
    machine.run_until_error(5_100, &format!("{} of amdgpu went, 0000:0a:00.0 of amdgpu came", RX580.pci));
}

#[test]
fn the_same_card_under_another_driver_is_noticed() {
    let tree = Tree::new();
    let before = tree.add_at(0, "0000:08:00.0", &RX580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    before.unplug();
    tree.add_at(0, "0000:08:00.0", &A380_XE);
    machine.run_until_error(5_100, "0000:08:00.0 of amdgpu went, 0000:08:00.0 of xe came");
}

#[test]
fn connectors_and_cards_of_others_are_no_change() {
    let tree = Tree::new();
    tree.add(0, &RX580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    tree.add_other(1, "nouveau", Some("0000:02:00.0"));
    fs::create_dir(tree.root().join("sys/class/drm/card0-HDMI-A-1")).unwrap();
    machine.run(20_000);
    fs::remove_file(tree.root().join("sys/class/drm/card1")).unwrap();
    machine.run(20_000);
}

#[test]
fn a_change_between_finding_and_asking_is_noticed() {
    let tree = Tree::new();
    tree.add(0, &RX580);
    let mut machine = Machine::open(&tree);
    tree.add(1, &B580);
    machine.run_until_error(5_100, &format!("{} of xe came", B580.pci));
}

/// As when the driver is reloaded, and DRM's own module with it: what was a directory of cards stays an empty one for who has it open.
#[test]
fn a_card_that_comes_after_drm_itself_went_and_came_back_is_noticed() {
    let tree = Tree::new();
    tree.add(0, &RX580);
    let mut machine = Machine::open(&tree);
    machine.run(6_000);
    let (class, before) = (tree.root().join("sys/class/drm"), tree.root().join("before"));
    fs::rename(&class, &before).unwrap();
    fs::create_dir(&class).unwrap();
    for entry in fs::read_dir(&before).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), class.join(entry.file_name())).unwrap();
    }
    machine.run(10_000);
    tree.add(1, &B580);
    machine.run_until_error(5_100, &format!("{} of xe came", B580.pci));
}
