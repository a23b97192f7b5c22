//! The packages' service under a real systemd, in a system that was booted for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use deploy::artifacts::{NEXT_VERSION, VERSION, deb, dist, output, rpm, succeed};
use deploy::machine::Machine;
use deploy::page;
use map_reader::{Map, Reader};
use nvml_sim::library::{FILE_NAME, Installed};
use nvml_sim::scenario::{Device, Process, Scenario};
use tempfile::TempDir;
use test_support::Bpffs;

const UNIT: &str = "gpu-ebpf-bridge.service";
const SETTINGS: &str = "etc/default/gpu-ebpf-bridge";
const USED: u64 = 1 << 29;
/// Of every machine, so that the simulated GPU may be used by it.
const FIRST_PROCESS: u32 = 1;

/// Numbers of `linux/capability.h`.
const DAC_READ_SEARCH: u64 = 1 << 2;
const SYS_PTRACE: u64 = 1 << 19;
const BPF: u64 = 1 << 39;

fn all_ids(pins: &Bpffs) -> Vec<u32> {
    let reader = Reader::open(pins.path());
    [Map::Meta, Map::Device, Map::PerPid, Map::PerPidPerDevice].map(|map| reader.map_id(map).unwrap()).to_vec()
}

#[track_caller]
fn wait_for_state(machine: &Machine, expected: &str) {
    machine.wait_for(expected, |machine| (machine.property(UNIT, "ActiveState") == expected).then_some(()));
}

fn main_pid(machine: &Machine) -> String {
    machine.property(UNIT, "MainPID")
}

/// Waits for another main process than this one, and for what it publishes.
#[track_caller]
fn wait_for_successor(machine: &Machine, pins: &Bpffs, pid: &str) -> String {
    let successor = machine.wait_for("another main process", |machine| {
        let now = main_pid(machine);
        (machine.property(UNIT, "ActiveState") == "active" && now != pid && now != "0").then_some(now)
    });
    wait_for_publishing(machine, pins);
    successor
}

#[track_caller]
fn wait_for_publishing(machine: &Machine, pins: &Bpffs) {
    let start = map_reader::boottime_now_ns().unwrap();
    machine.wait_for("a fresh round", |_| Reader::open(pins.path()).meta().ok().filter(|meta| meta.last_update_boottime_ns > start));
}

/// A field of the main process, as the kernel has it.
fn status(machine: &Machine, field: &str) -> String {
    let status = machine.run(&["cat", &format!("/proc/{}/status", main_pid(machine))]);
    status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_else(|| panic!("{field}: {status}")).trim().to_owned()
}

/// Runs a line of shell with the namespaces and the control group of the service's main process.
fn in_its_place(machine: &Machine, script: &str) -> String {
    let pid = main_pid(machine);
    let group = machine.run(&["cat", &format!("/proc/{pid}/cgroup")]);
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
    let enter = format!("echo $$ > /sys/fs/cgroup{group}/cgroup.procs; exec nsenter --target {pid} --mount --net sh -c \"$0\"");
    let done = output(&mut machine.command(&["sh", "-c", &enter, script]));
    format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
}

/// Puts the simulated driver into the machine, as an installer would into one that runs.
fn install_driver(machine: &Machine) {
    let folder = machine.root().path().join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let device = Device::t4().process(Process::compute(FIRST_PROCESS, USED));
    Installed::at(&folder).play(&Scenario::new().device(device)).unwrap();
    fs::copy(dist("tests/libnvml_sim.so"), folder.join(FILE_NAME)).unwrap();
}

