//! GPUs of three vendors in one machine: what is published of each, the consumers' view of all, and what becomes of the others when one's driver goes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::time::{Duration, Instant};

use consumers::devices::Devices;
use consumers::events::{Events, Trigger};
use consumers::state::State;
use consumers::tasks::{TaskLine, Tasks};
use drm_sim::proc::{Client, FdinfoText, Proc};
use drm_sim::{Card, Tree, profiles};
use e2e::{Bpffs, Bridge, BridgeBuilder, Sim, Workload, processes};
use map_reader::{DevicePhase, Order, Phase, Reader};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Code, Device, Fault, Load, Process, ProcessUtilization, Scenario};

const GETPPID: Trigger = Trigger::SystemCall(nix::libc::SYS_getppid);
/// For tests of what is in the maps, not of when.
const LONG_MS: u64 = 60_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const NVIDIA: u32 = 0x10de;
const AMD: u32 = 0x1002;
const INTEL: u32 = 0x8086;

/// Two GPUs of NVIDIA's, with index 0 and 1, then AMD's and Intel's in PCI order, 2 and 3.
struct Machine {
    sim: Sim,
    /// With what stands for its /sys and /proc.
    tree: Tree,
    amd: Card,
    /// On NVIDIA's first.
    train: Workload,
    /// On NVIDIA's second and AMD's.
    both: Workload,
    /// On AMD's.
    game: Workload,
    /// On Intel's, with a child that has inherited its client.
    video: Workload,
    heir: Workload,
    clients: Vec<(Client, FdinfoText, &'static str)>,
    began: Instant,
}

impl Machine {
    fn start() -> Self {
        let [train, both, game, video, heir] = ["train", "both", "game", "video", "heir"].map(Workload::start);
        let gpu = |name: &str, process: Process| {
            let device = Device::default().name(name).memory(80 * GIB, 4 * GIB, 0).utilization(70, 30);
            device.process_utilization(ProcessUtilization::default()).process(process)
        };
        let scenario = Scenario::new()
            .device(gpu("Simulated 0", Process::compute(train.pid(), 3 * GIB).busy(Load::new(61, 20))))
            .device(gpu("Simulated 1", Process::compute(both.pid(), GIB).busy(Load::new(10, 5))));

        let tree = Tree::new();
        // Not in PCI order, and with NVIDIA's own under the kernel's DRM.
        let intel = tree.add_at(0, "0000:80:00.0", &profiles::A380_XE);
        let amd = tree.add_at(1, "0000:2d:00.0", &profiles::RX6900XT);
        tree.add_other(2, "nvidia", Some("0000:01:00.0"));
        for card in [&amd, &intel] {
            card.set("power/control", "on");
        }
        amd.set("gpu_busy_percent", "83");
        intel.set("tile0/gt0/freq0/act_freq", "2050");

        let proc = Proc::new(tree.root());
        let render = |card: &Card| format!("dev/dri/renderD{}", card.render_minor());
        let start = |name: &str, workload: &Workload, at| proc.process(workload.pid(), name, at);
        let (of_both, of_game, of_video, of_heir) =
            (start("both", &both, 100), start("game", &game, 101), start("video", &video, 102), start("heir", &heir, 103));
        let amds = |id, mib: u64| FdinfoText::new("amdgpu", amd.pci(), id).resident("vram", mib * 1024);
        let intels = FdinfoText::new("xe", intel.pci(), 9).resident("vram0", 300 * 1024);
        let mut clients = Vec::new();
        for (process, text) in [(&of_both, amds(7, 512)), (&of_game, amds(8, 2048))] {
            clients.push((process.open(5, &render(&amd), text.clone()), text, "gfx"));
        }
        let shared = of_video.open(5, &render(&intel), intels.clone());
        of_heir.hold(5, &render(&intel), &shared);
        clients.push((shared, intels, "rcs"));
        Self { sim: Sim::install(scenario), tree, amd, train, both, game, video, heir, clients, began: Instant::now() }
    }

    fn bridge(&self, pins: &Bpffs) -> BridgeBuilder {
        self.sim.bridge(pins, "50ms").arg("--drm-root").arg(self.tree.root())
    }

    /// Has the GPUs' clients work on: 40 % of the time since the start.
    fn work(&self) {
        let busy_ns = (self.began.elapsed() * 4 / 10).as_nanos() as u64;
        for (client, text, engine) in &self.clients {
            client.set(match *engine {
                "gfx" => text.clone().engine("gfx", busy_ns),
                engine => text.clone().cycles(engine, busy_ns, self.began.elapsed().as_nanos() as u64),
            });
        }
    }

