//! Programs in the shape of tracing gadgets build with a `vmlinux.h` generated from the running kernel, share the pinned maps and work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::fs::{self, File};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use common::{boottime, device, meta, process, process_device, process_device_key, write, write_meta};
use e2e::{Bpffs, Workload, eventually};
use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramMut};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use perf_event::Builder;
use perf_event::events::Software;
use tempfile::TempDir;

const PERIOD_NS: u64 = 1_000_000;

/// A folder with a whole kernel's `vmlinux.h`.
static VMLINUX: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vmlinux");
    fs::create_dir_all(&folder).unwrap();
    let dump = Command::new("bpftool")
        .args(["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "c"])
        .stdout(File::create(folder.join("vmlinux.h")).unwrap())
        .status()
        .unwrap_or_else(|error| panic!("cannot run bpftool, install it: {error}"));
    assert!(dump.success(), "bpftool cannot dump the kernel's types: {dump}");
    folder
});

/// Compiles a program of this crate with the generated `vmlinux.h`.
fn compile(source: &str, folder: &Path) -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let object = folder.join("program.bpf.o");
    let include = |path: &Path| format!("-I{}", path.display());
    SkeletonBuilder::new()
        .source(crate_dir.join("bpf").join(source))
        .obj(&object)
        .clang_args(["-Wall".into(), "-Werror".into(), include(&VMLINUX), include(&crate_dir.join("../../include"))])
        .build()
        .unwrap_or_else(|error| panic!("{source} does not compile with a generated vmlinux.h: {error:#}"));
    object
}

/// Compiles and loads it with the maps pinned in `pin_dir`.
fn load(source: &str, pin_dir: &Path) -> Object {
    let folder = TempDir::with_prefix("gadget-").unwrap();
    let object = compile(source, folder.path());
    ObjectBuilder::default()
        .pin_root_path(pin_dir)
        .unwrap()
        .open_file(object)
        .and_then(libbpf_rs::OpenObject::load)
        .unwrap_or_else(|error| panic!("{source} does not load: {error:?}"))
}

fn program<'object>(object: &'object Object, name: &str) -> ProgramMut<'object> {
    object.progs_mut().find(|program| program.name() == name).unwrap_or_else(|| panic!("no program {name}"))
}

