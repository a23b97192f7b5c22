//! The host's device files linked into another directory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt, fs::symlink},
    path::{Path, PathBuf},
};

use bridge_cli::host_devices::{Found, Outcome, Summary, link};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use tempfile::TempDir;

/// A host's file system and a container's `/dev`, both in a temporary directory.
struct Fixture {
    _root: TempDir,
    host: PathBuf,
    dev: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let (host, dev) = (root.path().join("host"), root.path().join("dev"));
        fs::create_dir_all(host.join("dev")).unwrap();
        fs::create_dir(&dev).unwrap();
        Self { _root: root, host, dev }
    }

    /// A fixture whose host has two GPUs, their control files, a capability directory and something else.
    fn with_gpus() -> Self {
        let fixture = Self::new();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            device(&fixture.host.join("dev").join(name));
        }
        fs::create_dir(fixture.host.join("dev/nvidia-caps")).unwrap();
        for name in ["nvidia-cap1", "nvidia-cap2"] {
            device(&fixture.host.join("dev/nvidia-caps").join(name));
        }
        fixture
    }

    fn link(&self) -> Summary {
        link(&self.host, &self.dev)
    }

    #[track_caller]
    fn check_leads_to_host(&self, name: &str) {
        assert_eq!(fs::read_link(self.dev.join(name)).expect(name), self.host.join("dev").join(name));
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.dev).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

const ALL: [&str; 5] = ["nvidia-caps", "nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"];

/// A character device as /dev/null is: harmless, and as real as a GPU's.
fn device(path: &Path) {
    mknod(path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 3)).expect("making device files needs root (CAP_MKNOD)");
}

#[track_caller]
fn check(summary: &Summary, name: &str, holds: impl Fn(&Outcome) -> bool) {
    let entry = summary.entries.iter().find(|entry| entry.path.as_os_str().as_bytes().ends_with(format!("/{name}").as_bytes()));
    let entry = entry.unwrap_or_else(|| panic!("no {name} in {summary:?}"));
    assert!(holds(&entry.outcome), "{entry:?}");
}

#[test]
fn every_nvidia_file_and_directory_of_the_host_is_linked() {
    let fixture = Fixture::with_gpus();
    let summary = fixture.link();
    assert_eq!(fixture.names(), ALL);
    for name in ALL {
        fixture.check_leads_to_host(name);
        check(&summary, name, |outcome| matches!(outcome, Outcome::Linked));
    }
    assert_eq!((summary.changed(), summary.entries.len()), (5, 5));
    assert!(fs::metadata(fixture.dev.join("nvidia0")).unwrap().file_type().is_char_device());
    assert!(fs::metadata(fixture.dev.join("nvidia-caps/nvidia-cap1")).unwrap().file_type().is_char_device());
}

#[test]
fn asking_again_changes_nothing() {
    let fixture = Fixture::with_gpus();
    fixture.link();
    let summary = fixture.link();
    assert_eq!((summary.changed(), summary.entries.len()), (0, 5));
    for name in ALL {
        check(&summary, name, |outcome| matches!(outcome, Outcome::Current));
        fixture.check_leads_to_host(name);
    }
}

#[test]
fn without_a_driver_there_is_nothing_to_do() {
    let fixture = Fixture::new();
    device(&fixture.host.join("dev/null"));
    assert!(fixture.link().entries.is_empty());
    fs::remove_dir_all(fixture.host.join("dev")).unwrap();
    assert!(fixture.link().entries.is_empty());
    fs::remove_dir(&fixture.host).unwrap();
    assert!(fixture.link().entries.is_empty());
    assert!(fixture.names().is_empty());
}

#[test]
fn character_devices_that_are_there_are_left() {
    let fixture = Fixture::with_gpus();
    device(&fixture.dev.join("nvidia0"));
    let summary = fixture.link();
    check(&summary, "nvidia0", |outcome| matches!(outcome, Outcome::Present));
    assert!(fs::symlink_metadata(fixture.dev.join("nvidia0")).unwrap().file_type().is_char_device());
    fixture.check_leads_to_host("nvidia1");
}

