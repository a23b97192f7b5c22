//! The directory that everything lies in.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{Card, Profile};

/// A directory with `sys/` and `proc/` in it as on a machine, removed when dropped.
#[derive(Debug)]
pub struct Tree {
    root: TempDir,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A machine whose kernel knows DRM and has no card.
    pub fn new() -> Self {
        let tree = Self { root: TempDir::new().expect("a directory for tests") };
        for directory in ["sys/class/drm", "sys/bus/pci/drivers", "proc/sys/kernel"] {
            make_directory(&tree.root().join(directory));
        }
        tree.write("sys/class/drm/version", "drm 1.1.0 20060810\n");
        tree.write("proc/sys/kernel/osrelease", "6.16.0-sim\n");
        tree
    }

    /// What stands for `/`.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file of its own kind, as in `sys/fs/cgroup/dmem.capacity`.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        make_directory(path.parent().expect("a file below a directory"));
        fs::write(path, text).expect("a file in one's own directory");
    }

    /// Adds a GPU as `cardN` where such a GPU usually sits.
    pub fn add(&self, number: u32, profile: &Profile) -> Card {
        self.add_at(number, profile.pci, profile)
    }

    /// Adds a GPU as `cardN` at a place on the bus, as in `0000:65:00.0`; with a render node and a connector, all links as in sysfs.
    pub fn add_at(&self, number: u32, pci: &str, profile: &Profile) -> Card {
        let device = self.root().join("sys/devices").join(format!("pci{}:00", &pci[..4])).join(pci);
        let driver = self.root().join("sys/bus/pci/drivers").join(profile.driver);
        let card = device.join(format!("drm/card{number}"));
        for directory in [&driver, &card.join(format!("card{number}-DP-1")), &device.join("power")] {
            make_directory(directory);
        }
        link(&driver, &device.join("driver"));
        link(&device, &card.join("device"));
        let render_minor = 128 + number;
        let render = device.join(format!("drm/renderD{render_minor}"));
        make_directory(&render);
        link(&device, &render.join("device"));
        let class = self.root().join("sys/class/drm");
        link(&card, &class.join(format!("card{number}")));
        link(&card.join(format!("card{number}-DP-1")), &class.join(format!("card{number}-DP-1")));
        link(&render, &class.join(format!("renderD{render_minor}")));
        let card = Card::new(class, card, device, number, pci);
        card.fill(profile);
        card
    }

    /// Adds a card of a driver that is none of the three, with a PCI device or, as a virtual one, without.
    pub fn add_other(&self, number: u32, driver: &str, pci: Option<&str>) -> PathBuf {
        let device = match pci {
            Some(pci) => self.root().join("sys/devices/pci0000:00").join(pci),
            None => self.root().join("sys/devices/faux").join(driver),
        };
        let driver_directory = self.root().join("sys/bus/pci/drivers").join(driver);
        let card = device.join(format!("drm/card{number}"));
        make_directory(&driver_directory);
        make_directory(&card);
        link(&driver_directory, &device.join("driver"));
        link(&device, &card.join("device"));
        fs::write(device.join("uevent"), format!("DRIVER={driver}\n")).expect("a file in one's own directory");
        let place = self.root().join("sys/class/drm").join(format!("card{number}"));
        link(&card, &place);
        place
    }
}

pub(crate) fn make_directory(path: &Path) {
    fs::create_dir_all(path).expect("a directory in one's own");
}

fn link(target: &Path, path: &Path) {
    symlink(target, path).expect("a link in one's own directory");
}
