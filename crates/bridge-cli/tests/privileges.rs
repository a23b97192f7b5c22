//! With `CAP_BPF` alone, as root and as somebody else; what the processes hold on to; who may read the pins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
};

use common::{BRIDGE, Daemon, Sim, bridge_for_all, folder_for_all, output};
use drm_sim::{Tree, profiles};
use nix::{
    mount::{MsFlags, mount},
    sys::signal::Signal,
};
use nvml_sim::scenario::{Device, Process, Scenario};
use test_support::Bpffs;

/// Numbers of `linux/capability.h`.
const CHOWN: u64 = 1 << 0;
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const FOWNER: u64 = 1 << 3;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_RESOURCE: u64 = 1 << 24;
const MKNOD: u64 = 1 << 27;
const BPF: u64 = 1 << 39;
/// What it takes to look at other users' processes.
const PROCESSES: u64 = SYS_PTRACE | DAC_READ_SEARCH;
const FILES: u64 = CHOWN | DAC_OVERRIDE | DAC_READ_SEARCH | FOWNER;

/// A user and a group that own nothing; numbers need no entry anywhere.
const SOMEBODY: &str = "64321";
const GROUP: &str = "64322";

fn sim() -> Sim {
    Sim::install(&Scenario::new().device(Device::t4().process(Process::compute(std::process::id(), 1 << 20))))
}

/// A field of capabilities of every thread of the process.
fn capabilities(pid: u32, field: &str) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |status: String| status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(field)?.trim(), 16).ok()).unwrap();
    threads.map(|thread| of(fs::read_to_string(thread.unwrap().path().join("status")).unwrap())).collect()
}

/// Every thread of the process holds exactly these, and no way to others but a setuid program's.
#[track_caller]
fn check_holds(pid: u32, held: u64) {
    check_holds_and_lends(pid, held, 0);
}

/// The same of one that may also take up, or give to its children, what it does not use itself.
#[track_caller]
fn check_holds_and_lends(pid: u32, held: u64, lent: u64) {
    for (field, held) in [("CapEff:", held), ("CapPrm:", held | lent)] {
        assert!(capabilities(pid, field).iter().all(|found| *found == held), "{field} {:x?}, expected {held:x}", capabilities(pid, field));
    }
    for field in ["CapInh:", "CapAmb:"] {
        assert!(capabilities(pid, field).iter().all(|found| found & !held == 0), "{field} {:x?}", capabilities(pid, field));
    }
}

#[test]
fn root_keeps_what_it_needs_and_its_sampler_has_no_way_to_bpf() {
    let (pins, sim) = (Bpffs::mount(), sim());
    let bounding = capabilities(std::process::id(), "CapBnd:")[0];
    let mut daemon = Daemon::start(&pins, &["--mode=real", "--source=nvml", &sim.flag()]);
    daemon.publishing(&pins);
    check_holds(daemon.pid(), (FILES | BPF | SYS_RESOURCE) & bounding);
    let sampler = daemon.sampler();
    check_holds(sampler, (FILES | MKNOD) & bounding);
    // A setuid helper of the library may still load modules.
    assert_eq!(capabilities(sampler, "CapBnd:")[0], bounding);
    let status = fs::read_to_string(format!("/proc/{sampler}/status")).unwrap();
    assert!(status.lines().any(|line| line == "NoNewPrivs:\t0"), "{status}");
}

/// A machine with one GPU of AMD's that any user may look at.
fn machine() -> (Tree, String) {
    let tree = Tree::new();
    fs::set_permissions(tree.root(), Permissions::from_mode(0o755)).unwrap();
    tree.add(0, &profiles::RX6900XT);
    let flag = format!("--drm-root={}", tree.root().display());
    (tree, flag)
}

/// What a daemon and its two samplers have when the daemon was given `given`. `nvmls`: what the library's sampler can have of it.
#[track_caller]
fn check_samplers(command: &mut Command, pins: &Bpffs, given: u64, nvmls: u64) {
    let daemons = FILES | BPF | SYS_RESOURCE;
    let (sim, (_tree, root)) = (sim(), machine());
    command.args(["--mode=real", &sim.flag(), &root, "--pin-dir"]).arg(pins.path());
    let mut daemon = Daemon::spawn(command);
    daemon.publishing(pins);
    let (nvml, drm) = (daemon.child("gpu-sampler"), daemon.child("drm-sampler"));
    daemon.wait_for("two devices", |_| (map_reader::Reader::open(pins.path()).meta().ok()?.n_devices == 2).then_some(()));
    check_holds_and_lends(daemon.pid(), daemons & given, PROCESSES & given);
    check_holds(nvml, nvmls & given);
    // One of the two alone is of no use to it.
    check_holds(drm, if given & PROCESSES == PROCESSES { PROCESSES } else { 0 });
    // What is lent is lent for the start of that sampler only.
    let dropped = !daemons & given;
    for field in ["CapInh:", "CapAmb:"] {
        assert!(capabilities(daemon.pid(), field).iter().all(|found| found & dropped == 0), "{field}");
    }
}

