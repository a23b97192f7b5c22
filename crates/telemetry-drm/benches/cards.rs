//! One tick of one card, all questions but those of processes' numbers: what the source itself costs. The files are plain ones, so what a
//! driver does behind them comes on top.

#![allow(missing_docs, clippy::unwrap_used, reason = "criterion's macros; a bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use drm_sim::{
    Profile, Tree,
    profiles::{A380_I915, B580, MI300X, PHOENIX, RX580, RX6900XT},
};
use telemetry::{Answer, Device, Now, Reading, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};

/// A device of its own tree, and which of its probes it answers.
struct Asked {
    device: Box<dyn Device>,
    reading: Reading,
    probes: Vec<usize>,
    now_ns: u64,
    _tree: Tree,
}

impl Asked {
    fn new(profile: &Profile, status: &str, control: &str) -> Self {
        let tree = Tree::new();
        let card = tree.add(0, profile);
        card.set("power/control", control);
        card.set_status(status);
        if control == "auto" && profile.driver == "amdgpu" {
            card.set("gpu_busy_percent", "0");
        }
        let mut source = DrmSource::new(DrmOptions { root: tree.root().to_owned(), ..DrmOptions::default() });
        let device = source.open().unwrap().devices.remove(0);
        let mut asked = Self { device, reading: Reading::default(), probes: Vec::new(), now_ns: 1_000_000_000_000, _tree: tree };
        let probes = 0..asked.device.probes().len();
        asked.probes = probes.filter(|probe| asked.ask(*probe) == Answer::Answered).collect();
        // Those that are due once a minute are not part of a tick.
        asked.probes.retain(|probe| asked.device.period(*probe).is_zero());
        asked
    }

    fn ask(&mut self, probe: usize) -> Answer {
        self.device.ask(probe, Now { boottime_ns: self.now_ns, clock_offset_ns: 0 }, &mut self.reading).unwrap()
    }

    fn tick(&mut self) {
        self.now_ns += 100_000_000;
        for place in 0..self.probes.len() {
            self.ask(self.probes[place]);
        }
    }
}

fn ticks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tick of a card");
    for profile in [RX580, RX6900XT, PHOENIX, MI300X, A380_I915, B580] {
        let mut asked = Asked::new(&profile, "active", "on");
        group.bench_function(profile.name, |bencher| bencher.iter(|| asked.tick()));
    }
    let mut asked = Asked::new(&RX6900XT, "active", "auto");
    (0..40).for_each(|_| asked.tick());
    group.bench_function("rx6900xt, idle and left alone", |bencher| bencher.iter(|| asked.tick()));
    let mut asked = Asked::new(&RX6900XT, "suspended", "auto");
    group.bench_function("rx6900xt, asleep", |bencher| bencher.iter(|| asked.tick()));
    group.finish();
}

criterion_group!(benches, ticks);
criterion_main!(benches);
