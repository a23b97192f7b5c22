//! Processes, files and clients that come, go and are mistaken for one another.

use std::{fs, path::Path};

use drm_sim::proc::FdinfoText;
use nix::{
    sys::stat::{Mode, SFlag, makedev, mknod},
    unistd::mkfifo,
};

use super::{
    SECOND,
    machine::{AMD, MIB, Machine, XE, amdgpu, xe},
};

const GFX_TENTH: u64 = 100_000_000;

fn text(id: u64, tenths: u64) -> FdinfoText {
    amdgpu(id).resident("vram", 1024).engine("gfx", tenths * GFX_TENTH)
}

#[test]
fn all_of_proc_is_looked_through_every_5_s() {
    let mut machine = Machine::new(&[AMD]);
    machine.refresh(0);
    machine.proc.process(40, "game", 1000).open(5, "dev/dri/renderD128", text(7, 0));
    machine.pass(4.9);
    machine.refresh(0);
    machine.check(0, &[]);
    machine.pass(0.1);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
}

#[test]
fn a_process_that_ends_is_gone_at_the_next_look() {
    let mut machine = Machine::new(&[AMD]);
    let game = machine.proc.process(40, "game", 1000);
    game.open(5, "dev/dri/renderD128", text(7, 0));
    machine.proc.process(41, "other", 1000).open(5, "dev/dri/renderD128", text(8, 0));
    machine.refresh(0);
    game.exit();
    machine.pass(0.1);
    machine.refresh(0);
    machine.check(0, &[(41, Some(MIB), Some((0, 0, 0)))]);
}

/// The first 256 are read through files that stay open, the others by their path.
#[test]
fn of_very_many_processes_those_that_end_are_gone_at_the_next_reading() {
    const PROCESSES: u32 = 700;
    let mut machine = Machine::new(&[AMD]);
    let mut processes: Vec<_> = (0..PROCESSES).map(|number| machine.proc.process(1_000 + number, "train", 1000)).collect();
    for (process, id) in processes.iter().zip(1..) {
        process.open(5, "dev/dri/renderD128", text(id, 0));
    }
    machine.refresh(0);
    assert_eq!(machine.processes(0).len(), PROCESSES as usize);
    let stays = processes.swap_remove(3);
    let last = processes.pop().unwrap();
    processes.into_iter().for_each(drm_sim::proc::Process::exit);
    machine.pass(0.1);
    machine.read(0);
    assert_eq!(machine.processes(0).iter().map(|process| process.pid).collect::<Vec<_>>(), [1_003, 1_000 + PROCESSES - 2]);
    stays.exit();
    last.exit();
    machine.pass(0.1);
    machine.read(0);
    machine.check(0, &[]);
}

#[test]
fn known_clients_are_read_without_a_look_through_proc_however_long_ago_that_was() {
    let mut machine = Machine::new(&[AMD]);
    machine.refresh(0);
    machine.proc.process(40, "game", 1000).open(5, "dev/dri/renderD128", text(7, 0));
    for _ in 0..10 {
        machine.pass(5.0 * SECOND);
        machine.read(0);
        machine.check(0, &[]);
    }
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
}

#[test]
fn who_ends_while_the_card_may_not_be_read_is_dropped_unread() {
    let mut machine = Machine::new(&[XE]);
    let parent = machine.proc.process(40, "parent", 1000);
    let shared = parent.open(5, "dev/dri/renderD128", xe(5).resident("vram0", 1024));
    let child = machine.proc.process(41, "child", 1001);
    child.hold(5, "dev/dri/renderD128", &shared);
    machine.proc.process(42, "other", 1002).open(5, "dev/dri/renderD128", xe(6).resident("vram0", 2048));
    machine.refresh(0);
    // Any open of this hangs.
    let fdinfo = machine.tree.root().join("proc/42/fdinfo/5");
    fs::remove_file(&fdinfo).unwrap();
    mkfifo(&fdinfo, Mode::S_IRUSR).unwrap();
    parent.exit();
    machine.clients.drop_departed(0);
    machine.check(0, &[(41, Some(MIB), None), (42, Some(2 * MIB), None)]);
    child.exit();
    machine.clients.drop_departed(0);
    machine.check(0, &[(42, Some(2 * MIB), None)]);
}

