//! The whole way: a driver's answers, the bridge, the maps, and programs in the kernel that join them with events.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::time::Duration;

use consumers::devices::{DeviceLine, Devices};
use consumers::events::{Cause, Event, Events, Trigger};
use consumers::tasks::{TaskLine, Tasks};
use e2e::{Bpffs, Sim, Workload, eventually, map_ids};
use map_reader::{Reader, boottime_now_ns};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Clocks, Code, Device, Ecc, Load, NvLinks, Pcie, Process, ProcessUtilization, Scenario};

const GETPPID: Trigger = Trigger::SystemCall(nix::libc::SYS_getppid);
/// For tests of what is in the maps, not of when.
const LONG_MS: u64 = 60_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Three processes on two GPUs.
struct Machine {
    /// On device 0.
    one: Workload,
    /// On both devices.
    both: Workload,
    /// On device 1, never sampled.
    idle: Workload,
    sim: Sim,
}

impl Machine {
    fn start() -> Self {
        let (one, both, idle) = (Workload::start("train-one"), Workload::start("train-both"), Workload::start("notebook"));
        let first = Device::default()
            .name("Simulated 0")
            .utilization(71, 53)
            .memory(80 * GIB, 12 * GIB + 345, 512 * MIB)
            .temperature_c(64)
            .power_mw(412_345_u32)
            .clocks(Clocks::new(1980, 2619, 1700))
            .event_reasons(0x8000_0000_0000_0004_u64)
            .encoder(11_u32)
            .decoder(12_u32)
            .ecc(Ecc { enabled: true, corrected: 17, uncorrected: 3 })
            .fans(vec![37])
            .compute_mode(3_u32)
            .pcie(Pcie::link(5, 16).traffic(1_000_000, 2_000_000))
            .nvlinks(NvLinks::new(6, 4).traffic(250_000_000, 500_000_000))
            .process_utilization(ProcessUtilization::default())
            .process(Process::compute(one.pid(), 384 * MIB).busy(Load::new(49, 17)))
            .process(Process::compute(both.pid(), GIB).busy(Load::all(30, 5, 6, 7)));
        let second = Device::default()
            .name("Simulated 1")
            .utilization(20, 10)
            .memory(48 * GIB, 4 * GIB, 256 * MIB)
            .process_utilization(ProcessUtilization::default())
            .process(Process::graphics(both.pid(), 2 * GIB + 1).busy(Load::new(20, 8)))
            .process(Process::compute(idle.pid(), 5));
        Self { one, both, idle, sim: Sim::install(Scenario::new().device(first).device(second)) }
    }

    /// Whether the maps hold what will not change any more.
    fn is_published(&self, reader: &Reader) -> Option<()> {
        let utilization = |workload: &Workload| reader.process(workload.pid()).unwrap().map(|process| process.sm_util_pct_max);
        let device = |index| reader.device(index).unwrap().map(|device| device.sm_util_pct);
        let found = (utilization(&self.one), utilization(&self.both), utilization(&self.idle), device(0), device(1));
        (found == (Some(49), Some(30), Some(0), Some(71), Some(20))).then_some(())
    }
}

/// An event without what differs from one to the next.
fn constant_part(event: Event) -> Event {
    Event { boottime_ns: 0, sample_age: None, ..event }
}

#[test]
fn events_carry_exactly_what_the_driver_says_of_their_process_and_device() {
    let pins = Bpffs::mount();
    let mut machine = Machine::start();
    let mut bridge = machine.sim.bridge(&pins, "50ms").start();
    bridge.wait_for_maps(&pins, "the scenario's processes", |reader| machine.is_published(reader));
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let mut bystander = Workload::start("bystander");

    let expected = |workload: &Workload, comm: &str| Event {
        boottime_ns: 0,
        tgid: workload.pid(),
        tid: workload.pid(),
        comm: comm.to_owned(),
        cause: Cause::SystemCall,
        gpu_memory_bytes: 384 * MIB,
        sm_util_pct: 49,
        mem_util_pct: 17,
        device_sm_util_pct: 71,
        device: Some(0),
        device_count: 1,
        sample_age: None,
    };
    let one = expected(&machine.one, "train-one");
    let both = Event {
        gpu_memory_bytes: 3 * GIB + 1,
        sm_util_pct: 30,
        mem_util_pct: 8,
        device: None,
        device_count: 2,
        ..expected(&machine.both, "train-both")
    };
    let idle = Event {
        gpu_memory_bytes: 5,
        sm_util_pct: 0,
        mem_util_pct: 0,
        device_sm_util_pct: 20,
        device: Some(1),
        ..expected(&machine.idle, "notebook")
    };

    bystander.getppid(100);
    for (workload, expected, is_sampled) in
        [(&mut machine.one, one, true), (&mut machine.both, both, true), (&mut machine.idle, idle, false)]
    {
        workload.getppid(5);
        let received = events.poll(Duration::ZERO).unwrap();
        assert_eq!(received.len(), 5, "{received:?}");
        for event in received {
            // A sample a second, read within the second after it, and some time for a busy test machine.
            let age = event.sample_age;
            assert_eq!(age.is_some(), is_sampled, "{event:?}");
            assert!(age.is_none_or(|age| age < Duration::from_secs(10)), "{event:?}");
            assert_eq!(constant_part(event), expected);
        }
    }
}