#[track_caller]
fn check_hardening(machine: &Machine) {
    assert_eq!(u64::from_str_radix(&status(machine, "CapBnd:"), 16).unwrap(), BPF);
    assert_eq!(u64::from_str_radix(&status(machine, "CapEff:"), 16).unwrap(), BPF);
    assert_eq!((status(machine, "NoNewPrivs:").as_str(), status(machine, "Seccomp:").as_str()), ("1", "2"));
    // By the kernel's own words about what is tried where the service is.
    for (attempt, answer) in [
        ("touch /usr/bin/x", "Read-only file system"),
        ("touch /etc/x", "Read-only file system"),
        ("echo 1 > /proc/sys/kernel/panic", "Read-only file system"),
        ("stat -c mode:%a /root", "mode:0"),
        ("stat -c mode:%a /home", "mode:0"),
        ("mkdir /sys/fs/bpf/made && rmdir /sys/fs/bpf/made && echo writable", "writable"),
        ("grep -c : /proc/net/dev", "1"),
        // The driver's device files may be opened, if there is a driver; others are not even tried.
        ("mknod /tmp/other c 1 11; cat /tmp/other", "Operation not permitted"),
        ("cat /dev/null && echo opened", "opened"),
    ] {
        let said = in_its_place(machine, attempt);
        assert!(said.contains(answer), "{attempt}: {said}");
    }
    let settled = machine.run(&["systemctl", "show", "--property=DeviceAllow", UNIT]);
    assert!(settled.contains("char-195 rw"), "{settled}");
}

/// The commands of docs/deployment.md for a machine with systemd, while the simulated GPU is published.
#[track_caller]
fn check_page(machine: &Machine, pins: &Bpffs) {
    let run = |line: &str| machine.run(&["sh", "-c", line]);
    for (beginning, answer) in [
        ("gpu-ebpf-bridge --health", "publishing:"),
        ("bridge-dump", "[device 0]"),
        ("systemctl status", "Active: active (running)"),
        ("journalctl", "Started GPU telemetry in pinned BPF maps"),
    ] {
        let [line] = page::commands_like(beginning, 1).try_into().unwrap();
        let said = run(&line);
        assert!(said.contains(answer), "{line}: {said}");
    }

    // Two capabilities more, for processes on GPUs of other vendors.
    let pid = main_pid(machine);
    for beginning in ["install -D", "systemctl daemon-reload", "systemctl restart"] {
        let [line] = page::commands_like(beginning, 1).try_into().unwrap();
        run(&line);
    }
    wait_for_successor(machine, pins, &pid);
    assert_eq!(u64::from_str_radix(&status(machine, "CapBnd:"), 16).unwrap(), BPF | SYS_PTRACE | DAC_READ_SEARCH);

    // By hand, beside the service: with a BPF file system that nobody else sees.
    let [mount] = page::commands_like("mount -t bpf", 1).try_into().unwrap();
    let [bridge] = page::commands_like("gpu-ebpf-bridge --mode=real", 1).try_into().unwrap();
    let by_hand = format!(
        "{mount} && {{ {bridge} & pid=$!; until gpu-ebpf-bridge --health | grep ^publishing:; do sleep 0.1; done; kill $pid; wait $pid; ! ls /sys/fs/bpf | grep gpu_; }}"
    );
    let said = machine.run(&["timeout", "60", "unshare", "--mount", "sh", "-c", &by_hand]);
    assert!(said.lines().count() == 1 && said.starts_with("publishing:"), "{said}");
}

