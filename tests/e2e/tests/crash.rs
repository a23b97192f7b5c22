//! Bridges that are killed at any moment, and what their successors make of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use consumers::devices::Devices;
use e2e::checks::{check_not_in_the_future, check_round};
use e2e::processes::{children, is_alive};
use e2e::{Bpffs, Bridge, Sim, WAIT, eventually, map_ids};
use gpu_types::GpuMeta;
use map_reader::{Consistency, Order, Reader, boottime_now_ns};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Load, Process, ProcessUtilization, Scenario};

/// Kills in all, by so many threads with a bridge each.
const KILLS: u32 = 300;
const THREADS: u32 = 3;
/// Above the kernel's largest process id.
const FIRST_PID: u32 = 1 << 30;
/// A generation's processes have numbers of their own.
const PIDS: u32 = 1_000;

/// Numbers that look random and are the same at every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The machine of a generation of processes at one moment of its churn.
fn machine(generation: u32, step: u32) -> Scenario {
    let devices = 1 + generation % 3;
    let base = FIRST_PID + generation * PIDS;
    // A window of processes that moves on, on all devices, and a few on one only.
    let everywhere = (step..step + 20).map(|number| base + number % PIDS);
    let device = |index: u32| {
        let here = (0..5).map(move |number| base + (step * 7 + index * 100 + number) % PIDS);
        let pids: std::collections::BTreeSet<u32> = everywhere.clone().chain(here).collect();
        let device = Device::default().utilization(generation % 101, 53).memory(80 << 30, 12 << 30, 0);
        pids.into_iter()
            .map(|pid| Process::compute(pid, u64::from(pid)).busy(Load::new(10, 5)))
            .fold(device.process_utilization(ProcessUtilization::default()), Device::process)
    };
    Scenario { devices: (0..devices).map(device).collect(), ..Scenario::new() }
}

/// The maps over the life of a bridge of this generation, looked at as often as possible: `gpu_meta` is `left` until it is the new bridge's, and
/// what it belongs to then is of this generation alone.
fn look_on(reader: &Reader, left: &GpuMeta, generation: u32, over: &AtomicBool) -> (u64, u64) {
    let pids = FIRST_PID + generation * PIDS..FIRST_PID + (generation + 1) * PIDS;
    let (mut looks, mut verified) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let meta = reader.meta().unwrap();
        looks += 1;
        if meta.helper_pid == left.helper_pid {
            assert_eq!(meta, *left, "gpu_meta changed before it was a new bridge's");
            continue;
        }
        // From the first moment on, whatever is being written.
        for (pid, _) in reader.processes(Order::Unsorted).unwrap() {
            assert!(pids.contains(&pid), "generation {generation}: the stale process {}", pid - FIRST_PID);
        }
        for (key, _) in reader.process_devices(Order::Unsorted).unwrap() {
            assert!(pids.contains(&key.pid()) && key.device() <= generation % 3, "generation {generation}: the stale {key:?}");
        }
        for (index, device) in reader.devices().unwrap() {
            assert!(index <= generation % 3 && device.sm_util_pct == generation % 101, "generation {generation}: the stale device {index}");
        }
        let snapshot = reader.snapshot();
        check_not_in_the_future(&snapshot, boottime_now_ns().unwrap());
        if snapshot.consistency == Consistency::Verified {
            check_round(&snapshot);
            verified += 1;
        }
    }
    (looks, verified)
}