#[test]
fn the_sampler_that_looks_at_processes_is_lent_what_that_takes_and_nobody_else_has_it() {
    let pins = Bpffs::mount();
    let bounding = capabilities(std::process::id(), "CapBnd:")[0];
    check_samplers(&mut Command::new(BRIDGE), &pins, bounding, FILES | MKNOD);
    // As a unit may have it: nothing is gained by starting a program, not even what the daemon gave up itself.
    let mut command = Command::new("setpriv");
    check_samplers(command.args(["--no-new-privs", "--inh-caps=-all", BRIDGE]), &pins, bounding, FILES);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf,+sys_ptrace,+dac_read_search", "--inh-caps=-all", "--no-new-privs", BRIDGE]);
    check_samplers(&mut command, &pins, BPF | PROCESSES, FILES);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf", "--inh-caps=-all", "--no-new-privs", BRIDGE]);
    check_samplers(&mut command, &pins, BPF, FILES);
}

#[test]
fn another_users_sampler_is_lent_what_its_daemon_was_given() {
    let (pins, folder) = (Bpffs::mount(), folder_for_all());
    let bridge = bridge_for_all(&folder);
    fs::set_permissions(pins.path(), Permissions::from_mode(0o777)).unwrap();
    for (names, given) in [("+bpf,+sys_ptrace,+dac_read_search", BPF | PROCESSES), ("+bpf,+sys_ptrace", BPF | SYS_PTRACE)] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", SOMEBODY, "--regid", GROUP, "--clear-groups", "--no-new-privs"]);
        for set in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
            command.arg(format!("{set}=-all,{names}"));
        }
        // A program that another user starts has what is ambient, which the daemon has narrowed to its own.
        check_samplers(command.arg(&bridge), &pins, given, FILES);
    }
}

/// Publishes and leaves nothing behind.
#[track_caller]
fn check_works(command: &mut Command, pins: &Bpffs, held: u64, has_sampler: bool) {
    let mut daemon = Daemon::spawn(command);
    let reader = daemon.publishing(pins);
    check_holds(daemon.pid(), held);
    assert!(!reader.devices().unwrap().is_empty(), "{}", daemon.log());
    if has_sampler {
        let sampler = daemon.sampler();
        check_holds(sampler, 0);
        daemon.wait_for("the process of the simulated driver", |_| reader.process(std::process::id()).unwrap());
    }
    // A pin that vanishes is pinned again.
    fs::remove_file(pins.pin("gpu_device")).unwrap();
    daemon.wait_for_log("pinned again");
    let (status, log) = daemon.end(Signal::SIGTERM);
    assert_eq!(status, Some(0), "{log}");
    assert_eq!(pins.pins(), Vec::<String>::new(), "{log}");
}

#[test]
fn cap_bpf_alone_is_enough_for_root() {
    let (pins, sim) = (Bpffs::mount(), sim());
    fs::set_permissions(pins.path(), Permissions::from_mode(0o700)).unwrap();
    for (mode, has_sampler) in [("--mode=mock", false), ("--mode=real", true)] {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all,+bpf", "--inh-caps=-all", "--no-new-privs", BRIDGE, mode, &sim.flag(), "--pin-dir"]);
        check_works(command.arg(pins.path()), &pins, BPF, has_sampler);
    }
}

#[test]
fn cap_bpf_alone_is_enough_for_another_user_on_a_directory_of_its_own() {
    let (pins, sim, folder) = (Bpffs::mount(), sim(), folder_for_all());
    let bridge = bridge_for_all(&folder);
    fs::set_permissions(pins.path(), Permissions::from_mode(0o777)).unwrap();
    for (mode, has_sampler) in [("--mode=mock", false), ("--mode=real", true)] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", SOMEBODY, "--regid", GROUP, "--clear-groups"]);
        command.args(["--inh-caps=-all,+bpf", "--ambient-caps=-all,+bpf", "--bounding-set=-all,+bpf", "--no-new-privs"]);
        check_works(command.arg(&bridge).args([mode, &sim.flag(), "--pin-dir"]).arg(pins.path()), &pins, BPF, has_sampler);
    }
}