#[test]
fn the_deb_brings_a_service_that_lives_as_it_should() {
    let pins = Bpffs::mount();
    let machine = Machine::boot(&pins);
    for version in [VERSION, NEXT_VERSION] {
        machine.root().put(&deb(version, std::env::consts::ARCH), &format!("{version}.deb"));
    }

    // No driver: it is ready, and waits.
    machine.run(&["dpkg", "--install", &format!("/{VERSION}.deb")]);
    wait_for_state(&machine, "active");
    assert_eq!(machine.run(&["systemctl", "is-enabled", UNIT]).trim(), "enabled");
    let idle = machine.property(UNIT, "StatusText");
    assert!(idle.contains("libnvidia-ml.so.1 is not where the dynamic loader looks"), "{idle}");
    assert!(machine.run(&["gpu-ebpf-bridge", "--health"]).starts_with("idle:"));

    // The driver comes, and nobody restarts anything.
    let first = main_pid(&machine);
    install_driver(&machine);
    wait_for_publishing(&machine, &pins);
    let own = machine.wait_for("the process that uses the GPU", |_| Reader::open(pins.path()).process(FIRST_PROCESS).ok().flatten());
    assert_eq!((own.used_gpu_memory_total, main_pid(&machine)), (USED, first.clone()));
    assert!(machine.run(&["gpu-ebpf-bridge", "--health"]).starts_with("publishing:"));
    let said = machine.property(UNIT, "StatusText");
    assert!(said.starts_with("publishing"), "{said}");
    check_hardening(&machine);
    check_page(&machine, &pins);
    let first = main_pid(&machine);
    let ids = all_ids(&pins);

    // Its settings and the manager's are read again without a gap.
    machine.run(&["systemctl", "daemon-reload"]);
    assert_eq!(main_pid(&machine), first);
    wait_for_publishing(&machine, &pins);

    // One that is killed, and one that hangs: a successor goes on with the same maps.
    machine.run(&["sh", "-c", &format!("kill -KILL {first}")]);
    let second = wait_for_successor(&machine, &pins, &first);
    machine.run(&["sh", "-c", &format!("kill -STOP {second}")]);
    let start = Instant::now();
    let third = wait_for_successor(&machine, &pins, &second);
    let journal = machine.journal(UNIT);
    assert!(journal.contains("Watchdog timeout"), "{journal}");
    assert!(start.elapsed() > Duration::from_secs(10), "the watchdog bites too soon: {:?}", start.elapsed());
    assert_eq!((machine.property(UNIT, "NRestarts").as_str(), all_ids(&pins)), ("2", ids.clone()), "{journal}");

    // Restarted, and upgraded.
    machine.run(&["systemctl", "restart", UNIT]);
    let fourth = wait_for_successor(&machine, &pins, &third);
    machine.run(&["dpkg", "--install", &format!("/{NEXT_VERSION}.deb")]);
    wait_for_successor(&machine, &pins, &fourth);
    assert_eq!(all_ids(&pins), ids, "{}", machine.journal(UNIT));

    // Stopped: nothing that looks alive is left.
    machine.run(&["systemctl", "stop", UNIT]);
    assert!(pins.pins().is_empty(), "{:?}: {}", pins.pins(), machine.journal(UNIT));
    assert_eq!((machine.property(UNIT, "ActiveState").as_str(), machine.property(UNIT, "Result").as_str()), ("inactive", "success"));

    machine.run(&["systemctl", "start", UNIT]);
    wait_for_publishing(&machine, &pins);
    machine.run(&["dpkg", "--purge", "gpu-ebpf-bridge"]);
    assert!(pins.pins().is_empty(), "{:?}", pins.pins());
    let gone = output(&mut machine.command(&["systemctl", "status", UNIT]));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("could not be found"), "{gone:?}");
}

#[test]
fn settings_that_cannot_be_used_are_told_and_tried_once() {
    let pins = Bpffs::mount();
    let machine = Machine::boot(&pins);
    machine.root().put(&deb(VERSION, std::env::consts::ARCH), "bridge.deb");
    machine.run(&["dpkg", "--install", "/bridge.deb"]);
    wait_for_state(&machine, "active");
    let settings = machine.root().path().join(SETTINGS);
    let restart = || output(&mut machine.command(&["systemctl", "restart", UNIT])).status.success();

    fs::write(&settings, "GPU_EBPF_BRIDGE_FLAGS=--poll-intervall=1s\n").unwrap();
    assert!(!restart());
    wait_for_state(&machine, "failed");
    let journal = machine.journal(UNIT);
    assert!(journal.contains("--poll-intervall"), "{journal}");
    assert_eq!((machine.property(UNIT, "ExecMainStatus").as_str(), machine.property(UNIT, "NRestarts").as_str()), ("2", "0"));

    // What the page's advice is about: a filter that somebody made too tight.
    fs::write(&settings, "GPU_EBPF_BRIDGE_FLAGS=--mode=mock\n").unwrap();
    let tight = machine.root().path().join(format!("etc/systemd/system/{UNIT}.d"));
    fs::create_dir_all(&tight).unwrap();
    fs::write(tight.join("tight.conf"), "[Service]\nSystemCallFilter=~bpf\nRestart=no\n").unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    assert!(!restart());
    let journal = machine.journal(UNIT);
    assert!(journal.contains("a seccomp filter is in force"), "{journal}");

    fs::remove_dir_all(&tight).unwrap();
    machine.run(&["systemctl", "daemon-reload"]);
    assert!(restart(), "{}", machine.journal(UNIT));
    wait_for_publishing(&machine, &pins);
    assert_eq!(Reader::open(pins.path()).devices().unwrap().len(), 2);
}

