//! Clients on a simulated machine. The names in brackets are the reports in which other tools went wrong there.

mod access;
mod compute;
mod life;
mod machine;
mod sharing;

use std::time::Duration;

use drm_sim::proc::FdinfoText;

use machine::{AMD, APU, GIB, INTEL, MIB, Machine, XE, amdgpu, i915, xe};

const SECOND: f64 = 1.0;

#[test]
fn time_on_engines_becomes_utilization_from_the_second_look_on() {
    let mut machine = Machine::new(&[AMD]);
    let game = machine.proc.process(40, "game", 1000);
    let text = |gfx_ns, compute_ns, dec_ns| {
        amdgpu(7).resident("vram", 2048).engine("gfx", gfx_ns).engine("compute", compute_ns).engine("dec", dec_ns)
    };
    let client = game.open(5, "dev/dri/renderD128", text(9_000_000_000, 5, 0));
    machine.refresh(0);
    machine.check(0, &[(40, Some(2 * MIB), None)]);
    assert_eq!(machine.clients.busy_pct(0), None, "nothing has been seen twice");

    client.set(text(9_250_000_000, 100_000_005, 20_000_000));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(2 * MIB), Some((35, 0, 2)))]);
    assert_eq!(machine.clients.busy_pct(0), Some(25));
    assert_eq!(machine.processes(0)[0].utilization.map(|utilization| utilization.sampled), Some(machine.now.stamp()));
}

/// Nobody waits for so long, so nobody else can ration it.
#[test]
fn what_takes_very_long_is_left_alone_for_its_share_of_time() {
    let after = |ms| super::rest_after(Duration::from_millis(ms));
    assert_eq!([1, 100, 101, 300].map(after), [0, 0, 25_250, 75_000].map(Duration::from_millis));

    let mut machine = Machine::new(&[AMD]);
    let client = machine.proc.process(40, "game", 1000).open(5, "dev/dri/renderD128", amdgpu(7).resident("vram", 1024));
    machine.refresh(0);
    machine.clients.cards[0].rest = after(101);
    machine.clients.index_rest = after(300);
    client.set(amdgpu(7).resident("vram", 2048));
    let later = machine.proc.process(41, "late", 1000);
    later.open(5, "dev/dri/renderD128", amdgpu(8).resident("vram", 1024));
    machine.pass(25.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(2 * MIB), None)]);
    machine.pass(50.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(2 * MIB), None), (41, Some(MIB), None)]);
}

#[test]
fn an_apu_with_25_gb_in_the_systems_memory_is_not_said_to_hold_5_mb() {
    // (nvtop 492)
    let mut machine = Machine::new(&[APU, AMD]);
    let text = |slot| FdinfoText::new("amdgpu", slot, 9).resident("vram", 5 * 1024).resident("gtt", 25 << 20).engine("gfx", 1);
    let process = machine.proc.process(40, "llama-server", 1000);
    process.open(5, "dev/dri/renderD128", text(APU.slot));
    process.open(6, "dev/dri/renderD129", text(AMD.slot));
    machine.refresh(0);
    machine.refresh(1);
    machine.check(0, &[(40, Some(25 * GIB + 5 * MIB), None)]);
    machine.check(1, &[(40, Some(5 * MIB), None)]);
}

#[test]
fn xe_is_not_stuck_at_0_for_want_of_engine_times() {
    // (htop 2069)
    let mut machine = Machine::new(&[XE]);
    let text =
        |cycles, total| xe(5).resident("vram0", 23_992).cycles("rcs", cycles, total).capacity("ccs", 4).cycles("ccs", 4 * cycles, total);
    let client = machine.proc.process(40, "vkcube", 1000).open(5, "dev/dri/renderD128", text(28_257_900, 7_655_183_225));
    machine.refresh(0);
    client.set(text(28_257_900 + 1_900_000, 7_655_183_225 + 19_000_000));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(23_992 << 10), Some((20, 0, 0)))]);
    assert_eq!(machine.clients.busy_pct(0), Some(10));
}

#[test]
fn intels_utilization_is_the_busiest_engine_over_all_clients() {
    let mut machine = Machine::new(&[INTEL]);
    let text = |id, render_ns, video_ns| i915(id).engine("render", render_ns).engine("video", video_ns).capacity("video", 2);
    machine.refresh(0);
    assert_eq!(machine.clients.busy_pct(0), Some(0), "no clients, no work");
    machine.check(0, &[]);

    let ids: Vec<u32> = (1..=3).collect();
    let clients: Vec<_> =
        ids.iter().map(|&id| machine.proc.process(40 + id, "ffmpeg", 1000).open(5, "dev/dri/renderD128", text(id.into(), 1, 1))).collect();
    machine.pass(5.0 * SECOND);
    machine.refresh(0);
    for (client, id) in clients.iter().zip(1..) {
        client.set(text(id, 100_000_001, 500_000_001));
    }
    machine.pass(SECOND);
    machine.refresh(0);
    assert_eq!(machine.clients.busy_pct(0), Some(75));
    machine.check(0, &[(41, None, Some((10, 0, 25))), (42, None, Some((10, 0, 25))), (43, None, Some((10, 0, 25)))]);
}

#[test]
fn one_who_has_opened_a_card_and_never_used_it_is_none_of_its_processes() {
    let mut machine = Machine::new(&[AMD]);
    let text = |gfx_ns| amdgpu(7).resident("vram", 0).engine("gfx", gfx_ns);
    let client = machine.proc.process(40, "upowerd", 1000).open(5, "dev/dri/renderD128", text(0));
    machine.refresh(0);
    machine.check(0, &[]);
    client.set(text(1));
    machine.pass(SECOND);
    machine.refresh(0);
    machine.check(0, &[(40, Some(0), Some((0, 0, 0)))]);
}

#[test]
fn work_is_progress_once() {
    let mut machine = Machine::new(&[XE]);
    let text = |cycles, total| xe(5).cycles("bcs", cycles, total);
    let client = machine.proc.process(40, "vkcube", 1000).open(5, "dev/dri/renderD128", text(0, 1000));
    let progress = |machine: &mut Machine| {
        machine.pass(SECOND);
        machine.refresh(0);
        machine.clients.made_progress(0)
    };
    assert!(!progress(&mut machine));
    client.set(text(0, 2000));
    assert!(!progress(&mut machine), "the clock alone is no work");
    client.set(text(1, 3000));
    assert!(progress(&mut machine));
    assert!(!machine.clients.made_progress(0), "asked again");
    assert!(!progress(&mut machine));
}

#[test]
fn several_questions_at_one_time_are_one_look() {
    let mut machine = Machine::new(&[AMD]);
    let client = machine.proc.process(40, "game", 1000).open(5, "dev/dri/renderD128", amdgpu(7).resident("vram", 1024));
    machine.refresh(0);
    client.set(amdgpu(7).resident("vram", 2048));
    machine.pass(0.003);
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
    machine.pass(0.010);
    machine.refresh(0);
    machine.check(0, &[(40, Some(2 * MIB), None)]);
}