/// Kills so many bridges in a row, each with another generation of processes and other devices.
fn kill_in_a_row(kills: u32, seed: u64) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ seed);
    let pins = Bpffs::mount();
    let mut sim = Sim::install(machine(0, 0));
    let mut bridge = sim.bridge(&pins, "2ms").start();
    // The consumers of all that follows: they hold the maps and are never told.
    let reader = bridge.wait_until_published(&pins);
    let consumer = Devices::open(pins.path()).unwrap();
    let ids = map_ids(&pins);
    bridge.stop(Signal::SIGKILL);

    let (mut verified, mut published) = (0, 0);
    for generation in 1..=kills {
        sim.set(|_| machine(generation, 0));
        let left = reader.meta().unwrap();
        let over = AtomicBool::new(false);
        let bridge = sim.bridge(&pins, "2ms").start();
        let seen = thread::scope(|scope| {
            let onlooker = scope.spawn(|| look_on(&reader, &left, generation, &over));
            // Killed while it starts, or in the rounds after the first.
            if dice.below(3) == 0 {
                thread::sleep(Duration::from_micros(dice.below(60_000)));
            } else {
                let end = Instant::now() + WAIT;
                while reader.meta().unwrap().helper_pid == left.helper_pid {
                    assert!(Instant::now() < end, "generation {generation} does not publish:\n{}", bridge.log());
                    thread::sleep(Duration::from_micros(300));
                }
                published += 1;
                for step in 1..=u32::try_from(dice.below(4)).unwrap() {
                    sim.set(|_| machine(generation, step * 3));
                    thread::sleep(Duration::from_micros(dice.below(6_000)));
                }
                thread::sleep(Duration::from_micros(dice.below(3_000)));
            }
            let samplers = children(bridge.pid());
            bridge.signal(Signal::SIGKILL);
            // Dead, but not yet its sampler: nobody else may write now.
            let exit = bridge.wait();
            assert_eq!(exit.code, None, "generation {generation} ended by itself:\n{}", exit.stderr);
            eventually("the sampler's end", || samplers.iter().all(|pid| !is_alive(*pid)).then_some(()));
            over.store(true, Ordering::Relaxed);
            onlooker.join()
        });
        verified += seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).1;
        assert_eq!(map_ids(&pins), ids, "generation {generation}");
    }
    assert!(published > kills / 2, "{published} of {kills} came to publish");
    assert!(verified > u64::from(kills), "{verified} snapshots in {kills} lives");

    sim.set(|_| machine(0, 0));
    bridge = sim.bridge(&pins, "2ms").start();
    bridge.wait_until_published(&pins);
    assert_eq!(map_ids(&pins), ids);
    assert_eq!(consumer.read().unwrap().len(), 1, "who held the maps all the time sees the last bridge's device");
    assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
    assert_eq!(pins.pins(), [""; 0]);
    assert_eq!(consumer.read().unwrap(), []);
}

#[test]
fn after_each_of_300_kills_at_random_the_successor_shows_only_its_own() {
    let threads = (0..THREADS).map(|seed| thread::spawn(move || kill_in_a_row(KILLS / THREADS, u64::from(seed))));
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// Killed before all pins are there.
#[test]
fn a_bridge_that_was_killed_while_it_created_the_maps_leaves_no_obstacle() {
    let mut dice = Dice(42);
    for _ in 0..25 {
        let pins = Bpffs::mount();
        let bridge = Bridge::builder(&pins, "mock", "5ms").start();
        thread::sleep(Duration::from_micros(dice.below(30_000)));
        bridge.stop(Signal::SIGKILL);
        let left = map_ids(&pins);
        let mut successor = Bridge::builder(&pins, "mock", "5ms").start();
        successor.wait_until_published(&pins);
        for (left, now) in left.iter().zip(map_ids(&pins)) {
            assert!(left.is_none() || *left == now, "{left:?} {now:?}");
        }
        assert_eq!(successor.stop(Signal::SIGTERM).code, Some(0));
        assert_eq!(pins.pins(), [""; 0]);
    }
}

/// `--keep-pins` is the mode for upgrades.
#[test]
fn an_upgrade_with_keep_pins_goes_unnoticed_by_who_holds_the_maps() {
    let pins = Bpffs::mount();
    let sim = Sim::install(machine(1, 0));
    let start = || sim.bridge(&pins, "20ms").arg("--keep-pins").start();
    let mut bridge = start();
    let reader = bridge.wait_until_published(&pins);
    let consumer = Devices::open(pins.path()).unwrap();
    let ids = map_ids(&pins);
    for _ in 0..3 {
        let left = reader.meta().unwrap();
        assert_eq!(bridge.stop(Signal::SIGTERM).code, Some(0));
        // Neither in between nor while the next one starts, as long as that is within the hold.
        assert_eq!(consumer.read().unwrap().len(), 2);
        let started = Instant::now();
        bridge = start();
        while reader.meta().unwrap().helper_pid == left.helper_pid {
            let devices = consumer.read().unwrap().len();
            assert!(devices == 2 || started.elapsed() > Duration::from_millis(450), "{devices} devices after {:?}", started.elapsed());
            assert!(started.elapsed() < WAIT, "no new round:\n{}", bridge.log());
        }
        bridge.wait_for("its devices", || (consumer.read().unwrap().len() == 2).then_some(()));
        assert_eq!(map_ids(&pins), ids);
    }
}