#[test]
fn readers_of_the_group_are_let_in_and_others_are_not() {
    let (pins, folder) = (Bpffs::mount(), folder_for_all());
    let bridge = bridge_for_all(&folder);
    let dump_as = |group: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", SOMEBODY, "--regid", group, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        output(command.arg(&bridge).args(["--dump", "--pin-dir"]).arg(pins.path()))
    };
    let mut daemon = Daemon::start(&pins, &["--mode=mock", "--pin-mode=0640", "--pin-group", GROUP]);
    daemon.publishing(&pins);
    for pin in pins.pins() {
        let metadata = fs::metadata(pins.pin(&pin)).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.gid().to_string().as_str()), (0o640, GROUP), "{pin}");
    }
    let (status, stdout, stderr) = dump_as(GROUP);
    assert!(status == Some(0) && stdout.contains("[device 1]") && stdout.contains("[pid "), "{stderr}");
    assert!(stderr.contains("invented"), "the bridge's own map is readable too: {stderr}");
    let (status, _, stderr) = dump_as(SOMEBODY);
    assert!(status == Some(1) && stderr.contains("not allowed to read"), "{stderr}");

    // Pinned again with the same access.
    fs::remove_file(pins.pin("gpu_meta")).unwrap();
    daemon.wait_for_log("gpu_meta had been removed: pinned again");
    let metadata = fs::metadata(pins.pin("gpu_meta")).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.gid().to_string().as_str()), (0o640, GROUP));
}

#[test]
fn pins_are_their_owners_alone_by_default() {
    let pins = Bpffs::mount();
    let mut daemon = Daemon::start(&pins, &["--mode=mock"]);
    daemon.publishing(&pins);
    assert!(pins.pins().iter().all(|pin| fs::metadata(pins.pin(pin)).unwrap().mode() & 0o7777 == 0o600));
}

#[test]
fn a_group_that_is_not_there_is_a_usage_error() {
    let pins = Bpffs::mount();
    let (status, log) = Daemon::start(&pins, &["--mode=mock", "--pin-group=no-such-group"]).ended();
    assert!(status == Some(2) && log.contains("\"no-such-group\": there is no such group") && log.lines().count() == 1, "{log}");
    assert_eq!(pins.pins(), Vec::<String>::new());
}

/// A start that fails: the last line says what is to be mended.
#[track_caller]
fn check_refused(command: &mut Command, part: &str) {
    let (status, log) = Daemon::spawn(command).ended();
    let last = log.lines().last().unwrap_or_default();
    assert!(status == Some(1) && last.starts_with("gpu-ebpf-bridge: ") && last.contains(part), "{log} does not say {part:?}");
}

#[test]
fn what_is_missing_is_named() {
    let (pins, folder) = (Bpffs::mount(), folder_for_all());
    let bridge = bridge_for_all(&folder);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", BRIDGE, "--mode=mock", "--pin-dir"]);
    check_refused(command.arg(pins.path()), "this process has neither CAP_BPF nor CAP_SYS_ADMIN");

    fs::set_permissions(pins.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", SOMEBODY, "--regid", GROUP, "--clear-groups", "--inh-caps=-all,+bpf", "--ambient-caps=+bpf"]);
    check_refused(command.arg(&bridge).args(["--mode=mock", "--pin-dir"]).arg(pins.path()), "user 64321 may not write in");

    mount(None::<&str>, pins.path(), None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>).unwrap();
    let mut command = Command::new(BRIDGE);
    check_refused(command.args(["--mode=mock", "--pin-dir"]).arg(pins.path()), "is mounted read-only");
}

#[test]
fn device_files_that_only_the_host_has_are_named() {
    let (pins, host) = (Bpffs::mount(), folder_for_all());
    fs::create_dir(host.path().join("dev")).unwrap();
    fs::write(host.path().join("dev/nvidiactl"), "").unwrap();
    let mut command = Command::new(BRIDGE);
    command.args(["--mode=real", "--host-path"]).arg(host.path()).arg("--pin-dir").arg(pins.path());
    check_refused(&mut command, "dev/nvidiactl is there and /dev/nvidiactl is not: --symlink-nvidia-devs links it");
}

#[test]
fn another_pid_namespace_than_the_hosts_draws_one_warning() {
    let pins = Bpffs::mount();
    let daemon = |namespace: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(namespace).arg(BRIDGE).args(["--mode=mock", "--pin-dir"]).arg(pins.path());
        let mut daemon = Daemon::spawn(&mut command);
        daemon.wait_for_log(", maps in ");
        daemon.log().matches("WARN  not in the host's PID namespace").count()
    };
    assert_eq!(daemon(&["--mount"]), 0);
    assert_eq!(daemon(&["--pid", "--fork", "--kill-child", "--mount-proc"]), 1);
}
