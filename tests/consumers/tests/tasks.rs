//! The iterator over tasks finds the processes that `gpu_per_pid` knows.

mod common;

use common::{process, write};
use consumers::tasks::{self, TaskLine, Tasks};
use e2e::{Bpffs, Workload};

/// Above the kernel's largest process id.
const NOBODY: u32 = 1 << 30;

#[test]
fn living_processes_with_an_entry_are_printed_with_exactly_their_numbers() {
    let pins = Bpffs::mount();
    let reader = Tasks::open(pins.path()).unwrap();
    assert_eq!(reader.read().unwrap(), []);

    let (one, several, without) = (Workload::start("train one"), Workload::start("train-two"), Workload::start("bystander"));
    let time = 1_700_000_000_000_000_001;
    write(pins.path(), "gpu_per_pid", one.pid(), &process(time, 268_435_456, 38, 21, 3, 1));
    write(pins.path(), "gpu_per_pid", several.pid(), &process(0, u64::MAX, 100, 0, 0xFF, 2));
    write(pins.path(), "gpu_per_pid", NOBODY, &process(time, 1, 1, 1, 0, 1));

    let mut expected = [
        TaskLine {
            tgid: one.pid(),
            timestamp_ns: time,
            gpu_memory_bytes: 268_435_456,
            sm_util_pct: 38,
            mem_util_pct: 21,
            device: Some(3),
            device_count: 1,
            comm: "train one".to_owned(),
        },
        TaskLine {
            tgid: several.pid(),
            timestamp_ns: 0,
            gpu_memory_bytes: u64::MAX,
            sm_util_pct: 100,
            mem_util_pct: 0,
            device: None,
            device_count: 2,
            comm: "train-two".to_owned(),
        },
    ];
    expected.sort_by_key(|task| task.tgid);
    assert_eq!(reader.read().unwrap(), expected);

    one.end();
    let left: Vec<String> = tasks::read(pins.path()).unwrap().into_iter().map(|task| task.comm).collect();
    assert_eq!(left, ["train-two"], "a process that ended is not printed, entry or no entry");
    without.end();
}

#[test]
fn only_the_thread_group_leader_is_printed() {
    let pins = Bpffs::mount();
    let reader = Tasks::open(pins.path()).unwrap();
    // The test runner has several threads: this test's, at least, and the main one.
    write(pins.path(), "gpu_per_pid", std::process::id(), &process(1, 2, 3, 4, 5, 1));
    let tgids: Vec<u32> = reader.read().unwrap().iter().map(|task| task.tgid).collect();
    assert_eq!(tgids, [std::process::id()]);
}

#[test]
fn a_line_break_in_a_name_does_not_break_the_line() {
    let pins = Bpffs::mount();
    let reader = Tasks::open(pins.path()).unwrap();
    let workload = Workload::start("a\nb\t1 2 3");
    write(pins.path(), "gpu_per_pid", workload.pid(), &process(1, 2, 3, 4, 5, 1));
    let names: Vec<String> = reader.read().unwrap().into_iter().map(|task| task.comm).collect();
    assert_eq!(names, ["a?b?1 2 3"]);
}
