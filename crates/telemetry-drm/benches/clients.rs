//! What it costs to know who uses the cards: all of /proc looked through, known clients read. In time of a core, which the budget is of, and
//! which other work on the machine disturbs least.
#![expect(missing_docs, reason = "criterion's macros make public functions without")]
#![allow(clippy::unwrap_used, reason = "a bench that cannot have its tree says so and ends")]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use drm_sim::{
    Tree,
    proc::{FdinfoText, Proc, crowd},
    profiles,
};
use nix::time::{ClockId, clock_gettime};
use telemetry::{Device, Now, Reading, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};

/// As many lines as amdgpu writes on a recent kernel.
fn text(pci: &str, client_id: u64) -> String {
    let mut text = FdinfoText::new("amdgpu", pci, client_id).line("pasid", 32_786);
    for region in ["cpu", "gtt", "vram", "gds", "gws", "oa", "doorbell", "mmioremap"] {
        for kind in ["total", "shared", "active", "resident", "purgeable", "memory"] {
            text = text.line(&format!("drm-{kind}-{region}"), format_args!("{} KiB", client_id % 9973));
        }
    }
    for engine in ["gfx", "compute", "dma", "dec", "enc", "jpeg"] {
        text = text.engine(engine, 1 + client_id);
    }
    text.into()
}

struct Machine {
    device: Box<dyn Device>,
    clients: usize,
    processes: usize,
    departures: usize,
    now: Now,
    reading: Reading,
    _tree: Tree,
}

impl Machine {
    /// 1,000 processes with four open files each. Of so many, every file is a client's; two processes each share their clients.
    fn new(with_clients: u32) -> Self {
        let tree = Tree::new();
        let card = tree.add(1, &profiles::RX6900XT);
        let render = format!("dev/dri/renderD{}", card.render_minor());
        let proc = Proc::new(tree.root());
        crowd(&proc, 100, 1000 - with_clients, 4);
        for pair in 0..with_clients / 2 {
            let parent = proc.process(10_000 + 2 * pair, "browser", 1000);
            let child = proc.process(10_001 + 2 * pair, "browser", 1001);
            for fd in 0..4 {
                let client = parent.open(fd, &render, text(card.pci(), u64::from(4 * pair + fd)));
                child.hold(fd, &render, &client);
            }
        }
        let device = DrmSource::new(DrmOptions { root: tree.root().to_owned(), ..DrmOptions::default() }).open().unwrap().devices.remove(0);
        let probe = |name| device.probes().iter().position(|probe| probe.name == name).unwrap();
        let (clients, processes, departures) = (probe("clients"), probe("processes"), probe("departures"));
        let now = Now { boottime_ns: 1, clock_offset_ns: 0 };
        let mut machine = Self { device, clients, processes, departures, now, reading: Reading::default(), _tree: tree };
        machine.look_after(5000);
        machine.read_after(10);
        assert_eq!(machine.reading.processes.len(), with_clients as usize / 2);
        machine
    }

    fn time(&mut self, ask: impl FnOnce(&mut Self)) -> Duration {
        let time = || Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap());
        let start = time();
        ask(self);
        time() - start
    }

    fn look_after(&mut self, milliseconds: u64) {
        self.ask_after(milliseconds, self.clients);
    }

    fn read_after(&mut self, milliseconds: u64) {
        self.ask_after(milliseconds, self.processes);
    }

    fn check_after(&mut self, milliseconds: u64) {
        self.ask_after(milliseconds, self.departures);
    }

    fn ask_after(&mut self, milliseconds: u64, probe: usize) {
        self.now.boottime_ns += milliseconds * 1_000_000;
        self.device.ask(probe, self.now, &mut self.reading).unwrap();
    }
}

fn all_of_proc(criterion: &mut Criterion) {
    for with_clients in [0, 100, 1000] {
        let mut machine = Machine::new(with_clients);
        let name = format!("index of 1000 processes, 4000 files, {} of them of {} clients", with_clients * 4, with_clients * 2);
        criterion.bench_function(&name, |bencher| {
            bencher.iter_custom(|looks| (0..looks).map(|_| machine.time(|machine| machine.look_after(5000))).sum())
        });
    }
}

fn known_clients(criterion: &mut Criterion) {
    for with_clients in [10, 100, 1000] {
        let mut machine = Machine::new(with_clients);
        criterion.bench_function(&format!("look at {} known clients", with_clients * 2), |bencher| {
            bencher.iter_custom(|looks| (0..looks).map(|_| machine.time(|machine| machine.read_after(10))).sum());
        });
    }
}

fn departures(criterion: &mut Criterion) {
    for with_clients in [10, 100, 1000] {
        let mut machine = Machine::new(with_clients);
        machine.check_after(10);
        criterion.bench_function(&format!("see whether {} known clients are there", with_clients * 2), |bencher| {
            bencher.iter_custom(|looks| (0..looks).map(|_| machine.time(|machine| machine.check_after(10))).sum());
        });
    }
}

criterion_group!(benches, all_of_proc, known_clients, departures);
criterion_main!(benches);