#[test]
fn our_old_links_are_refreshed_dangling_or_not() {
    let fixture = Fixture::with_gpus();
    symlink(fixture.host.join("dev/nvidia7"), fixture.dev.join("nvidia0")).unwrap();
    symlink(fixture.host.join("dev/nvidia0"), fixture.dev.join("nvidia1")).unwrap();
    let summary = fixture.link();
    for name in ["nvidia0", "nvidia1"] {
        check(&summary, name, |outcome| matches!(outcome, Outcome::Refreshed));
        fixture.check_leads_to_host(name);
    }
    assert_eq!(fixture.names(), ALL, "no temporary file is left");
}

#[test]
fn an_interrupted_refresh_is_no_obstacle() {
    let fixture = Fixture::with_gpus();
    symlink(fixture.host.join("dev/nvidia7"), fixture.dev.join("nvidia0")).unwrap();
    symlink("/nowhere", fixture.dev.join(".gpu-ebpf-bridge-nvidia0")).unwrap();
    fixture.link();
    fixture.check_leads_to_host("nvidia0");
    assert_eq!(fixture.names(), ALL);
}

#[test]
fn whatever_else_is_there_is_refused_and_left_and_the_others_are_linked() {
    let fixture = Fixture::with_gpus();
    fs::write(fixture.dev.join("nvidia0"), "mine").unwrap();
    symlink("/somewhere/else", fixture.dev.join("nvidia1")).unwrap();
    fs::create_dir(fixture.dev.join("nvidiactl")).unwrap();
    mknod(&fixture.dev.join("nvidia-uvm"), SFlag::S_IFBLK, Mode::empty(), makedev(7, 99)).unwrap();
    let summary = fixture.link();
    check(&summary, "nvidia0", |outcome| matches!(outcome, Outcome::Refused(Found::Other)));
    check(
        &summary,
        "nvidia1",
        |outcome| matches!(outcome, Outcome::Refused(Found::ForeignLink(target)) if target == Path::new("/somewhere/else")),
    );
    check(&summary, "nvidiactl", |outcome| matches!(outcome, Outcome::Refused(Found::Directory)));
    check(&summary, "nvidia-uvm", |outcome| matches!(outcome, Outcome::Refused(Found::Other)));
    fixture.check_leads_to_host("nvidia-caps");
    assert_eq!(fs::read_to_string(fixture.dev.join("nvidia0")).unwrap(), "mine");
    assert_eq!(fs::read_link(fixture.dev.join("nvidia1")).unwrap(), Path::new("/somewhere/else"));
    assert!(fs::symlink_metadata(fixture.dev.join("nvidia-uvm")).unwrap().file_type().is_block_device());
}

#[test]
fn a_file_in_the_way_of_a_directory_is_refused() {
    let fixture = Fixture::with_gpus();
    fs::write(fixture.dev.join("nvidia-caps"), "").unwrap();
    check(&fixture.link(), "nvidia-caps", |outcome| matches!(outcome, Outcome::Refused(Found::Other)));
}

#[test]
fn in_a_directory_that_is_there_the_entries_are_linked() {
    let fixture = Fixture::with_gpus();
    let caps = fixture.dev.join("nvidia-caps");
    fs::create_dir(&caps).unwrap();
    device(&caps.join("nvidia-cap1"));
    let summary = fixture.link();
    check(&summary, "nvidia-caps/nvidia-cap1", |outcome| matches!(outcome, Outcome::Present));
    check(&summary, "nvidia-caps/nvidia-cap2", |outcome| matches!(outcome, Outcome::Linked));
    fixture.check_leads_to_host("nvidia-caps/nvidia-cap2");
    assert_eq!(fixture.link().changed(), 0);
}

#[test]
fn the_same_directory_on_both_sides_is_left_alone() {
    let fixture = Fixture::with_gpus();
    let summary = link(&fixture.host, &fixture.host.join("dev"));
    assert!(summary.entries.is_empty());
    assert!(fs::symlink_metadata(fixture.host.join("dev/nvidia0")).unwrap().file_type().is_char_device());
}

#[test]
fn a_link_that_cannot_be_made_is_reported_and_the_others_are_tried() {
    let fixture = Fixture::with_gpus();
    fs::remove_dir(&fixture.dev).unwrap();
    let summary = fixture.link();
    assert_eq!((summary.changed(), summary.entries.len()), (0, 5));
    check(&summary, "nvidia0", |outcome| matches!(outcome, Outcome::Failed(_)));
}