fn lookup(object: &Object, map: &str, key: u32) -> Option<Vec<u8>> {
    let map = object.maps().find(|candidate| candidate.name() == map).unwrap_or_else(|| panic!("no map {map}"));
    map.lookup(&key.to_ne_bytes(), MapFlags::ANY).unwrap()
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

#[test]
fn our_own_programs_build_and_load_with_a_generated_vmlinux_header() {
    let pins = Bpffs::mount();
    for name in ["gpu_devices", "gpu_tasks", "gpu_events", "gpu_state", "gpu_launches", "gpu_exits", "gpu_starvation"] {
        load(&format!("{name}.bpf.c"), pins.path());
    }
}

#[test]
fn a_gadget_without_programs_finds_what_is_in_the_maps() {
    let pins = Bpffs::mount();
    let tables = load("gadgets/gpu_tables.bpf.c", pins.path());
    assert_eq!(pins.pins(), ["gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"]);
    write(pins.path(), "gpu_device", 2_u32, &device(7, 71));
    let record = lookup(&tables, "gpu_device", 2).unwrap();
    assert_eq!((record.len(), u64_at(&record, 0), u32_at(&record, 8)), (128, 7, 71));

    // A second gadget reuses the pins, and so does one of another framework.
    let id = |object: &Object| object.maps().find(|map| map.name() == "gpu_device").unwrap().info().unwrap().info.id;
    assert_eq!(id(&load("gadgets/profile_idle.bpf.c", pins.path())), id(&tables));
    assert_eq!(consumers::devices::read(pins.path()).unwrap().len(), 1);
}

#[test]
fn a_profiler_counts_only_processes_whose_gpus_are_all_idle() {
    let pins = Bpffs::mount();
    let profiler = load("gadgets/profile_idle.bpf.c", pins.path());
    let names = ["idle", "busy", "partly", "all-idle", "no-gpu"];
    let mut workloads = names.map(Workload::start);
    let [idle, busy, partly, all_idle, _] = workloads.each_ref().map(Workload::pid);
    for (index, utilization) in [(0_u32, 3), (1, 80), (2, 9)] {
        write(pins.path(), "gpu_device", index, &device(1, utilization));
    }
    write(pins.path(), "gpu_per_pid", idle, &process(1, 1 << 30, 0, 0, 0, 1));
    write(pins.path(), "gpu_per_pid", busy, &process(1, 1 << 30, 0, 0, 1, 1));
    for (pid, devices) in [(partly, [0_u8, 1]), (all_idle, [0, 2])] {
        write(pins.path(), "gpu_per_pid", pid, &process(1, 2 << 30, 0, 0, 0xFF, 2));
        for index in devices {
            write(pins.path(), "gpu_per_pid_per_device", process_device_key(pid, index.into()), &process_device(1 << 30, index));
        }
    }

    let on_sample = program(&profiler, "on_sample");
    let mut links = Vec::new();
    for workload in &workloads {
        let pid = workload.pid().try_into().unwrap();
        let counter = Builder::new(Software::CPU_CLOCK).sample_period(PERIOD_NS).observe_pid(pid).any_cpu().build();
        let counter = counter.unwrap_or_else(|error| panic!("cannot open a perf event, this test needs root: {error}"));
        // The link takes the descriptor over, and starts the event.
        links.push(on_sample.attach_perf_event(counter.into_raw_fd()).unwrap());
    }
    let samples = |workload: &Workload| lookup(&profiler, "idle_samples", workload.pid()).map_or(0, |count| u64_at(&count, 0));

    for workload in &mut workloads {
        workload.burn(30);
        assert_eq!(samples(workload), 0, "gpu_meta was never written");
    }
    for (name, workload) in names.iter().zip(&mut workloads) {
        eventually(&format!("the right samples of {name}"), || {
            write_meta(pins.path(), &meta(boottime(), 0));
            workload.burn(30);
            let count = samples(workload);
            match *name {
                "idle" | "all-idle" => (count > 0).then_some(()),
                _ => {
                    assert_eq!(count, 0, "{name}");
                    Some(())
                }
            }
        });
    }
}

#[test]
fn a_starvation_tracer_reports_the_wait_and_the_time_of_the_sample() {
    mount_tracefs();
    let pins = Bpffs::mount();
    let tracer = load("gadgets/trace_starvation.bpf.c", pins.path());
    let (mut starved, mut well_fed) = (Workload::start("starved"), Workload::start("well-fed"));
    let offset = 1_700_000_000_000_000_000_u64;
    let round = boottime();
    let sampled = u64::try_from(round.saturating_sub(Duration::from_millis(150)).as_nanos()).unwrap();
    write(pins.path(), "gpu_device", 0_u32, &device(offset + sampled, 12));
    write(pins.path(), "gpu_device", 1_u32, &device(offset + sampled, 95));
    write(pins.path(), "gpu_per_pid", starved.pid(), &process(0, 1 << 30, 0, 0, 0, 1));
    write(pins.path(), "gpu_per_pid", well_fed.pid(), &process(0, 1 << 30, 0, 0, 1, 1));
    let _link = program(&tracer, "on_switch").attach().unwrap();

    let report = eventually("a report of starvation", || {
        write_meta(pins.path(), &meta(boottime(), offset.try_into().unwrap()));
        well_fed.sleep(5);
        starved.sleep(5);
        lookup(&tracer, "starved", starved.pid())
    });
    assert!(u64_at(&report, 0) >= 1_000_000, "it slept 5 ms, and 1 ms is reported");
    assert_eq!(u64_at(&report, 8), sampled);
    assert_eq!((u32_at(&report, 16), u32_at(&report, 20)), (starved.pid(), 12));
    assert_eq!(lookup(&tracer, "starved", well_fed.pid()), None);
}

/// For this thread alone: tracefs where libbpf looks for it, unless it is there already.
fn mount_tracefs() {
    let tracefs = Path::new("/sys/kernel/tracing");
    if fs::exists(tracefs.join("events")).unwrap() {
        return;
    }
    let root = "this test needs root";
    unshare(CloneFlags::CLONE_NEWNS).unwrap_or_else(|error| panic!("cannot make a mount namespace, {root}: {error}"));
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    mount(Some("tracefs"), tracefs, Some("tracefs"), MsFlags::empty(), None::<&str>)
        .unwrap_or_else(|error| panic!("cannot mount tracefs, {root}: {error}"));
}