/// A package that says that it is this version of glibc, for a system where rpm knows of none.
fn stand_in_for_glibc(version: &str, folder: &TempDir) -> PathBuf {
    let spec = folder.path().join("glibc.spec");
    let text = format!(
        "Name: glibc\nVersion: {version}\nRelease: 1\nSummary: Stands for the C library\nLicense: none\nBuildArch: noarch\nProvides: /bin/sh\n\
         %description\nStands for the C library, which the system has from elsewhere.\n%files\n"
    );
    fs::write(&spec, text).unwrap();
    let define = |name: &str| format!("{name} {}", folder.path().display());
    succeed(Command::new("rpmbuild").args(["-bb", "--quiet", "--define", &define("_topdir"), "--define", &define("_rpmdir")]).arg(&spec));
    folder.path().join(format!("noarch/glibc-{version}-1.noarch.rpm"))
}

#[test]
fn the_rpm_brings_the_same_service() {
    let pins = Bpffs::mount();
    let machine = Machine::boot(&pins);
    let folder = TempDir::new().unwrap();
    for version in ["2.17", "2.31"] {
        machine.root().put(&stand_in_for_glibc(version, &folder), &format!("glibc-{version}.rpm"));
    }
    for version in [VERSION, NEXT_VERSION] {
        machine.root().put(&rpm(version, std::env::consts::ARCH), &format!("{version}.rpm"));
    }
    // Debian's rpm advises against its own use.
    let rpm = |arguments: &[&str]| output(&mut machine.command(&[&["rpm", "--force-debian"], arguments].concat()));
    let succeed = |arguments: &[&str]| {
        let done = rpm(arguments);
        assert!(done.status.success() && done.stderr.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };

    // RHEL 7's C library is too old, and rpm says so.
    succeed(&["--install", "/glibc-2.17.rpm"]);
    let refused = rpm(&["--install", &format!("/{VERSION}.rpm")]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("glibc >= 2.28 is needed"), "{refused:?}");
    succeed(&["--upgrade", "/glibc-2.31.rpm"]);

    succeed(&["--install", &format!("/{VERSION}.rpm")]);
    wait_for_state(&machine, "active");
    assert_eq!(machine.run(&["systemctl", "is-enabled", UNIT]).trim(), "enabled");
    succeed(&["--verify", "gpu-ebpf-bridge"]);
    let settings = machine.root().path().join(SETTINGS);
    fs::write(&settings, "GPU_EBPF_BRIDGE_FLAGS=--mode=mock\n").unwrap();
    machine.run(&["systemctl", "restart", UNIT]);
    wait_for_publishing(&machine, &pins);

    let (ids, pid) = (all_ids(&pins), main_pid(&machine));
    succeed(&["--upgrade", &format!("/{NEXT_VERSION}.rpm")]);
    wait_for_successor(&machine, &pins, &pid);
    assert_eq!(all_ids(&pins), ids, "{}", machine.journal(UNIT));
    assert!(fs::read_to_string(&settings).unwrap().contains("mock"), "an upgrade must leave settings alone");

    machine.run(&["rpm", "--erase", "gpu-ebpf-bridge"]);
    assert!(pins.pins().is_empty(), "{:?}", pins.pins());
    assert!(!machine.root().path().join("usr/bin/gpu-ebpf-bridge").exists());
    let gone = output(&mut machine.command(&["systemctl", "status", UNIT]));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("could not be found"), "{gone:?}");
}