#[test]
fn a_client_goes_on_with_the_next_process_that_holds_it() {
    let mut machine = Machine::new(&[AMD]);
    let parent = machine.proc.process(40, "parent", 1000);
    let client = parent.open(5, "dev/dri/renderD128", text(7, 0));
    machine.proc.process(41, "child", 1001).hold(5, "dev/dri/renderD128", &client);
    machine.refresh(0);
    parent.exit();
    client.set(text(7, 3));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(41, Some(MIB), Some((30, 0, 0)))]);
    assert_eq!(machine.clients.busy_pct(0), Some(30));
}

#[test]
fn a_process_that_has_the_pid_of_one_before_is_not_it() {
    let mut machine = Machine::new(&[AMD]);
    let parent = machine.proc.process(40, "parent", 1000);
    let client = parent.open(5, "dev/dri/renderD128", text(7, 0));
    let child = machine.proc.process(41, "child", 1001);
    child.hold(5, "dev/dri/renderD128", &client);
    machine.refresh(0);
    // Both end, and the child's PID is another's, who happens to have a file of the same client id at the same number.
    parent.exit();
    child.exit();
    machine.proc.process(41, "stranger", 7000).open(5, "dev/dri/renderD128", text(7, 9));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[]);
    machine.pass(4.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[(41, Some(MIB), None)]);
}