#[test]
fn the_iterators_print_exactly_what_the_driver_says() {
    let pins = Bpffs::mount();
    let machine = Machine::start();
    let mut bridge = machine.sim.bridge(&pins, "50ms").start();
    let (devices, tasks) = (Devices::open(pins.path()).unwrap(), Tasks::open(pins.path()).unwrap());
    bridge.wait_for_maps(&pins, "the scenario's processes", |reader| machine.is_published(reader));

    let constant = |device: &DeviceLine| DeviceLine {
        timestamp_ns: 0,
        pcie_tx_kbps: 0,
        pcie_rx_kbps: 0,
        nvlink_tx_kbps: 0,
        nvlink_rx_kbps: 0,
        ..device.clone()
    };
    let first = DeviceLine {
        index: 0,
        sm_util_pct: 71,
        mem_util_pct: 53,
        mem_total: 80 * GIB,
        mem_used: 12 * GIB + 345,
        mem_reserved: 512 * MIB,
        temp_c: 64,
        power_mw: 412_345,
        sm_clock_mhz: 1980,
        mem_clock_mhz: 2619,
        throttle_reasons: 0x8000_0000_0000_0004,
        enc_util_pct: 11,
        dec_util_pct: 12,
        ecc_corrected_total: 17,
        ecc_uncorrected_total: 3,
        fan_speed_pct: 37,
        compute_mode: 3,
        ..DeviceLine::default()
    };
    let second = DeviceLine {
        index: 1,
        sm_util_pct: 20,
        mem_util_pct: 10,
        mem_total: 48 * GIB,
        mem_used: 4 * GIB,
        mem_reserved: 256 * MIB,
        ..DeviceLine::default()
    };
    // Each figure comes at the cadence that its cost allows.
    let read = bridge.wait_for("every figure of both devices", || {
        let read = devices.read().unwrap();
        let complete = read.iter().map(constant).eq([first.clone(), second.clone()]);
        (complete && read[0].pcie_tx_kbps > 0 && read[0].nvlink_tx_kbps > 0).then_some(read)
    });
    check_rate("PCIe TX", read[0].pcie_tx_kbps, 1_000_000);
    check_rate("PCIe RX", read[0].pcie_rx_kbps, 2_000_000);
    check_rate("NVLink TX of four links", read[0].nvlink_tx_kbps, 1_000_000);
    check_rate("NVLink RX of four links", read[0].nvlink_rx_kbps, 2_000_000);
    assert_eq!((read[1].pcie_rx_kbps, read[1].nvlink_rx_kbps), (0, 0), "not reported is 0");

    let mut expected = [
        (machine.one.pid(), 384 * MIB, 49, 17, Some(0), 1, "train-one"),
        (machine.both.pid(), 3 * GIB + 1, 30, 8, None, 2, "train-both"),
        (machine.idle.pid(), 5, 0, 0, Some(1), 1, "notebook"),
    ];
    expected.sort_unstable();
    let read = tasks.read().unwrap();
    let seen = |task: &TaskLine| {
        (task.tgid, task.gpu_memory_bytes, task.sm_util_pct, task.mem_util_pct, task.device, task.device_count, task.comm.clone())
    };
    let expected = expected.map(|(pid, memory, sm, mem, device, count, comm)| (pid, memory, sm, mem, device, count, comm.to_owned()));
    assert_eq!(read.iter().map(seen).collect::<Vec<_>>(), expected);
    for task in &read {
        assert_eq!(task.timestamp_ns == 0, task.tgid == machine.idle.pid(), "only a sampled process has a sample's time: {task:?}");
    }
}

/// A rate over real elapsed time, in kB/s.
#[track_caller]
fn check_rate(what: &str, kbps: u64, expected_kbps: u64) {
    let off_by = kbps.abs_diff(expected_kbps);
    assert!(off_by <= expected_kbps / 20, "{what}: {kbps} kB/s instead of {expected_kbps}");
}

#[test]
fn consumers_that_were_first_are_fed_by_the_bridge_that_comes_later() {
    let pins = Bpffs::mount();
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();
    let devices = Devices::open(pins.path()).unwrap();
    let ids = map_ids(&pins);
    let mut machine = Machine::start();
    machine.one.getppid(10);
    assert_eq!(events.poll(Duration::ZERO).unwrap(), [], "there is no bridge yet");

    let mut bridge = machine.sim.bridge(&pins, "50ms").start();
    bridge.wait_for_maps(&pins, "the scenario's processes", |reader| machine.is_published(reader));
    assert_eq!(map_ids(&pins), ids);
    machine.one.getppid(10);
    assert_eq!(events.poll(Duration::ZERO).unwrap().len(), 10);
    assert_eq!(devices.read().unwrap().len(), 2);
}

