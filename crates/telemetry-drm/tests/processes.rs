//! Processes as the source's devices tell of them: on several cards at once, while they come and go, and for one who may not see them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::{
    collections::BTreeSet,
    env,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use drm_sim::{
    Card, Fifo, Tree,
    kfd::{Kfd, Node},
    proc::{FdinfoText, Proc},
    profiles::{A380_XE, B580, COMETLAKE, PHOENIX, RX6900XT},
};
use nix::{sys::stat::Mode, unistd::geteuid, unistd::mkfifo};
use telemetry::{Device, Now, Reading, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};
use test_support::eventually;

const SECOND_NS: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// A source's devices with their readings, on a clock of the test's own.
struct Machine {
    lanes: Vec<(Box<dyn Device>, Reading)>,
    now: Now,
}

impl Machine {
    fn open(tree: &Tree) -> Self {
        Self::open_with(DrmOptions { root: tree.root().to_owned(), ..DrmOptions::default() })
    }

    fn open_with(options: DrmOptions) -> Self {
        let devices = DrmSource::new(options).open().unwrap().devices;
        let lanes = devices.into_iter().map(|device| (device, Reading::default())).collect();
        Self { lanes, now: Now { boottime_ns: 100 * SECOND_NS, clock_offset_ns: 1_700_000_000 * SECOND_NS as i64 } }
    }

    /// Lets time pass and puts every question to every device, as far apart as lanes do.
    fn look_after(&mut self, seconds: f64) {
        self.now.boottime_ns += (seconds * SECOND_NS as f64) as u64;
        for (device, reading) in &mut self.lanes {
            self.now.boottime_ns += 2_000_000;
            for probe in 0..device.probes().len() {
                device.ask(probe, self.now, reading).unwrap();
            }
        }
    }

    /// PID, memory in MiB and sm utilization of the processes of the card at `pci`.
    fn processes(&self, card: &Card) -> Vec<(u32, Option<u64>, Option<u32>)> {
        let of = |process: &telemetry::Process| {
            (process.pid, process.used_memory_bytes.map(|bytes| bytes / MIB), process.utilization.map(|utilization| utilization.sm_pct))
        };
        self.reading(card).processes.iter().map(of).collect()
    }

    fn reading(&self, card: &Card) -> &Reading {
        let is_card = |device: &dyn Device| device.identity().pci_bus_id.to_lowercase().ends_with(card.pci());
        &self.lanes.iter().find(|(device, _)| is_card(&**device)).expect("a device for each card").1
    }
}

fn render(card: &Card) -> String {
    format!("dev/dri/renderD{}", card.render_minor())
}

#[test]
fn each_card_tells_of_its_own_processes_and_all_are_asked_in_one_tick() {
    let tree = Tree::new();
    let (amd, apu, intel, arc) = (tree.add(10, &RX6900XT), tree.add(1, &PHOENIX), tree.add(0, &COMETLAKE), tree.add(3, &B580));
    let kfd = Kfd::new(tree.root());
    kfd.node(1, Node { gpu_id: 4711, render_minor: amd.render_minor(), location: 0, compute_units: 80 });
    kfd.process(50).set(4711, 300 * MIB, 40);
    let proc = Proc::new(tree.root());
    let browser = proc.process(40, "firefox", 900);
    let text = |driver: &str, card: &Card, id, region: &str, busy_ns: u64| {
        let text = FdinfoText::new(driver, card.pci(), id).resident(region, 2048).resident("gtt", 4096);
        match driver {
            "amdgpu" => text.engine("gfx", busy_ns),
            "i915" => text.engine("render", busy_ns),
            _ => text.cycles("rcs", busy_ns, 4 * busy_ns),
        }
    };
    let all = [("amdgpu", &amd, "vram"), ("amdgpu", &apu, "vram"), ("i915", &intel, "system0"), ("xe", &arc, "vram0")];
    let clients: Vec<_> =
        all.iter().zip(5..).map(|((driver, card, region), fd)| browser.open(fd, &render(card), text(driver, card, 7, region, 1))).collect();
    let child = proc.process(41, "Web Content", 901);
    all.iter().zip(&clients).zip(5..).for_each(|(((_, card, _), client), fd)| child.hold(fd, &render(card), client));

    let mut machine = Machine::open(&tree);
    machine.look_after(0.0);
    for (client, (driver, card, region)) in clients.iter().zip(all) {
        client.set(text(driver, card, 7, region, 250_000_001));
    }
    // As long apart as each device's own looks are.
    machine.now.boottime_ns -= 8_000_000;
    machine.look_after(1.0);
    assert_eq!(machine.processes(&amd), [(40, Some(2), Some(25)), (50, Some(300), Some(50))]);
    assert_eq!(machine.processes(&apu), [(40, Some(6), Some(25))]);
    assert_eq!(machine.processes(&intel), [(40, Some(6), Some(25))]);
    assert_eq!(machine.processes(&arc), [(40, Some(2), Some(25))]);
    assert_eq!([&intel, &arc].map(|card| machine.reading(card).metrics.sm_util_pct), [Some(25); 2]);
}

