//! One bridge a directory.

use std::fs;
use std::path::Path;

use gpu_types::GpuMeta;
use map_publisher::{Options, PublishError, Publisher};
use test_support::Bpffs;

use crate::world::{ids, now_boottime_ns, open, options, published, refusal, round};

#[test]
fn a_second_bridge_is_told_who_publishes_and_how_fresh() {
    let bpffs = Bpffs::mount();
    let mut first = open(bpffs.path());
    let path = bpffs.path().display();
    assert_eq!(refusal(bpffs.path()), format!("another bridge publishes in {path} (it has not published yet)"));

    let now = now_boottime_ns();
    first.publish(&round(now, [1])).unwrap();
    let before = ids(bpffs.path());
    let second = Options { now_boottime_ns: now + 40_000_000, helper_pid: 1, ..options(bpffs.path()) };
    let error = Publisher::open(&second).unwrap_err();
    let me = std::process::id();
    assert_eq!(error.to_string(), format!("another bridge publishes in {path} (helper_pid {me}, its newest data 40 ms old)"));
    assert!(matches!(error, PublishError::Held { helper_pid: Some(pid), age: Some(_), .. } if pid == me));
    assert_eq!(ids(bpffs.path()), before);
    assert_eq!(published(bpffs.path()), round(now, [1]));
}

#[test]
fn the_lock_is_free_after_a_close_and_after_a_drop() {
    let bpffs = Bpffs::mount();
    let first = open(bpffs.path());
    first.close(false).unwrap();
    let second = open(bpffs.path());
    drop(second);
    open(bpffs.path()).close(true).unwrap();
    open(bpffs.path());
}

#[test]
fn two_directories_of_one_file_system_have_a_bridge_each() {
    let bpffs = Bpffs::mount();
    let _first = open(&bpffs.path().join("a"));
    let _second = open(&bpffs.path().join("b"));
}

/// A successor may start while its predecessor, which gave the lock back and kept the pins, is still going away.
#[test]
fn a_bridge_that_closed_with_its_pins_kept_is_no_foreign_writer_though_it_lives() {
    let bpffs = Bpffs::mount();
    let mut first = open(bpffs.path());
    first.publish(&round(now_boottime_ns(), [1])).unwrap();
    first.close(true).unwrap();
    let successor = Options { helper_pid: 1, ..options(bpffs.path()) };
    Publisher::open(&successor).unwrap();
}

#[test]
fn the_lock_needs_a_directory_that_can_be_opened() {
    let error = Publisher::open(&options(Path::new(""))).unwrap_err();
    assert!(matches!(error, PublishError::Directory { .. }), "{error:?}");
}

#[test]
fn who_holds_the_lock_is_not_asked_of_a_foreign_map() {
    let bpffs = Bpffs::mount();
    let _first = open(bpffs.path());
    fs::remove_file(bpffs.path().join("gpu_meta")).unwrap();
    assert!(refusal(bpffs.path()).ends_with("(it has not published yet)"));
    let meta = gpu_types::maps::META;
    let theirs = crate::world::consumer_map(bpffs.path(), gpu_types::maps::MapDefinition { value_size: meta.value_size * 2, ..meta });
    crate::world::put(&theirs, 0u32, [GpuMeta { last_update_boottime_ns: 1, ..GpuMeta::default() }; 2]);
    assert!(refusal(bpffs.path()).ends_with("(it has not published yet)"));
}
