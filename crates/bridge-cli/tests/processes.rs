//! Processes of AMD's and Intel's GPUs with and without the right to look at them: what is published, and that it is told once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::process::Command;

use common::{BRIDGE, Daemon, NO_LIBRARY, Sim};
use drm_sim::{
    Tree,
    proc::{FdinfoText, Proc, Process},
    profiles::{A380_I915, B580, RX6900XT},
};
use map_reader::{Order, Reader};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Device, Scenario};
use test_support::Bpffs;

/// What the daemon says, and the sampler where it was refused.
const DAEMONS: &str = "the processes of GPUs of AMD and Intel are not looked at";
const SAMPLERS: &str = "not all processes can be looked at";
const PID: u32 = 4_000_001;

/// One card of AMD's and two of Intel's, each used by a process that anybody may look at.
struct Machine {
    tree: Tree,
    proc: Proc,
    processes: Vec<Process>,
}

impl Machine {
    fn new() -> Self {
        let tree = Tree::new();
        let proc = Proc::new(tree.root());
        let mut processes = Vec::new();
        for ((profile, region), number) in [(&RX6900XT, "vram"), (&A380_I915, "local0"), (&B580, "vram0")].into_iter().zip(0..) {
            let card = tree.add(number, profile);
            card.set("power/control", "on");
            let process = proc.process(PID + number, "game", 900);
            let text = FdinfoText::new(profile.driver, card.pci(), 7).resident(region, 2_048);
            process.open(5, &format!("dev/dri/renderD{}", card.render_minor()), text);
            processes.push(process);
        }
        Self { tree, proc, processes }
    }

    fn root(&self) -> String {
        root(&self.tree)
    }
}

fn root(tree: &Tree) -> String {
    format!("--drm-root={}", tree.root().display())
}

/// The daemon as root in a container with these capabilities alone.
fn with_capabilities(names: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--bounding-set=-all,{names}"), "--inh-caps=-all", BRIDGE, "--mode=real"]);
    command
}

fn pids(reader: &Reader) -> Vec<u32> {
    reader.processes(Order::ByKey).unwrap().into_iter().map(|(pid, _)| pid).collect()
}

/// Waits until all three cards are published with figures of their own.
#[track_caller]
fn wait_for_figures(daemon: &mut Daemon, reader: &Reader) {
    daemon.wait_for("figures of all devices", |_| {
        let devices = reader.devices().unwrap();
        let has_figures = |index: u32| {
            let (_, record) = devices.iter().find(|(at, _)| *at == index)?;
            Some(record.temp_c > 0 && record.sm_clock_mhz > 0)
        };
        (0..3).all(|device| has_figures(device) == Some(true)).then_some(())
    });
}

/// Lets rounds go by in which processes would have been found.
fn let_rounds_go_by(daemon: &mut Daemon, reader: &Reader) {
    let rounds = || reader.state().unwrap().record().rounds;
    let enough = rounds() + 10;
    daemon.wait_for("ten rounds", |_| (rounds() >= enough).then_some(()));
}

/// With these capabilities alone, of which `missing` are lacking, processes are absent and that is told in one line.
#[track_caller]
fn check_without(names: &str, missing: &str) {
    let (pins, machine) = (Bpffs::mount(), Machine::new());
    let mut daemon =
        Daemon::spawn(with_capabilities(names).args(["--poll-interval=20ms", NO_LIBRARY, &machine.root(), "--pin-dir"]).arg(pins.path()));
    let reader = daemon.publishing(&pins);
    wait_for_figures(&mut daemon, &reader);
    let_rounds_go_by(&mut daemon, &reader);
    assert_eq!(pids(&reader), [0; 0], "{}", daemon.log());
    let with_memory = reader.devices().unwrap().into_iter().filter(|(_, record)| record.mem_used > 0).count();
    assert_eq!(with_memory, 1, "AMD's is told by the card, Intel's is a sum over processes");
    // A sampler that is started anew says nothing either.
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("let go on request");
    daemon.signal(Signal::SIGUSR2);
    wait_for_figures(&mut daemon, &reader);
    let_rounds_go_by(&mut daemon, &reader);
    assert_eq!(pids(&reader), [0; 0], "{}", daemon.log());
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{log}");
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN  ")).collect();
    assert!(matches!(warnings[..], [one] if one.contains(&format!("without {missing} {DAEMONS}"))), "{log}");
}