/// A lane that may not read many clients at every tick reads them seconds apart, and what they did stands until it does.
#[test]
fn the_sample_period_is_the_time_between_two_readings() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let proc = Proc::new(tree.root());
    let text = |busy_ns| FdinfoText::new("amdgpu", card.pci(), 7).resident("vram", 2048).engine("gfx", busy_ns);
    let client = proc.process(40, "busy", 900).open(5, &render(&card), text(0));
    let mut machine = Machine::open(&tree);
    let mut busy_ns = 0;
    for (seconds, period) in [(0.1, None), (0.1, Some(102)), (6.0, Some(6_002)), (3.0, Some(3_002))] {
        busy_ns += (seconds * SECOND_NS as f64) as u64;
        client.set(text(busy_ns));
        machine.look_after(seconds);
        assert_eq!(machine.reading(&card).process_sample_period, period.map(Duration::from_millis));
    }
    assert_eq!(machine.processes(&card), [(40, Some(2), Some(100))]);
}

#[test]
fn a_client_of_a_sleeping_card_is_not_read_by_the_lanes_of_others() {
    let tree = Tree::new();
    let (awake, asleep) = (tree.add(0, &RX6900XT), tree.add(1, &A380_XE));
    asleep.set_status("suspended");
    let proc = Proc::new(tree.root());
    let game = proc.process(40, "game", 900);
    game.open(5, &render(&awake), FdinfoText::new("amdgpu", awake.pci(), 7).resident("vram", 2048));
    game.open(6, &render(&asleep), FdinfoText::new("xe", asleep.pci(), 8).resident("vram0", 2048));
    let fdinfo = tree.root().join("proc/40/fdinfo/6");
    fs::remove_file(&fdinfo).unwrap();
    mkfifo(&fdinfo, Mode::S_IRUSR).unwrap();

    let (done, looked) = mpsc::channel();
    let look = thread::spawn(move || {
        let mut machine = Machine::open(&tree);
        (0..3).for_each(|_| machine.look_after(5.0));
        assert_eq!(machine.processes(&awake), [(40, Some(2), None)]);
        assert_eq!(machine.processes(&asleep), []);
        done.send(()).unwrap();
    });
    assert!(
        !matches!(looked.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Timeout)),
        "the fdinfo of a sleeping card's client was opened"
    );
    look.join().unwrap();
}

#[test]
fn processes_that_vanish_while_they_are_read_are_no_error() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let proc = Proc::new(tree.root());
    let stays = proc.process(7, "stays", 1);
    stays.open(5, &render(&card), FdinfoText::new("amdgpu", card.pci(), 1).resident("vram", 2048));
    let (device, pci) = (render(&card), card.pci().to_owned());
    let churn = thread::spawn(move || {
        for round in 0..30 {
            let processes: Vec<_> = (100..110)
                .map(|pid| {
                    let process = proc.process(pid, "comes and goes", 1000 + round);
                    let id = round * 1000 + u64::from(pid);
                    process.open(5, &device, FdinfoText::new("amdgpu", &pci, id).resident("vram", 1024).engine("gfx", 5));
                    process
                })
                .collect();
            processes.into_iter().for_each(drm_sim::proc::Process::exit);
        }
    });
    let mut machine = Machine::open(&tree);
    let mut counts = BTreeSet::new();
    while !churn.is_finished() {
        for seconds in [5.0, 0.1] {
            machine.look_after(seconds);
            let processes = machine.processes(&card);
            assert_eq!(processes[0].0, 7, "the one that stays is always there");
            let is_one_of_them =
                |&(pid, memory, sm): &(u32, _, Option<u32>)| (100..110).contains(&pid) && memory == Some(1) && sm.is_none_or(|sm| sm == 0);
            assert!(processes[1..].iter().all(is_one_of_them), "{processes:?}");
            counts.insert(processes.len());
        }
    }
    churn.join().unwrap();
    assert!(counts.len() > 1, "nothing was seen to come or go: {counts:?}");
}

