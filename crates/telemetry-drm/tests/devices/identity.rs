//! Which cards are published, as whom, and in which order.

use drm_sim::{
    Tree,
    profiles::{A380_XE, B580, COMETLAKE, MI300X, PHOENIX, RX580, RX6900XT},
};
use telemetry::{Identity, OpenError, TelemetrySource};

use crate::machine::{Machine, at};

#[test]
fn cards_are_in_the_order_of_the_bus_and_have_indices_from_0() {
    let tree = Tree::new();
    tree.add(0, &MI300X);
    tree.add(1, &PHOENIX);
    tree.add(2, &COMETLAKE);
    tree.add(10, &RX580);
    let machine = Machine::open(&tree);
    let identities: Vec<_> = machine.lanes.iter().map(|lane| lane.device.identity()).collect();
    let order: Vec<_> = identities.iter().map(|identity| (identity.index, identity.pci_bus_id.as_str())).collect();
    assert_eq!(order, [(0, "0000:00:02.0"), (1, "0000:09:00.0"), (2, "0000:64:00.0"), (3, "0001:65:00.0")]);
}

#[test]
fn a_card_is_known_by_its_product_or_by_its_kind() {
    let tree = Tree::new();
    tree.add(0, &RX6900XT);
    tree.add(1, &MI300X);
    tree.add(2, &B580);
    let machine = Machine::open(&tree);
    let identities: Vec<_> = machine.lanes.iter().map(|lane| lane.device.identity().clone()).collect();
    let identity = |index, pci: &str, name: &str, uuid: &str, vendor_id| Identity {
        index,
        uuid: uuid.to_owned(),
        pci_bus_id: pci.to_owned(),
        name: name.to_owned(),
        vendor_id,
    };
    assert_eq!(
        identities,
        [
            identity(0, "0000:0c:00.0", "Intel GPU 8086:e20b", "", 0x8086),
            identity(1, "0000:2d:00.0", "AMD GPU 1002:73bf", "GPU-0123456789abcdef", 0x1002),
            identity(2, "0001:65:00.0", "AMD Instinct MI300X OAM", "GPU-fedcba9876543210", 0x1002),
        ]
    );
    assert_eq!(machine.info.name, "drm");
    assert_eq!(machine.info.driver_version.as_deref(), Some("amdgpu, xe (Linux 6.16.0-sim)"));
    assert_eq!(machine.info.library, None);
}

/// Others have taken `card10` for a connector, or stopped at 9.
#[test]
fn card10_and_above_are_cards() {
    let tree = Tree::new();
    tree.add(10, &RX580);
    tree.add(63, &A380_XE);
    let mut machine = Machine::open(&tree);
    machine.tick(100);
    assert_eq!(machine.lanes.len(), 2);
    assert_eq!(machine.metrics(1).temp_c, Some(44));
}

#[test]
fn cards_of_other_drivers_are_not_published() {
    let tree = Tree::new();
    tree.add_other(0, "nvidia", Some("0000:01:00.0"));
    tree.add_other(1, "nouveau", Some("0000:02:00.0"));
    tree.add_other(2, "vkms", None);
    tree.add_other(3, "virtio_gpu", Some("0000:03:00.0"));
    tree.add_other(4, "radeon", Some("0000:04:00.0"));
    tree.add_other(5, "ast", Some("0000:05:00.0"));
    let Err(OpenError::NotAvailable(text)) = at(tree.root()).open() else { panic!("opened") };
    let looked_in = tree.root().join("sys/class/drm");
    assert!(text.contains("amdgpu, i915 or xe") && text.contains(looked_in.to_str().unwrap()), "{text}");
    tree.add(6, &RX580);
    assert_eq!(Machine::open(&tree).lanes.len(), 1);
}

#[test]
fn without_drm_nothing_is_there() {
    let root = tempfile::tempdir().unwrap();
    let Err(OpenError::NotAvailable(text)) = at(root.path()).open() else { panic!("opened") };
    assert!(text.contains("sys/class/drm") && text.contains("No such file"), "{text}");
}

/// Where sysfs is shown to a container in part, links may be missing.
#[test]
fn uevent_tells_the_driver_where_its_link_does_not() {
    let tree = Tree::new();
    let card = tree.add(0, &RX580);
    card.remove("driver");
    let machine = Machine::open(&tree);
    assert_eq!(machine.lanes[0].device.identity().name, "AMD GPU 1002:67df");
}

#[test]
fn eighteen_cards_are_eighteen_devices() {
    let tree = Tree::new();
    for number in 0..18 {
        tree.add_at(number, &format!("0000:{:02x}:00.0", number + 1), &RX580);
    }
    let mut machine = Machine::open(&tree);
    assert_eq!(machine.lanes.len(), 18);
    assert_eq!(machine.lanes[17].device.identity().pci_bus_id, "0000:12:00.0");
    machine.tick(100);
    assert_eq!(machine.metrics(17).temp_c, Some(44));
}