/// After the bridge got this signal no event is later than the threshold after the last round, and soon there are none.
#[track_caller]
fn check_gate(signal: Signal) {
    const THRESHOLD_MS: u64 = 300;
    let pins = Bpffs::mount();
    let mut machine = Machine::start();
    let mut bridge = machine.sim.bridge(&pins, "50ms").start();
    let mut events = Events::attach(pins.path(), THRESHOLD_MS, GETPPID).unwrap();
    let reader = bridge.wait_for_maps(&pins, "the scenario's processes", |reader| machine.is_published(reader));
    let workload = &mut machine.one;
    let mut events_now = || {
        workload.getppid(1);
        events.poll(Duration::ZERO).unwrap()
    };
    // On a busy machine a round may come late.
    bridge.wait_for("an open gate", || (!events_now().is_empty()).then_some(()));

    bridge.signal(signal);
    let mut after = Vec::new();
    let signalled = boottime_now_ns().unwrap();
    let closed = eventually("the gate to close", || {
        let received = events_now();
        let closed = received.is_empty().then(|| boottime_now_ns().unwrap());
        after.extend(received);
        closed
    });
    let last_round = reader.meta().unwrap().last_update_boottime_ns;
    let threshold_ns = THRESHOLD_MS * 1_000_000;
    for event in &after {
        assert!(event.boottime_ns <= last_round + threshold_ns, "{signal}: {event:?} after a last round at {last_round}");
    }
    // One round may have been under way.
    assert!(last_round < signalled + 1_000_000_000, "{signal}: rounds went on");
    assert!(closed < signalled + threshold_ns + 2_000_000_000, "{signal}: it took {} ns", closed - signalled);
    for _ in 0..100 {
        assert_eq!(events_now(), [], "{signal}: it stays closed");
    }
    if signal == Signal::SIGSTOP {
        bridge.signal(Signal::SIGCONT);
        bridge.wait_for("the gate to open again", || (!events_now().is_empty()).then_some(()));
    }
}

#[test]
fn the_gate_closes_when_the_bridge_is_stopped() {
    check_gate(Signal::SIGTERM);
}

#[test]
fn the_gate_closes_when_the_bridge_is_killed() {
    check_gate(Signal::SIGKILL);
}

#[test]
fn the_gate_closes_while_the_bridge_is_frozen() {
    check_gate(Signal::SIGSTOP);
}

#[test]
fn processes_come_and_go() {
    let pins = Bpffs::mount();
    let mut machine = Machine::start();
    let mut bridge = machine.sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "the scenario's processes", |reader| machine.is_published(reader));
    let mut events = Events::attach(pins.path(), LONG_MS, GETPPID).unwrap();

    let mut newcomer = Workload::start("newcomer");
    let gone = machine.one.pid();
    machine.sim.change(0, |mut device| {
        device.processes.retain(|process| process.pid != gone);
        device.process(Process::compute(newcomer.pid(), 7 * MIB))
    });
    bridge.wait_for("the new process", || reader.process(newcomer.pid()).unwrap());
    bridge.wait_for("the old process's end", || reader.process(gone).unwrap().is_none().then_some(()));

    machine.one.getppid(10);
    newcomer.getppid(10);
    let received = events.poll(Duration::ZERO).unwrap();
    assert_eq!(received.len(), 10);
    assert!(received.iter().all(|event| (event.tgid, event.gpu_memory_bytes) == (newcomer.pid(), 7 * MIB)), "{received:?}");
}

#[test]
fn a_lost_gpu_takes_its_processes_along_and_brings_them_back() {
    let pins = Bpffs::mount();
    let mut machine = Machine::start();
    let mut bridge = machine.sim.bridge(&pins, "50ms").start();
    let reader = bridge.wait_for_maps(&pins, "the scenario's processes", |reader| machine.is_published(reader));

    machine.sim.change(1, |device| device.lost(Code::GPU_IS_LOST));
    bridge.wait_for("the lost device's empty slot", || reader.device(1).unwrap().is_none().then_some(()));
    bridge.wait_for("the end of its process", || reader.process(machine.idle.pid()).unwrap().is_none().then_some(()));
    let both = bridge.wait_for("one device less of the process on both", || {
        reader.process(machine.both.pid()).unwrap().filter(|process| process.device_count == 1)
    });
    assert_eq!((both.used_gpu_memory_total, both.gpu_device_primary), (GIB, 0));
    assert_eq!(reader.device(0).unwrap().unwrap().sm_util_pct, 71);
    let stamp = reader.meta().unwrap().last_update_boottime_ns;
    bridge.wait_for("rounds of the device that is left", || (reader.meta().unwrap().last_update_boottime_ns > stamp).then_some(()));

    machine.sim.change(1, |mut device| {
        device.faults.clear();
        device
    });
    bridge.wait_for("the found device and its processes", || machine.is_published(&reader));
    for text in ["does not answer", "answers again"] {
        let log = bridge.log();
        assert_eq!(
            log.lines().filter(|line| line.contains(text)).count(),
            1,
            "logged once when it goes and once when it comes back:\n{log}"
        );
    }
}
