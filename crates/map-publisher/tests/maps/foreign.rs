//! A writer that takes no lock.

use std::time::Duration;

use gpu_types::maps::META;
use gpu_types::{GPU_SCHEMA_VERSION, GpuMeta};
use libbpf_rs::MapHandle;
use map_publisher::{Options, PublishError, Publisher, Records};
use test_support::Bpffs;

use crate::world::{Idle, consumer_map, open, options, put};

/// Opens a directory whose `gpu_meta` names `helper_pid`, `age` old.
fn open_beside(helper_pid: u32, age: Duration) -> Result<Publisher, PublishError> {
    let bpffs = Bpffs::mount();
    let options = options(bpffs.path());
    let last_update_boottime_ns = options.now_boottime_ns - age.as_nanos() as u64;
    let meta = GpuMeta { schema_version: GPU_SCHEMA_VERSION, helper_pid, last_update_boottime_ns, ..GpuMeta::default() };
    put(&consumer_map(bpffs.path(), META), 0u32, meta);
    let result = Publisher::open(&options);
    assert_eq!(bpffs.pins().len(), if result.is_ok() { 5 } else { 1 }, "nothing is created beside a foreign writer");
    result
}

#[test]
fn a_living_writer_of_fresh_data_is_named() {
    let writer = Idle::start();
    let error = open_beside(writer.0.id(), Duration::from_millis(30)).unwrap_err();
    let expected = format!("without a lock (helper_pid {}, its newest data 30 ms old): stop it first", writer.0.id());
    assert!(error.to_string().ends_with(&expected), "{error}");
    assert!(matches!(error, PublishError::ForeignWriter { helper_pid, .. } if helper_pid == writer.0.id()));
}

#[test]
fn a_writer_that_stopped_writing_is_replaced() {
    let writer = Idle::start();
    open_beside(writer.0.id(), Duration::from_millis(1500)).unwrap();
}

#[test]
fn a_dead_writer_is_replaced() {
    let mut writer = Idle::start();
    writer.0.kill().unwrap();
    writer.0.wait().unwrap();
    open_beside(writer.0.id(), Duration::ZERO).unwrap();
}

#[test]
fn our_own_pid_is_no_foreign_writer() {
    open_beside(std::process::id(), Duration::ZERO).unwrap();
}

#[test]
fn the_age_that_counts_as_fresh_is_the_callers() {
    let writer = Idle::start();
    let bpffs = Bpffs::mount();
    let options = Options { foreign_writer_max_age: Duration::from_secs(60), ..options(bpffs.path()) };
    let last_update_boottime_ns = options.now_boottime_ns - 30_000_000_000;
    let meta = GpuMeta { helper_pid: writer.0.id(), last_update_boottime_ns, ..GpuMeta::default() };
    put(&consumer_map(bpffs.path(), META), 0u32, meta);
    assert!(matches!(Publisher::open(&options), Err(PublishError::ForeignWriter { .. })));
    // By default that is stale.
    open(bpffs.path());
}

#[test]
fn a_writer_that_comes_later_is_told_once() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let mut ours = records_at(1_000);
    publisher.publish(&ours).unwrap();
    assert!(publisher.check_pins().unwrap().is_empty());
    let meta = MapHandle::from_pinned_path(bpffs.pin(META.name)).unwrap();
    let mut events = Vec::new();
    for (round, helper_pid) in [(1, 77), (2, 77), (3, 78)] {
        let theirs = GpuMeta { helper_pid, last_update_boottime_ns: 1_000 * round + 500, ..ours.meta };
        put(&meta, 0u32, theirs);
        events.extend(publisher.check_pins().unwrap().iter().map(ToString::to_string));
        ours = records_at(1_000 * (round + 1));
        publisher.publish(&ours).unwrap();
        assert!(publisher.check_pins().unwrap().is_empty(), "what is there is ours");
    }
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0].contains("helper_pid 77") && events[1].contains("helper_pid 78"), "{events:?}");
}

fn records_at(last_update_boottime_ns: u64) -> Records {
    let meta =
        GpuMeta { schema_version: GPU_SCHEMA_VERSION, helper_pid: std::process::id(), last_update_boottime_ns, ..GpuMeta::default() };
    Records { meta, ..Records::default() }
}
