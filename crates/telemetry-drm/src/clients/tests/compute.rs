//! Compute processes, which kfd tells of.

use drm_sim::kfd::{Kfd, Node};

use super::{
    SECOND,
    machine::{AMD, APU, GIB, MIB, Machine, XE, amdgpu},
};

const GPU: Node = Node { gpu_id: 35_218, render_minor: 128, location: 0x6500, compute_units: 60 };

fn machine() -> (Machine, Kfd) {
    let machine = Machine::new(&[AMD, XE]);
    let kfd = Kfd::new(machine.tree.root());
    kfd.node(1, GPU);
    (machine, kfd)
}

#[test]
fn rocm_shows_though_fdinfo_tells_nothing_of_it() {
    let (mut machine, kfd) = machine();
    let process = kfd.process(40);
    process.set(GPU.gpu_id, 8 * GIB, 45);
    machine.refresh(0);
    machine.refresh(1);
    machine.check(0, &[(40, Some(8 * GIB), Some((75, 0, 0)))]);
    machine.check(1, &[]);
    assert!(machine.clients.made_progress(0));
    assert!(!machine.clients.made_progress(1));
    process.exit();
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[]);
    assert!(!machine.clients.made_progress(0));
}

/// Its figures are read once a second; whether it is there, at every reading.
#[test]
fn a_compute_process_that_ends_is_gone_at_the_next_reading() {
    let (mut machine, kfd) = machine();
    let processes = [40, 41, 42].map(|pid| kfd.process(pid));
    processes.iter().for_each(|process| process.set(GPU.gpu_id, GIB, 0));
    machine.refresh(0);
    let [first, second, _third] = processes;
    first.exit();
    machine.pass(0.1);
    machine.read(0);
    machine.check(0, &[(41, Some(GIB), Some((0, 0, 0))), (42, Some(GIB), Some((0, 0, 0)))]);
    second.exit();
    machine.clients.drop_departed(0);
    machine.check(0, &[(42, Some(GIB), Some((0, 0, 0)))]);
}

#[test]
fn memory_that_both_tell_of_is_the_larger_and_not_the_sum() {
    let (mut machine, kfd) = machine();
    let mut clients = Vec::new();
    for (pid, fd) in [(40, 5), (41, 5), (43, 5)] {
        clients.push(machine.proc.process(pid, "python3", 1000).open(fd, "dev/dri/renderD128", amdgpu(pid.into()).resident("vram", 2048)));
    }
    kfd.process(39).set(GPU.gpu_id, MIB, 0);
    kfd.process(40).set(GPU.gpu_id, 3 * MIB, 6);
    kfd.process(41).set(GPU.gpu_id, MIB, 0);
    kfd.process(42).set(GPU.gpu_id, MIB, 60);
    machine.refresh(0);
    machine.check(
        0,
        &[
            (39, Some(MIB), Some((0, 0, 0))),
            (40, Some(3 * MIB), Some((10, 0, 0))),
            (41, Some(2 * MIB), Some((0, 0, 0))),
            (42, Some(MIB), Some((100, 0, 0))),
            (43, Some(2 * MIB), None),
        ],
    );
}

#[test]
fn contexts_of_one_process_are_added_up() {
    let (mut machine, kfd) = machine();
    let process = kfd.process(40);
    process.set(GPU.gpu_id, GIB, 6);
    process.context(1).set(GPU.gpu_id, GIB, 12);
    process.context(2).set(GPU.gpu_id, GIB, 0);
    machine.refresh(0);
    machine.check(0, &[(40, Some(3 * GIB), Some((30, 0, 0)))]);
}

#[test]
fn a_process_that_uses_another_gpu_is_not_listed() {
    let mut machine = Machine::new(&[AMD, APU]);
    let kfd = Kfd::new(machine.tree.root());
    kfd.node(1, GPU);
    kfd.node(2, Node { gpu_id: 4711, render_minor: 0, location: 0xC400, compute_units: 12 });
    let process = kfd.process(40);
    process.set(GPU.gpu_id, 0, 0);
    process.set(4711, GIB, 0);
    machine.refresh(0);
    machine.refresh(1);
    machine.check(0, &[]);
    machine.check(1, &[(40, Some(GIB), Some((0, 0, 0)))]);
}

#[test]
fn kfd_is_read_once_a_second_and_not_while_the_card_sleeps() {
    let (mut machine, kfd) = machine();
    let process = kfd.process(40);
    process.set(GPU.gpu_id, GIB, 0);
    machine.refresh(0);
    process.set(GPU.gpu_id, 2 * GIB, 0);
    machine.pass(0.9);
    machine.refresh(0);
    machine.check(0, &[(40, Some(GIB), Some((0, 0, 0)))]);
    machine.asleep.replace(vec![0]);
    machine.pass(0.1);
    machine.refresh(0);
    machine.check(0, &[(40, Some(GIB), Some((0, 0, 0)))]);
    machine.asleep.replace(vec![]);
    machine.pass(0.1);
    machine.refresh(0);
    machine.check(0, &[(40, Some(2 * GIB), Some((0, 0, 0)))]);
}

#[test]
fn figures_of_kfd_that_make_no_sense_are_absent() {
    let (mut machine, kfd) = machine();
    let directory = machine.tree.root().join("sys/class/kfd/kfd/proc/40");
    kfd.process(40).set(GPU.gpu_id, GIB, 600);
    machine.refresh(0);
    machine.check(0, &[(40, Some(GIB), Some((100, 0, 0)))]);
    std::fs::write(directory.join(format!("stats_{}/cu_occupancy", GPU.gpu_id)), "lots\n").unwrap();
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(GIB), None)]);
}
