//! Simulated machines with AMD GPUs, and a bridge of our own for the mock source in sizes that no flag asks for.

use std::path::Path;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bridge::clock::{Clock as _, SystemClock};
use bridge::sampler::LaneLauncher;
use bridge::{Control, MapOptions, Plan, Source, Unobserved, WhenUnavailable};
use drm_sim::proc::{FdinfoText, Proc};
use drm_sim::{Tree, profiles};
use nix::sys::signal::{SigSet, Signal};
use telemetry::mock::MockSource;

use crate::case::FIRST_PID;

/// Cards, and processes that hold so many files each, the first two of them one client on one card.
pub(crate) fn amd(cards: u32, processes: u32, files: u32) -> Tree {
    let tree = Tree::new();
    let places: Vec<_> = (0..cards).map(|card| format!("0000:{:02x}:00.0", 0x41 + card)).collect();
    for (card, place) in (0..).zip(&places) {
        tree.add_at(card, place, &profiles::MI300X);
    }
    let proc = Proc::new(tree.root());
    proc.put_reader_in_the_first_namespace();
    for number in 0..processes {
        let process = proc.process(FIRST_PID + number, "worker", u64::from(number));
        let (card, client) = (number % cards, u64::from(number) + 1);
        let text = FdinfoText::new("amdgpu", &places[card as usize], client)
            .engine("compute", u64::from(number) * 1_000_000)
            .resident("vram", 1 << 20)
            .resident("gtt", 1 << 10);
        let device = format!("dev/dri/renderD{}", 128 + card);
        let client = process.open(3, &device, text.as_str());
        if files > 1 {
            process.hold(4, &device, &client);
        }
        (5..3 + files).for_each(|file| process.hold_other(file, "socket:[4711]"));
    }
    tree
}

/// Publishes the mock source in this process until SIGTERM, with the loop that the shipped binary has.
pub(crate) fn publish_mock(pin_dir: &Path, interval: Duration, gpus: u32, processes: u32) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("cannot block SIGTERM")?;
    let control = Control::new().context("cannot make a control")?;
    let asked = control.clone();
    // Ends with the process.
    drop(thread::spawn(move || signals.wait().map(|_| asked.stop())));
    let clock = Arc::new(SystemClock);
    let make = move || Box::new(MockSource::new(gpus, processes)) as _;
    let launcher = Box::new(LaneLauncher::new(make, interval, Arc::<SystemClock>::clone(&clock)).inline());
    let plan = Plan {
        maps: MapOptions::new(pin_dir, process::id(), clock.boottime_ns()),
        keep_pins: false,
        poll_interval: interval,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock,
        sources: vec![Source { name: "mock", is_mock: true, launcher }],
        when_unavailable: WhenUnavailable::Fail,
        observer: Box::new(Unobserved),
    };
    bridge::run(plan, &control).context("the bridge failed")
}
