//! The mode and group of pins.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use gpu_types::maps;
use map_publisher::{Options, Publisher};
use nix::mount::{MsFlags, mount, umount};
use test_support::Bpffs;

use crate::world::{FIVE, open, options, text};

#[test]
fn the_pins_get_the_mode_and_group_that_are_asked_for() {
    let bpffs = Bpffs::mount();
    let open = |mode, group| Publisher::open(&Options { pin_mode: mode, pin_group: group, ..options(bpffs.path()) }).unwrap();
    let check = |mode, group| {
        for name in FIVE {
            let metadata = fs::metadata(bpffs.path().join(name)).unwrap();
            assert_eq!((metadata.permissions().mode() & 0o7777, metadata.gid()), (mode, group), "{name}");
        }
    };
    drop(open(Some(0o640), Some(4321)));
    check(0o640, 4321);
    drop(open(None, None));
    check(0o640, 4321);
    let mut publisher = open(Some(0o644), None);
    check(0o644, 4321);
    fs::remove_file(bpffs.path().join("gpu_meta")).unwrap();
    publisher.check_pins().unwrap();
    assert_eq!(fs::metadata(bpffs.path().join("gpu_meta")).unwrap().mode() & 0o7777, 0o644);
}

/// A pin that is mounted read-only over itself: it can be opened, and its mode and group cannot be set.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn mount(pin: PathBuf) -> Self {
        let bind = |flags| mount(Some(&pin), &pin, None::<&str>, MsFlags::MS_BIND | flags, None::<&str>).unwrap();
        bind(MsFlags::empty());
        bind(MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
        Self(pin)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let unmounted = umount(&self.0);
        assert!(unmounted.is_ok() || std::thread::panicking(), "cannot unmount {}: {unmounted:?}", self.0.display());
    }
}

#[test]
fn pins_that_were_adopted_keep_mode_and_group_when_one_cannot_be_given_them() {
    let bpffs = Bpffs::mount();
    drop(open(bpffs.path()));
    let pin = bpffs.path().join(maps::GPU_PER_PID_PER_DEVICE);
    let _read_only = ReadOnly::mount(pin.clone());
    let refused = Publisher::open(&Options { pin_mode: Some(0o640), pin_group: Some(4321), ..options(bpffs.path()) }).unwrap_err();
    assert_eq!(text(&refused), format!("cannot set the group of the pin {}: Read-only file system (os error 30)", pin.display()));
    for name in FIVE {
        let metadata = fs::metadata(bpffs.path().join(name)).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o600, 0), "{name}");
    }
}