#[test]
fn without_one_of_the_two_capabilities_or_both_there_is_one_warning_and_no_process() {
    check_without("+bpf,+dac_read_search", "CAP_SYS_PTRACE");
    check_without("+bpf,+sys_ptrace", "CAP_DAC_READ_SEARCH");
    check_without("+bpf", "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
}

#[test]
fn with_both_capabilities_processes_are_published_and_nothing_is_missed() {
    let (pins, machine) = (Bpffs::mount(), Machine::new());
    let mut command = with_capabilities("+bpf,+sys_ptrace,+dac_read_search");
    let mut daemon = Daemon::spawn(command.args(["--poll-interval=20ms", NO_LIBRARY, &machine.root(), "--pin-dir"]).arg(pins.path()));
    let reader = daemon.publishing(&pins);
    wait_for_figures(&mut daemon, &reader);
    daemon.wait_for("the processes", |_| (pids(&reader) == [PID, PID + 1, PID + 2]).then_some(()));
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!((status, log.matches("WARN  ").count()), (Some(0), 0), "{log}");
    assert_eq!(machine.processes.len(), 3);
}

/// What hangs is the file of a client of its own, and no card is lost for it.
#[test]
fn a_client_that_hangs_costs_processes_and_no_card() {
    let (pins, machine) = (Bpffs::mount(), Machine::new());
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--poll-interval=20ms", NO_LIBRARY, &machine.root()]);
    let reader = daemon.publishing(&pins);
    daemon.wait_for("the processes", |_| (pids(&reader).len() == 3).then_some(()));
    let fifo = machine.proc.process(PID + 9, "train", 901).open_hanging(5, "dev/dri/renderD128");
    daemon.wait_for("no processes", |_| pids(&reader).is_empty().then_some(()));
    let stamps = || reader.devices().unwrap().into_iter().map(|(_, record)| record.timestamp_ns).collect::<Vec<_>>();
    let before = stamps();
    let_rounds_go_by(&mut daemon, &reader);
    daemon.wait_for("newer figures of all", |_| {
        let now = stamps();
        (now.len() == 3 && now.iter().zip(&before).all(|(now, before)| now > before)).then_some(())
    });
    fifo.feed("");
    daemon.wait_for("the processes again", |_| (pids(&reader).len() == 3).then_some(()));
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{log}");
    assert_eq!((log.matches("the clients of a card hang").count(), log.matches("does not answer").count()), (3, 0), "{log}");
}

/// For another reason than the capabilities: the sampler tells, and the daemon does not.
#[test]
fn a_refusal_in_spite_of_the_capabilities_is_told_once_by_the_sampler() {
    let (pins, machine) = (Bpffs::mount(), Machine::new());
    // As with hidepid: one sees oneself, and not the first process.
    machine.proc.put_reader_in_the_first_namespace();
    let mut command = with_capabilities("+bpf,+sys_ptrace,+dac_read_search");
    let mut daemon = Daemon::spawn(command.args(["--poll-interval=20ms", NO_LIBRARY, &machine.root(), "--pin-dir"]).arg(pins.path()));
    let reader = daemon.publishing(&pins);
    wait_for_figures(&mut daemon, &reader);
    daemon.wait_for_log(SAMPLERS);
    let_rounds_go_by(&mut daemon, &reader);
    assert_eq!(pids(&reader), [0; 0]);
    let (_, log) = daemon.end(Signal::SIGTERM);
    assert_eq!((log.matches("WARN  ").count(), log.matches(DAEMONS).count()), (1, 0), "{log}");
}

#[test]
fn it_is_told_when_the_first_card_comes_and_not_before_nor_again() {
    let (pins, tree) = (Bpffs::mount(), Tree::new());
    let sim = Sim::install(&Scenario::new().device(Device::t4()));
    let mut daemon = Daemon::spawn(
        with_capabilities("+bpf")
            .args(["--poll-interval=20ms", "--log-level=debug", &sim.flag(), &root(&tree), "--pin-dir"])
            .arg(pins.path()),
    );
    let reader = daemon.publishing(&pins);
    daemon.wait_for("some attempts", |daemon| (daemon.log().matches("still: drm cannot be opened").count() >= 2).then_some(()));
    assert_eq!(daemon.log().matches(DAEMONS).count(), 0, "{}", daemon.log());
    for time in 0..2 {
        let card = tree.add(1, &RX6900XT);
        daemon.wait_for("the card", |_| reader.device(1).unwrap().map(|_| ()));
        assert_eq!(daemon.log().matches(DAEMONS).count(), 1, "time {time}: {}", daemon.log());
        card.unplug();
        daemon.wait_for("its end", |_| reader.device(1).unwrap().is_none().then_some(()));
    }
}

#[test]
fn who_does_not_ask_for_these_gpus_hears_nothing_of_it() {
    let machine = Machine::new();
    let sim = Sim::install(&Scenario::new().device(Device::t4()));
    for arguments in [&["--mode=real", "--source=nvml"][..], &["--mode=mock"]] {
        let pins = Bpffs::mount();
        let mut command = with_capabilities("+bpf");
        command.args(["--poll-interval=20ms", &sim.flag(), &machine.root()]).args(arguments).arg("--pin-dir").arg(pins.path());
        let mut daemon = Daemon::spawn(&mut command);
        let reader = daemon.publishing(&pins);
        let_rounds_go_by(&mut daemon, &reader);
        let (_, log) = daemon.end(Signal::SIGTERM);
        assert_eq!(log.matches(DAEMONS).count(), 0, "{log}");
    }
}