#[test]
fn memory_on_an_integrated_gpu_is_the_systems_on_its_virtual_functions_too() {
    let tree = Tree::new();
    let proc = Proc::new(tree.root());
    let process = proc.process(7, "desktop", 900);
    let cards = [(0, "0000:00:02.0"), (1, "0000:00:02.1"), (2, "0000:03:00.0")].map(|(number, pci)| tree.add_at(number, pci, &COMETLAKE));
    for card in &cards {
        let text = FdinfoText::new("i915", card.pci(), 3).resident("system0", 2048).resident("local0", 1024);
        process.open(5 + card.number(), &render(card), text);
    }
    let mut machine = Machine::open(&tree);
    machine.look_after(0.0);
    let memory = cards.each_ref().map(|card| machine.processes(card)[0].1);
    assert_eq!(memory, [Some(3), Some(3), Some(1)]);
}

/// A machine of two cards with a process each, one of which is about to hang.
struct Hanging {
    tree: Tree,
    proc: Proc,
    cards: [Card; 2],
    machine: Machine,
}

impl Hanging {
    fn new() -> Self {
        let tree = Tree::new();
        let cards = [tree.add(0, &RX6900XT), tree.add(1, &PHOENIX)];
        let proc = Proc::new(tree.root());
        for (card, pid) in cards.iter().zip(7..) {
            card.set("power/control", "on");
            proc.process(pid, "game", 900).open(5, &render(card), FdinfoText::new("amdgpu", card.pci(), 3).resident("vram", 2048));
        }
        let mut machine = Machine::open(&tree);
        machine.look_after(0.0);
        let hanging = Self { tree, proc, cards, machine };
        assert_eq!(hanging.pids(), [[7], [8]]);
        hanging
    }

    fn pids(&self) -> [Vec<u32>; 2] {
        self.cards.each_ref().map(|card| self.machine.processes(card).iter().map(|process| process.0).collect())
    }

    /// Both cards go on with their own figures, the one whose client hangs too, and in a while no process is told of. When the driver answers,
    /// those that are there are told of again.
    #[track_caller]
    fn check(&mut self, fifo: &Fifo) {
        let mut rounds = 0;
        // In less time than the next look at all of /proc is due in.
        while self.pids() != [[0; 0]; 2] {
            rounds += 1;
            assert!(rounds < 100, "what cannot be read any more is not so for ever: {:?}", self.pids());
            let busy_pct = 1 + rounds % 90;
            self.cards.iter().for_each(|card| card.set("gpu_busy_percent", busy_pct.to_string()));
            let start = Instant::now();
            self.machine.look_after(0.02);
            assert!(start.elapsed() < Duration::from_secs(5), "held up by {:?}", start.elapsed());
            for card in &self.cards {
                let metrics = self.machine.reading(card).metrics;
                assert_eq!((metrics.sm_util_pct, metrics.temp_c.is_some()), (Some(busy_pct), true), "{}", card.pci());
            }
        }
        assert!(rounds > 10, "not at once: {rounds}");

        fifo.feed("");
        eventually("they are read again", || {
            self.machine.look_after(0.02);
            (self.pids() == [[7], [8]]).then_some(())
        });
        // What the errand has cost is told, and nothing of the time in which it hung.
        for (device, _) in &self.machine.lanes {
            assert!(device.time_elsewhere() < Duration::from_millis(500), "{:?}", device.time_elsewhere());
        }
    }
}

#[test]
fn a_client_that_hangs_in_the_look_through_proc_costs_processes_and_no_cards_own_figures() {
    let mut hanging = Hanging::new();
    let fifo = hanging.proc.process(9, "train", 901).open_hanging(5, &render(&hanging.cards[0]));
    hanging.machine.now.boottime_ns += 5 * SECOND_NS;
    hanging.check(&fifo);
}

#[test]
fn a_known_client_that_hangs_costs_processes_and_no_cards_own_figures() {
    let mut hanging = Hanging::new();
    let process = hanging.proc.process(9, "train", 901);
    process.open(5, &render(&hanging.cards[0]), FdinfoText::new("amdgpu", hanging.cards[0].pci(), 4).resident("vram", 1024));
    hanging.machine.now.boottime_ns += 5 * SECOND_NS;
    let now = hanging.machine.now;
    // It is found, and does not answer when it is read.
    for (device, reading) in &mut hanging.machine.lanes {
        let look = device.probes().iter().position(|probe| probe.name == "clients").unwrap();
        device.ask(look, now, reading).unwrap();
    }
    process.close(5);
    let fifo = process.open_hanging(5, &render(&hanging.cards[0]));
    hanging.check(&fifo);
}

