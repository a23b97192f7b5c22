//! What each question costs when processes come and go by the hundred: who is gone is so with the reading of the known clients, and that
//! never pays for the look through all of /proc.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::time::Duration;

use drm_sim::{
    Card, Tree,
    proc::{FdinfoText, Proc, Process},
    profiles::{A380_I915, B580, MI300X, PHOENIX, RX6900XT},
};
use telemetry::{Device, Now, Reading, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};
use test_support::eventually;

const SECOND_MS: u64 = 1_000;

struct Lane {
    device: Box<dyn Device>,
    reading: Reading,
}

impl Lane {
    fn probe(&self, name: &str) -> usize {
        self.device.probes().iter().position(|probe| probe.name == name).unwrap()
    }

    /// Puts one question alone. When it is to be put again at the earliest.
    fn ask(&mut self, name: &str, at_ms: u64) -> Duration {
        let probe = self.probe(name);
        self.device.ask(probe, Now { boottime_ns: at_ms * 1_000_000, clock_offset_ns: 0 }, &mut self.reading).unwrap();
        self.device.period(probe)
    }

    fn pids(&self) -> Vec<u32> {
        self.reading.processes.iter().map(|process| process.pid).collect()
    }
}

fn open(tree: &Tree) -> Vec<Lane> {
    let devices = DrmSource::new(DrmOptions { root: tree.root().to_owned(), ..DrmOptions::default() }).open().unwrap().devices;
    devices.into_iter().map(|device| Lane { device, reading: Reading::default() }).collect()
}

fn start(proc: &Proc, card: &Card, pid: u32) -> Process {
    let process = proc.process(pid, "train", u64::from(pid));
    let region = if card.pci() == B580.pci { "vram0" } else { "vram" };
    let text = FdinfoText::new("any", card.pci(), pid.into()).resident(region, 2_048);
    process.open(5, &format!("dev/dri/renderD{}", card.render_minor()), text);
    process
}

#[test]
fn the_look_through_proc_is_a_question_of_its_own_with_a_period_of_5_s() {
    let tree = Tree::new();
    tree.add(0, &RX6900XT);
    let lane = &open(&tree)[0];
    let period = |name| lane.device.probes()[lane.probe(name)].period;
    assert_eq!((period("clients"), period("processes")), (Duration::from_secs(5), Duration::ZERO));
    assert!(lane.probe("clients") < lane.probe("processes"), "what it finds is read in the same tick");
}

#[test]
fn reading_processes_never_looks_through_proc() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let proc = Proc::new(tree.root());
    let mut lanes = open(&tree);
    lanes[0].ask("clients", SECOND_MS);
    let _new = start(&proc, &card, 40);
    for second in 1..100 {
        lanes[0].ask("processes", second * SECOND_MS);
        assert_eq!(lanes[0].pids(), [], "after {second} s");
    }
    lanes[0].ask("clients", 100 * SECOND_MS);
    lanes[0].ask("processes", 100 * SECOND_MS);
    assert_eq!(lanes[0].pids(), [40]);
}

#[test]
fn a_look_of_one_device_serves_all_cards_and_another_takes_its_place() {
    let tree = Tree::new();
    let cards = [tree.add(0, &RX6900XT), tree.add(1, &PHOENIX)];
    let proc = Proc::new(tree.root());
    let mut lanes = open(&tree);
    assert_eq!(lanes[0].ask("clients", 10 * SECOND_MS), Duration::from_secs(5));
    let _new: Vec<_> = cards.iter().zip(40..).map(|(card, pid)| start(&proc, card, pid)).collect();
    let read = |lanes: &mut [Lane], at_ms| {
        let read = |lane: &mut Lane| {
            lane.ask("processes", at_ms);
            lane.pids().len()
        };
        lanes.iter_mut().map(read).sum::<usize>()
    };
    // It is the first that looks, as long as it is asked; the other watches.
    assert_eq!(lanes[1].ask("clients", 12 * SECOND_MS), Duration::from_secs(1));
    assert_eq!(read(&mut lanes, 12 * SECOND_MS), 0);
    assert_eq!(lanes[1].ask("clients", 15 * SECOND_MS), Duration::from_secs(5));
    assert_eq!(lanes[0].ask("clients", 15 * SECOND_MS), Duration::from_secs(1), "the places are changed");
    assert_eq!(read(&mut lanes, 15 * SECOND_MS), 2);
}