#[test]
fn what_a_reused_pid_did_before_is_not_counted_again() {
    let mut machine = Machine::new(&[AMD]);
    let first = machine.proc.process(40, "first", 1000);
    first.open(5, "dev/dri/renderD128", text(7, 0));
    machine.refresh(0);
    machine.asleep.replace(vec![0]);
    machine.pass(SECOND);
    first.exit();
    machine.proc.process(40, "second", 7000).open(5, "dev/dri/renderD128", text(7, 40));
    machine.pass(4.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[]);
    machine.asleep.replace(vec![]);
    machine.pass(5.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
}

#[test]
fn a_file_descriptor_that_has_become_another_client_is_that_one() {
    let mut machine = Machine::new(&[AMD, XE]);
    let process = machine.proc.process(40, "game", 1000);
    let client = process.open(5, "dev/dri/renderD128", text(7, 0));
    machine.refresh(0);
    machine.refresh(1);
    // The kernel's fdinfo shows whatever is at the number, through a file that was opened before as well.
    client.set(text(8, 50));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[]);
    machine.pass(4.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
    client.set(xe(8).resident("vram0", 2048));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.refresh(1);
    machine.check(0, &[]);
    machine.check(1, &[]);
}

#[test]
fn a_counter_that_steps_back_is_no_work() {
    let mut machine = Machine::new(&[AMD]);
    let client = machine.proc.process(40, "game", 1000).open(5, "dev/dri/renderD128", text(7, 50));
    for (tenths, sm_pct) in [(50, None), (10, Some(0)), (52, Some(20))] {
        client.set(text(7, tenths));
        machine.refresh(0);
        machine.check(0, &[(40, Some(MIB), sm_pct.map(|sm_pct| (sm_pct, 0, 0)))]);
        machine.pass(SECOND);
    }
}

#[test]
fn the_clients_of_a_sleeping_card_are_not_read_and_stand() {
    // (bottom 803, amdgpu_top 90)
    let mut machine = Machine::new(&[XE, AMD]);
    let old = machine.proc.process(40, "vkcube", 1000);
    let client = old.open(5, "dev/dri/renderD128", xe(5).resident("vram0", 1024));
    machine.refresh(0);
    machine.asleep.replace(vec![0]);
    // Any open of these hangs.
    for pid in [40, 41] {
        let newer = machine.proc.process(pid, "vkcube", 1000);
        newer.hold(6, "dev/dri/renderD128", &client);
        let fdinfo = machine.tree.root().join(format!("proc/{pid}/fdinfo/6"));
        fs::remove_file(&fdinfo).unwrap();
        mkfifo(&fdinfo, Mode::S_IRUSR).unwrap();
    }
    machine.proc.process(42, "game", 1000).open(5, "dev/dri/renderD129", text(7, 0));
    for card in [0, 1] {
        machine.pass(5.0 * SECOND);
        machine.refresh(card);
    }
    machine.check(0, &[(40, Some(MIB), None)]);
    machine.check(1, &[(42, Some(MIB), None)]);
    assert_eq!(machine.clients.busy_pct(0), None);
    assert!(!machine.clients.made_progress(0));

    // Who is gone is so though the card sleeps.
    old.exit();
    machine.pass(5.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[]);
}

#[test]
fn whether_a_card_may_be_read_is_asked_once_and_only_for_something_to_read() {
    let mut machine = Machine::new(&[XE, AMD]);
    let asked = std::cell::RefCell::new(Vec::new());
    let refresh = |machine: &mut Machine| {
        let may_read = |card| {
            asked.borrow_mut().push(card);
            true
        };
        machine.clients.look(machine.now, &may_read);
        let for_look = asked.take();
        machine.clients.refresh(0, machine.now, &may_read);
        machine.pass(SECOND);
        [for_look, asked.take()]
    };
    assert_eq!(refresh(&mut machine), [[], []]);
    let process = machine.proc.process(40, "vkcube", 1000);
    (5..9).for_each(|fd| drop(process.open(fd, "dev/dri/renderD128", xe(fd.into()).resident("vram0", 1024))));
    machine.pass(4.0 * SECOND);
    assert_eq!(refresh(&mut machine), [[0], [0]]);
    assert_eq!(refresh(&mut machine), [vec![], vec![0]]);
    machine.check(0, &[(40, Some(4 * MIB), None)]);
}

#[test]
fn files_of_other_cards_and_drivers_are_not_opened() {
    let mut machine = Machine::new(&[AMD]);
    let process = machine.proc.process(40, "game", 1000);
    process.open(5, "dev/dri/renderD128", text(7, 0));
    for (fd, target) in
        [(6, "/dev/dri/renderD129"), (7, "/dev/nvidia0"), (8, "socket:[4711]"), (9, "anon_inode:[eventfd]"), (10, "/dev/dri/card")]
    {
        process.hold_other(fd, target);
        let fdinfo = machine.tree.root().join(format!("proc/40/fdinfo/{fd}"));
        fs::remove_file(&fdinfo).unwrap();
        mkfifo(&fdinfo, Mode::S_IRUSR).unwrap();
    }
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
}

#[test]
fn a_device_is_known_by_its_number_where_there_is_one() {
    let mut machine = Machine::new(&[AMD, XE]);
    let devices = machine.tree.root().join("container/dev/dri");
    fs::create_dir_all(&devices).unwrap();
    let device = |name: &str, major, minor| {
        mknod(&devices.join(name), SFlag::S_IFCHR, Mode::empty(), makedev(major, minor)).expect("needs root, to make device files");
        Path::new("container/dev/dri").join(name).display().to_string()
    };
    let process = machine.proc.process(40, "game", 1000);
    // In a container, the second card may be the first.
    process.open(5, &device("renderD128", 226, 129), xe(7).resident("vram0", 1024));
    // A name proves nothing.
    process.open(6, &device("card1", 1, 3), xe(8).resident("vram0", 2048));
    machine.refresh(0);
    machine.refresh(1);
    machine.check(0, &[]);
    machine.check(1, &[(40, Some(MIB), None)]);
}

#[test]
fn a_client_of_a_card_that_is_not_ours_is_not_counted() {
    let mut machine = Machine::new(&[AMD]);
    let process = machine.proc.process(40, "game", 1000);
    process.open(5, "dev/dri/renderD128", FdinfoText::new("amdgpu", "0000:66:00.0", 7).resident("vram", 1024));
    process.open(6, "dev/dri/renderD128", FdinfoText::file());
    process.open(7, "dev/dri/renderD128", FdinfoText::file().line("drm-driver", "amdgpu").line("drm-resident-vram", "1024 KiB"));
    machine.refresh(0);
    machine.check(0, &[]);
}
