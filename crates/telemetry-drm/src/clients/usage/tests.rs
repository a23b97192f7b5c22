use proptest::prelude::*;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn info(text: &str) -> Fdinfo {
    Fdinfo::parse(text.as_bytes())
}

/// What the second text, a second after the first, adds.
fn step(before: &str, after: &str) -> Step {
    let (mut sample, _) = Sample::first(&info(before), 5 * SECOND_NS);
    sample.advance(&info(after), 6 * SECOND_NS)
}

#[track_caller]
fn check(before: &str, after: &str, engine: Engine, expected: Option<u32>) {
    assert_eq!(step(before, after).shares.0[engine as usize], expected, "from {before:?} to {after:?}");
}

#[test]
fn time_is_seen_against_time_and_the_number_of_engines() {
    check("drm-engine-gfx: 1000 ns", "drm-engine-gfx: 250001000 ns", Engine::Render, Some(2500));
    let two = "drm-engine-capacity-video: 2\ndrm-engine-video";
    check(&format!("{two}: 0 ns"), &format!("{two}: 1000000000 ns"), Engine::Video, Some(5000));
    check("drm-engine-gfx: 1000 ns", "drm-engine-gfx: 1000 ns", Engine::Render, Some(0));
    check("drm-engine-gfx: 0 ns", "drm-engine-gfx: 9000000000 ns", Engine::Render, Some(10_000));
}

#[test]
fn cycles_are_seen_against_cycles_whatever_time_passed() {
    let text = |cycles, total| format!("drm-cycles-ccs: {cycles}\ndrm-total-cycles-ccs: {total}\ndrm-engine-capacity-ccs: 4\n");
    check(&text(0, 100), &text(800, 1100), Engine::Compute, Some(2000));
    check(&text(500, 100), &text(500, 1100), Engine::Compute, Some(0));
    check(&text(500, 100), &text(500, 100), Engine::Compute, Some(0));
    check(&text(500, 100), &text(600, 100), Engine::Compute, None);
}

#[test]
fn xe_is_not_stuck_at_0_for_want_of_cycles() {
    // Told by cycles alone, there is no time to go by.
    let cycles = |cycles, total| format!("drm-cycles-rcs: {cycles}\ndrm-total-cycles-rcs: {total}\n");
    check(&cycles(0, 0), &cycles(500, 1000), Engine::Render, Some(5000));
    // Cycles that stand still while the time goes on.
    let both = |ns| format!("drm-cycles-rcs: 0\ndrm-total-cycles-rcs: {ns}\ndrm-engine-rcs: {ns} ns\n");
    check(&both(0), &both(500_000_000), Engine::Render, Some(5000));
    // Cycles without the clock they are to be seen against.
    let partial = |cycles, ns| format!("drm-cycles-rcs: {cycles}\ndrm-engine-rcs: {ns} ns\n");
    check(&partial(1, 0), &partial(900, 500_000_000), Engine::Render, Some(5000));
    // Nothing that can be made a share of: absent, which is not 0.
    check("drm-cycles-rcs: 1", "drm-cycles-rcs: 900", Engine::Render, None);
    assert!(step("drm-cycles-rcs: 1", "drm-cycles-rcs: 900").is_progress);
}

#[test]
fn the_first_sample_is_no_share() {
    let (sample, step) = Sample::first(&info("drm-engine-gfx: 9000000000 ns"), SECOND_NS);
    assert!(step.shares.is_absent());
    assert!(sample.has_ever_run());
}

#[test]
fn a_counter_that_steps_back_keeps_its_larger_value() {
    let (mut sample, _) = Sample::first(&info("drm-engine-gfx: 500000000 ns"), SECOND_NS);
    let back = sample.advance(&info("drm-engine-gfx: 100000000 ns"), 2 * SECOND_NS);
    assert_eq!(back.shares.0[Engine::Render as usize], Some(0));
    assert!(!back.is_progress);
    let on = sample.advance(&info("drm-engine-gfx: 600000000 ns"), 3 * SECOND_NS);
    assert_eq!(on.shares.0[Engine::Render as usize], Some(1000));
    assert!(on.is_progress);
}