/// xe's own figures are read along with its clients while it idles; while these cannot be, without.
#[test]
fn an_idle_card_of_xe_is_looked_at_while_another_cards_client_hangs() {
    let mut hanging = Hanging::new();
    let xe = hanging.tree.add(2, &B580);
    xe.manage(1_000);
    hanging.machine = Machine::open(&hanging.tree);
    hanging.machine.look_after(0.0);
    let fifo = hanging.proc.process(9, "train", 901).open_hanging(5, &render(&hanging.cards[0]));
    hanging.machine.now.boottime_ns += 5 * SECOND_NS;
    for clock_mhz in [1_100, 1_200, 1_300] {
        xe.set("tile0/gt0/freq0/act_freq", clock_mhz.to_string());
        (0..40).for_each(|_| hanging.machine.look_after(0.1));
        assert_eq!(hanging.machine.reading(&xe).metrics.sm_clock_mhz, Some(clock_mhz));
    }
    fifo.feed("");
}

#[test]
fn who_is_not_to_look_at_processes_touches_nothing_of_theirs() {
    let tree = Tree::new();
    let cards = [tree.add(0, &RX6900XT), tree.add(1, &B580), tree.add(2, &COMETLAKE)];
    let proc = Proc::new(tree.root());
    let game = proc.process(40, "game", 900);
    let fifos: Vec<_> = cards.iter().zip(5..).map(|(card, fd)| game.open_hanging(fd, &render(card))).collect();
    let kfd = Kfd::new(tree.root());
    kfd.node(1, Node { gpu_id: 4711, render_minor: cards[0].render_minor(), location: 0, compute_units: 80 });
    kfd.process(50).set(4711, 300 * MIB, 40);
    let mut machine = Machine::open_with(DrmOptions { root: tree.root().to_owned(), looks_at_processes: false });
    (0..3).for_each(|_| machine.look_after(5.0));
    assert!(fifos.iter().all(|fifo| !fifo.has_reader()));
    for card in &cards {
        assert_eq!(machine.processes(card), []);
    }
    let [amd, arc, intel] = cards.each_ref().map(|card| machine.reading(card).metrics);
    assert!(amd.sm_util_pct.is_some() && amd.memory.is_some() && amd.temp_c.is_some(), "{amd:?}");
    assert!(arc.temp_c.is_some() && arc.sm_util_pct.is_none() && arc.memory.is_none(), "{arc:?}");
    assert!(intel.sm_clock_mhz.is_some() && intel.sm_util_pct.is_none(), "{intel:?}");
}

const AS_NOBODY: &str = "TELEMETRY_DRM_TEST_AS_NOBODY";
const NOBODY: u32 = 65_534;

/// In a process of its own, for the user that may see nobody else.
#[test]
fn without_privileges_the_cards_figures_remain_and_processes_are_absent() {
    if env::var_os(AS_NOBODY).is_none() {
        assert!(geteuid().is_root(), "needs root, to become somebody else");
        let name = thread::current().name().unwrap().to_owned();
        let child = Command::new("/proc/self/exe")
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env(AS_NOBODY, "1")
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&child.stderr));
        return;
    }
    assert_eq!(geteuid().as_raw(), NOBODY);
    let tree = Tree::new();
    let (amd, intel) = (tree.add(0, &RX6900XT), tree.add(1, &COMETLAKE));
    let proc = Proc::new(tree.root());
    for (card, driver) in [(&amd, "amdgpu"), (&intel, "i915")] {
        let process = proc.process(40 + card.number(), "game", 900);
        process.open(5, &render(card), FdinfoText::new(driver, card.pci(), 7).resident("system0", 2048).resident("vram", 2048));
    }
    let mut machine = Machine::open(&tree);
    machine.look_after(0.0);
    machine.look_after(0.1);
    assert_eq!(machine.processes(&amd).len() + machine.processes(&intel).len(), 2);
    assert_eq!(machine.reading(&intel).metrics.sm_util_pct.is_some(), machine.processes(&intel)[0].2.is_some());

    let closed = tree.root().join("proc/40/fd");
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    machine.look_after(5.0);
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    assert_eq!((machine.processes(&amd), machine.processes(&intel)), (vec![], vec![]));
    let (amd, intel) = (machine.reading(&amd).metrics, machine.reading(&intel).metrics);
    assert!(amd.sm_util_pct.is_some() && amd.memory.is_some() && amd.temp_c.is_some(), "{amd:?}");
    assert!(intel.sm_util_pct.is_none() && intel.sm_clock_mhz.is_some(), "{intel:?}");
}