    /// PID, device and memory of everything that is on a GPU.
    fn expected(&self) -> Vec<(u32, u32, u64)> {
        let mut expected = vec![
            (self.train.pid(), 0, 3 * GIB),
            (self.both.pid(), 1, GIB),
            (self.both.pid(), 2, 512 * MIB),
            (self.game.pid(), 2, 2 * GIB),
            (self.video.pid(), 3, 300 * MIB),
        ];
        expected.sort_unstable();
        expected
    }

    /// Waits until the maps hold what is on these devices, and nothing else.
    #[track_caller]
    fn wait_for(&self, bridge: &mut Bridge, reader: &Reader, devices: &[u32]) {
        let expected: Vec<_> = self.expected().into_iter().filter(|(_, device, _)| devices.contains(device)).collect();
        bridge.wait_for(&format!("the processes of devices {devices:?}"), || {
            self.work();
            (on_devices(reader) == expected && published(reader) == devices).then_some(())
        });
    }
}

fn published(reader: &Reader) -> Vec<u32> {
    let used = reader.devices().unwrap().into_iter().filter(|(_, record)| record.timestamp_ns > 0);
    used.map(|(index, _)| index).collect()
}

fn on_devices(reader: &Reader) -> Vec<(u32, u32, u64)> {
    let entries = reader.process_devices(Order::ByKey).unwrap();
    entries.into_iter().map(|(key, record)| (key.pid(), key.device(), record.used_gpu_memory)).collect()
}

fn vendors(reader: &Reader) -> Vec<u32> {
    reader.state().unwrap().devices().map(|device| device.record().vendor_id).collect()
}

#[test]
fn consumers_see_the_gpus_of_all_vendors_and_their_processes() {
    let (machine, pins) = (Machine::start(), Bpffs::mount());
    let mut bridge = machine.bridge(&pins).start();
    let reader = bridge.wait_until_published(&pins);
    machine.wait_for(&mut bridge, &reader, &[0, 1, 2, 3]);
    assert_eq!(vendors(&reader), [NVIDIA, NVIDIA, AMD, INTEL], "{}", bridge.log());
    assert_eq!(reader.meta().unwrap().n_devices, 4);
    assert_eq!(bridge.count_in_log("move from index"), 0, "{}", bridge.log());
    let driver = reader.state().unwrap().driver_version().into_owned();
    assert!(driver.contains("; amdgpu") && driver.contains("xe"), "{driver}");

    let devices = Devices::open(pins.path()).unwrap();
    let lines = bridge.wait_for("figures of all devices", || {
        machine.work();
        let lines = devices.read().unwrap();
        let utilizations: Vec<_> = lines.iter().map(|line| line.sm_util_pct).collect();
        // Intel's is the sum over its clients, by the test's own hand.
        let intel = utilizations.get(3).is_some_and(|intel| (20..=60).contains(intel));
        (utilizations.starts_with(&[70, 70, 83]) && intel).then_some(lines)
    });
    let seen: Vec<_> = lines.iter().map(|line| (line.index, line.mem_total, line.sm_clock_mhz)).collect();
    assert_eq!(seen[2..], [(2, 17_163_091_968, 500), (3, seen[3].1, 2050)], "{lines:?}");
    let (_, names) = State::open(pins.path()).unwrap().read().unwrap();
    assert_eq!(names.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(names[0].name == "Simulated 0" && !names[2].name.is_empty() && !names[3].name.is_empty(), "{names:?}");

    let tasks = Tasks::open(pins.path()).unwrap();
    let tasks = bridge.wait_for("samples of all processes", || {
        machine.work();
        let tasks = tasks.read().unwrap();
        tasks.iter().all(|task| task.sm_util_pct > 0).then_some(tasks)
    });
    let seen: Vec<_> = tasks.iter().map(|task: &TaskLine| (task.tgid, task.gpu_memory_bytes, task.device, task.device_count)).collect();
    let mut expected = [
        (machine.train.pid(), 3 * GIB, Some(0), 1),
        (machine.both.pid(), GIB + 512 * MIB, None, 2),
        (machine.game.pid(), 2 * GIB, Some(2), 1),
        (machine.video.pid(), 300 * MIB, Some(3), 1),
    ];
    expected.sort_unstable();
    assert_eq!(
        seen,
        expected,
        "the client that two processes hold is counted once, for {} and not for {}",
        machine.video.pid(),
        machine.heir.pid()
    );
    let exit = bridge.stop(Signal::SIGTERM);
    assert_eq!((exit.code, pins.pins()), (Some(0), vec![]), "{:?}: {}", exit.took, exit.stderr);
}

#[test]
fn events_of_a_process_carry_the_figures_of_whichever_vendors_gpu_it_uses() {
    let (mut machine, pins) = (Machine::start(), Bpffs::mount());
    let mut bridge = machine.bridge(&pins).start();
    let reader = bridge.wait_until_published(&pins);
    machine.wait_for(&mut bridge, &reader, &[0, 1, 2, 3]);
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    machine.heir.getppid(5);
    let workloads = [&mut machine.train, &mut machine.both, &mut machine.game, &mut machine.video];
    for (workload, (device, memory, count)) in
        workloads.into_iter().zip([(Some(0), 3 * GIB, 1), (None, GIB + 512 * MIB, 2), (Some(2), 2 * GIB, 1), (Some(3), 300 * MIB, 1)])
    {
        workload.getppid(3);
        let received = events.poll(Duration::ZERO).unwrap();
        assert_eq!(received.len(), 3, "{received:?}");
        for event in received {
            assert_eq!((event.tgid, event.device, event.gpu_memory_bytes, event.device_count), (workload.pid(), device, memory, count));
        }
    }
}

#[test]
fn the_driver_of_one_vendor_goes_and_comes_back_and_the_others_go_on() {
    let (mut machine, pins) = (Machine::start(), Bpffs::mount());
    let mut bridge = machine.bridge(&pins).start();
    let reader = bridge.wait_until_published(&pins);
    machine.wait_for(&mut bridge, &reader, &[0, 1, 2, 3]);
    let stamp = || reader.meta().unwrap().last_update_boottime_ns;
    let goes_on = |bridge: &mut Bridge| {
        let before = stamp();
        bridge.wait_for("ten more rounds", || (stamp() > before + 500_000_000).then_some(()));
        assert_eq!(reader.state().unwrap().phase(), Phase::Publishing);
    };

    machine.sim.set(|scenario| scenario.fails("*", Code::DRIVER_NOT_LOADED));
    machine.wait_for(&mut bridge, &reader, &[2, 3]);
    goes_on(&mut bridge);
    assert_eq!(vendors(&reader), [NVIDIA, NVIDIA, AMD, INTEL], "who is gone keeps its place");
    assert_eq!(reader.state().unwrap().device(0).unwrap().phase(), DevicePhase::Lost);
    let pid = bridge.pid();
    bridge.wait_for("only one sampler", || (processes::children(pid).len() == 1).then_some(()));
    machine.sim.heal();
    machine.wait_for(&mut bridge, &reader, &[0, 1, 2, 3]);
    assert_eq!(bridge.count_in_log("nvml is gone: "), 1, "{}", bridge.log());

    // A GPU is taken out: the one behind it moves up.
    machine.amd.unplug();
    let expected = [(machine.train.pid(), 0), (machine.both.pid(), 1), (machine.video.pid(), 2)];
    let places = |reader: &Reader| {
        let mut places: Vec<_> = on_devices(reader).into_iter().map(|(pid, device, _)| (pid, device)).collect();
        places.sort_unstable_by_key(|(_, device)| *device);
        places
    };
    bridge.wait_for("the rest", || (places(&reader) == expected).then_some(()));
    goes_on(&mut bridge);
    assert_eq!(vendors(&reader), [NVIDIA, NVIDIA, INTEL]);
}

#[test]
fn a_driver_that_hangs_while_it_is_opened_holds_up_the_others_for_five_seconds() {
    let (mut machine, pins) = (Machine::start(), Bpffs::mount());
    machine.sim.set(|scenario| scenario.fault(Fault::hang("nvmlInit*")));
    let mut bridge = machine.bridge(&pins).start();
    let started = Instant::now();
    let reader = bridge.wait_until_published(&pins);
    assert!(started.elapsed() >= Duration::from_secs(5), "after {:?}", started.elapsed());
    bridge.wait_for("the other GPUs", || (published(&reader) == [0, 1]).then_some(()));
    assert_eq!(vendors(&reader), [AMD, INTEL]);
    machine.sim.heal();
    machine.wait_for(&mut bridge, &reader, &[0, 1, 2, 3]);
    assert_eq!(vendors(&reader), [NVIDIA, NVIDIA, AMD, INTEL]);
    assert_eq!(bridge.count_in_log("the devices of drm move from index 0 on to 2 on"), 1, "{}", bridge.log());
}
