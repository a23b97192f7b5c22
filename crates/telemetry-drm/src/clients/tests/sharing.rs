//! Clients that several processes hold.

use super::{
    SECOND,
    machine::{AMD, MIB, Machine, XE, amdgpu, xe},
};

#[test]
fn one_browser_is_counted_once() {
    // (xpumanager 145)
    let mut machine = Machine::new(&[AMD]);
    let text = |gfx_ns| amdgpu(7).resident("vram", 1024).engine("gfx", gfx_ns);
    let client = machine.proc.process(40, "firefox", 1000).open(5, "dev/dri/renderD128", text(0));
    for pid in 41..60 {
        let child = machine.proc.process(pid, "Web Content", 1001);
        child.hold(7, "dev/dri/renderD128", &client);
        child.hold(9, "dev/dri/renderD128", &client);
    }
    machine.refresh(0);
    client.set(text(300_000_000));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), Some((30, 0, 0)))]);
    assert_eq!(machine.clients.busy_pct(0), Some(30));
}

#[test]
fn the_process_that_started_first_owns_a_client_whatever_its_pid() {
    let mut machine = Machine::new(&[AMD]);
    let child = machine.proc.process(30, "child", 2000);
    let client = child.open(5, "dev/dri/card0", amdgpu(7).resident("vram", 1024));
    machine.proc.process(40, "parent", 1000).hold(6, "dev/dri/card0", &client);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
}

#[test]
fn clients_of_one_process_are_added_up() {
    let mut machine = Machine::new(&[AMD]);
    let process = machine.proc.process(40, "blender", 1000);
    let text = |id, gfx_ns| amdgpu(id).resident("vram", 1024).engine("gfx", gfx_ns);
    let clients: Vec<_> = (1..=3).map(|id| process.open(4 + id as u32, "dev/dri/renderD128", text(id, 0))).collect();
    machine.refresh(0);
    clients.iter().zip(1..).for_each(|(client, id)| client.set(text(id, 200_000_000)));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(3 * MIB), Some((60, 0, 0)))]);
}

#[test]
fn who_opens_a_card_for_others_does_not_own_it() {
    let mut machine = Machine::new(&[AMD]);
    let text = |gfx_ns| amdgpu(7).resident("vram", 1024).engine("gfx", gfx_ns);
    let client = machine.proc.process(1, "init", 1).open(40, "dev/dri/card0", text(0));
    for (pid, name) in [(20, "systemd-logind"), (21, "systemd"), (22, "gnome-session-binary"), (23, "bash")] {
        machine.proc.process(pid, name, u64::from(pid)).hold(8, "dev/dri/card0", &client);
    }
    let compositor = machine.proc.process(40, "gnome-shell", 1000);
    compositor.hold(11, "dev/dri/card0", &client);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);

    // Nobody's, but work all the same.
    compositor.exit();
    machine.pass(SECOND);
    client.set(text(100_000_000));
    machine.refresh(0);
    machine.check(0, &[]);
    assert_eq!(machine.clients.busy_pct(0), Some(10));
}

#[test]
fn equal_client_ids_on_two_cards_are_two_clients() {
    let mut machine = Machine::new(&[AMD, XE]);
    let process = machine.proc.process(40, "blender", 1000);
    process.open(5, "dev/dri/renderD128", amdgpu(7).resident("vram", 1024));
    process.open(6, "dev/dri/renderD129", xe(7).resident("vram0", 2048));
    machine.refresh(0);
    machine.refresh(1);
    machine.check(0, &[(40, Some(MIB), None)]);
    machine.check(1, &[(40, Some(2 * MIB), None)]);
}

#[test]
fn more_clients_than_files_are_kept_open_are_read_all_the_same() {
    let mut machine = Machine::new(&[AMD]);
    let text = |id, gfx_ns| amdgpu(id).resident("vram", 1024).engine("gfx", gfx_ns);
    let clients: Vec<_> =
        (1..=300).map(|id| machine.proc.process(40 + id, "worker", 1000).open(5, "dev/dri/renderD128", text(id.into(), 0))).collect();
    machine.refresh(0);
    clients.iter().zip(1..).for_each(|(client, id)| client.set(text(id, 2_000_000)));
    machine.pass(SECOND);
    machine.refresh(0);
    assert_eq!(machine.processes(0).len(), 300);
    assert_eq!(machine.clients.busy_pct(0), Some(60));
    assert_eq!(machine.clients.cards[0].kept_files(), 256);
}