#[test]
fn an_engine_that_amdgpu_tells_of_from_its_first_use_on_starts_at_0() {
    check("drm-engine-gfx: 1000 ns", "drm-engine-gfx: 1000 ns\ndrm-engine-dec: 100000000 ns", Engine::Decode, Some(1000));
}

#[test]
fn shares_of_amdgpu_before_5_19_are_taken_as_they_are() {
    let (mut sample, first) = Sample::first(&info("gfx0: 12.5%"), SECOND_NS);
    assert_eq!(first.shares.sm_pct(), 12);
    assert_eq!(sample.advance(&info("gfx0: 99.9%"), 2 * SECOND_NS).shares.sm_pct(), 99);
    assert!(sample.advance(&info(""), 3 * SECOND_NS).shares.is_absent());
}

#[test]
fn engines_are_published_by_what_they_do() {
    let all =
        "gfx0: 20%\ncompute0: 30%\ndma0: 99%\ndec0: 1%\njpeg0: 2%\nvideo0: 4%\nenc0: 8%\nenc_10: 16%\nvideo-enhance0: 98%\nvpe0: 97%\n";
    let (_, Step { shares, .. }) = Sample::first(&info(all), SECOND_NS);
    assert_eq!((shares.sm_pct(), shares.enc_pct(), shares.dec_pct()), (50, 24, 7));
    assert_eq!(shares.busiest_pct(), Some(99));
    assert_eq!(Shares::default().busiest_pct(), None);
}

#[test]
fn many_small_shares_add_up_and_large_ones_end_at_100() {
    let sum = |share, count| {
        let mut sum = Shares::default();
        let (_, step) = Sample::first(&info(share), SECOND_NS);
        (0..count).for_each(|_| sum.add(&step.shares));
        sum.busiest_pct()
    };
    assert_eq!(sum("gfx0: 1%", 40), Some(40));
    assert_eq!(sum("gfx0: 60%", 3), Some(100));
    let tenth = step("drm-engine-gfx: 0 ns", "drm-engine-gfx: 4000000 ns").shares;
    let mut shares = Shares::default();
    (0..5).for_each(|_| shares.add(&tenth));
    assert_eq!((tenth.sm_pct(), shares.sm_pct()), (0, 2));
}

#[test]
fn only_a_gpu_without_memory_of_its_own_holds_the_systems() {
    let memory = ClientMemory { local: Some(5 << 20), gtt: Some(25 << 30), system: Some(1) };
    assert_eq!(memory_bytes(&memory, true), Some((5 << 20) + (25 << 30) + 1));
    assert_eq!(memory_bytes(&memory, false), Some(5 << 20));
    assert_eq!(memory_bytes(&ClientMemory::default(), true), None);
    assert_eq!(memory_bytes(&ClientMemory { local: None, ..memory }, false), None);
}

fn counters() -> impl Strategy<Value = EngineCounters> {
    (
        any::<Option<u64>>(),
        any::<Option<u64>>(),
        any::<Option<u64>>(),
        proptest::option::of(1..=u32::MAX),
        proptest::option::of(0_u32..=100),
    )
        .prop_map(|(busy_ns, cycles, total_cycles, capacity, busy_pct)| EngineCounters {
            busy_ns,
            cycles,
            total_cycles,
            capacity,
            busy_pct,
        })
}

proptest! {
    #[test]
    fn no_counters_make_a_share_beyond_100(samples in proptest::collection::vec((any::<u64>(), proptest::array::uniform10(counters())), 2..5)) {
        let infos: Vec<_> = samples.iter().map(|(at_ns, engines)| (*at_ns, Fdinfo { engines: *engines, ..Fdinfo::default() })).collect();
        let (mut sample, _) = Sample::first(&infos[0].1, infos[0].0);
        let mut sum = Shares::default();
        for (at_ns, info) in &infos[1..] {
            let step = sample.advance(info, *at_ns);
            prop_assert!(step.shares.0.iter().flatten().all(|&share| share <= WHOLE));
            sum.add(&step.shares);
        }
        prop_assert!(sum.sm_pct() <= 100 && sum.enc_pct() <= 100 && sum.dec_pct() <= 100 && sum.busiest_pct() <= Some(100));
    }
}