#[test]
fn after_a_churn_on_five_cards_nobody_who_is_gone_outlasts_one_reading() {
    const EACH: u32 = 150;
    let tree = Tree::new();
    let profiles = [RX6900XT, PHOENIX, MI300X, A380_I915, B580];
    let cards: Vec<_> = profiles.iter().zip(0..).map(|(profile, number)| tree.add(number, profile)).collect();
    cards.iter().for_each(|card| card.set("power/control", "on"));
    let proc = Proc::new(tree.root());
    let mut lanes = open(&tree);
    let mut at_ms = 100 * SECOND_MS;
    for generation in 0..2 {
        let first = 1_000 + generation * 1_000;
        let processes: Vec<_> = (0..5 * EACH).map(|number| start(&proc, &cards[number as usize % cards.len()], first + number)).collect();
        // As long as it takes for a look to be due.
        for _ in 0..11 {
            at_ms += 500;
            for lane in &mut lanes {
                lane.ask("clients", at_ms);
                lane.ask("processes", at_ms);
            }
        }
        // On a busy machine a look or a reading may take longer than a device waits for it. At the same time, none is made twice.
        eventually("all of a generation", || {
            for lane in &mut lanes {
                lane.ask("processes", at_ms);
            }
            (lanes.iter().map(|lane| lane.pids().len()).sum::<usize>() == 5 * EACH as usize).then_some(())
        });
        processes.into_iter().for_each(Process::exit);
        at_ms += 50;
        for lane in &mut lanes {
            eventually("the reading of a card whose processes have ended before", || {
                lane.ask("processes", at_ms);
                lane.pids().is_empty().then_some(())
            });
        }
    }
}

/// So many clients are read every few seconds only: that they are gone is seen without reading them.
#[test]
fn of_very_many_clients_those_that_are_gone_are_dropped_between_two_readings() {
    let tree = Tree::new();
    let card = tree.add(0, &RX6900XT);
    let proc = Proc::new(tree.root());
    let mut lanes = open(&tree);
    let mut processes: Vec<_> = (0..600).map(|number| start(&proc, &card, 1_000 + number)).collect();
    for name in ["clients", "processes", "departures"] {
        lanes[0].ask(name, SECOND_MS);
    }
    assert_eq!(lanes[0].pids().len(), 600);
    // Among the first, whose fdinfo is kept open, and the last, whose is not.
    processes.drain(1..599).for_each(Process::exit);
    lanes[0].ask("departures", SECOND_MS + 100);
    assert_eq!(lanes[0].pids(), [1_000, 1_599]);
    assert!(lanes[0].reading.processes.iter().all(|process| process.used_memory_bytes == Some(2 << 20)), "what was known of them stands");
}

/// An idle card of xe may not be read: what is known of its clients stands, but not of those that are gone.
#[test]
fn who_ends_on_an_idle_card_of_xe_is_gone_at_once() {
    let tree = Tree::new();
    let card = tree.add(0, &B580);
    card.manage(60_000);
    let proc = Proc::new(tree.root());
    let (stays, ends) = (start(&proc, &card, 40), start(&proc, &card, 41));
    let mut lanes = open(&tree);
    let mut at_ms = 100 * SECOND_MS;
    for _ in 0..100 {
        at_ms += 100;
        for name in ["clients", "processes", "departures"] {
            lanes[0].ask(name, at_ms);
        }
    }
    assert_eq!(lanes[0].pids(), [40, 41]);
    ends.exit();
    // So that to read it would hang.
    stays.close(5);
    let _fifo = stays.open_hanging(5, &format!("dev/dri/renderD{}", card.render_minor()));
    lanes[0].ask("processes", at_ms + 100);
    lanes[0].ask("departures", at_ms + 100);
    assert_eq!(lanes[0].pids(), [40]);
}
