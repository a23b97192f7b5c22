//! The same data from C and from Python, as the files under `examples/` read it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use e2e::{Bpffs, Sim, Workload, eventually};
use nvml_sim::scenario::{Device, Load, Process, ProcessUtilization, Scenario};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

/// A driver with two GPUs that `workload` uses: 384 MiB on the first, 1 GiB on the second.
fn simulate(workload: &Workload) -> Sim {
    let device = |utilization| {
        let device =
            Device::default().utilization(utilization, 10).power_mw(412_345_u32).process_utilization(ProcessUtilization::default());
        device.memory(80 * GIB, 2 * GIB, 0)
    };
    let first = device(71).process(Process::compute(workload.pid(), 384 * MIB).busy(Load::new(49, 17)));
    let second = device(20).process(Process::compute(workload.pid(), GIB).busy(Load::new(20, 8)));
    Sim::install(Scenario::new().device(first).device(second))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn python(pins: &Bpffs) -> Output {
    Command::new("python3").arg(example("python/gpu_reader.py")).arg(pins.path()).output().expect("python3")
}

#[test]
fn python_reads_gpus_and_processes_while_they_are_fresh() {
    let pins = Bpffs::mount();
    let workload = Workload::start("train");
    let sim = simulate(&workload);
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let sampled = |reader: &map_reader::Reader| reader.process(workload.pid()).unwrap().filter(|process| process.sm_util_pct_max == 49);
    bridge.wait_for_maps(&pins, "the process and its sample", |reader| sampled(reader).map(drop));
    // On a busy machine the data may just have become stale.
    let out = eventually("a fresh reading", || {
        let Output { status, stdout, .. } = python(&pins);
        status.success().then(|| text(&stdout))
    });
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("fresh, ") && lines[0].ends_with(" ms old"), "{out}");
    assert_eq!(lines[1..3], ["GPU 0: 71 % busy, 2048 of 81920 MiB used, 412 W", "GPU 1: 20 % busy, 2048 of 81920 MiB used, 412 W"]);
    let process = format!("process {}: 1408 MiB on 2 GPUs, 49 % busy ", workload.pid());
    let age = lines[3].strip_prefix(&process).and_then(|rest| rest.strip_suffix(" ms ago"));
    assert!(age.is_some_and(|age| age.parse::<u32>().is_ok_and(|age| age < 60_000)), "{out}");
    assert_eq!(lines.len(), 4, "{out}");

    bridge.stop(nix::sys::signal::Signal::SIGKILL);
    let stale = eventually("data that is stale", || Some(python(&pins)).filter(|output| !output.status.success()));
    assert_eq!(text(&stale.stderr), "stale: the bridge is gone, or waits for its driver\n");
}

#[test]
fn python_says_which_map_it_cannot_open() {
    let pins = Bpffs::mount();
    let Output { status, stderr, .. } = python(&pins);
    assert!(!status.success());
    assert!(text(&stderr).starts_with(&format!("cannot open {}: No such file", pins.pin("gpu_meta").display())), "{}", text(&stderr));
}

/// `make` in a copy of the example's folder, with the libbpf that this workspace is built with.
fn build_c(folder: &Path) {
    for file in ["gpu_join.bpf.c", "gpu_join.c", "gpu_join.h", "Makefile"] {
        std::fs::copy(example("c").join(file), folder.join(file)).unwrap();
    }
    let include = Path::new(env!("LIBBPF_INCLUDE"));
    let library = include.parent().expect("beside the library");
    let made = Command::new("make")
        .arg("-C")
        .arg(folder)
        .arg(format!("INCLUDE={}", example("../include").display()))
        .arg(format!("CFLAGS=-O2 -Wall -Wextra -Werror -I{}", include.display()))
        .arg(format!("BPF_CFLAGS=-Werror -I{}", include.display()))
        .arg(format!("LDFLAGS=-L{}", library.display()))
        .output()
        .expect("make");
    assert!(made.status.success(), "{}{}", text(&made.stdout), text(&made.stderr));
}

fn join(folder: &Path, pins: &Bpffs, lines: u32) -> Child {
    Command::new(folder.join("gpu_join"))
        .arg(folder.join("gpu_join.bpf.o"))
        .arg(pins.path())
        .arg(lines.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn c_joins_context_switches_with_the_maps() {
    let folder = TempDir::with_prefix("gpu-join-").unwrap();
    build_c(folder.path());
    let pins = Bpffs::mount();
    let mut workload = Workload::start("train");
    let sim = simulate(&workload);
    // Before the bridge, which adopts what it makes.
    let mut child = join(folder.path(), &pins, 3);
    eventually("the program's maps", || pins.pin("gpu_per_pid").exists().then_some(()));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    let known = |reader: &map_reader::Reader| reader.process(workload.pid()).unwrap();
    bridge.wait_for_maps(&pins, "the process", |reader| known(reader).map(drop));
    eventually("three context switches", || {
        workload.sleep(1);
        child.try_wait().unwrap()
    });
    let out = text(&child.wait_with_output().unwrap().stdout);
    assert_eq!(out.lines().count(), 3, "{out}");
    let start = format!("train ({}) leaves the CPU: 1408 MiB of GPU memory, ", workload.pid());
    for line in out.lines() {
        let rest = line.strip_prefix(&start).unwrap_or_else(|| panic!("{out}"));
        assert!(rest == "no sample yet" || rest.contains("% busy "), "{out}");
    }
    let is_sampled = |line: &str| line.contains(", 49 % busy ");
    let mut child = join(folder.path(), &pins, 20);
    eventually("twenty context switches", || {
        workload.sleep(1);
        child.try_wait().unwrap()
    });
    let out = text(&child.wait_with_output().unwrap().stdout);
    assert!(is_sampled(out.lines().last().unwrap()), "{out}");
}
