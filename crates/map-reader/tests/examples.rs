//! The programs under `examples/` print what the maps hold.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use gpu_types::maps::{DEVICE, MAPS, META, PER_PID, PER_PID_PER_DEVICE, STATE};
use gpu_types::{GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetricsAggregated};
use map_reader::boottime_now_ns;

mod support;
use support::{Maps, PinDir, put};

const BRIDGE: u32 = 77;
const OFFSET_NS: i64 = 1_700_000_000_000_000_000;

/// Examples are built with the tests, into a folder beside theirs.
fn example(name: &str) -> PathBuf {
    let own = env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not there: build it with `cargo build -p map-reader --examples`", path.display());
    path
}

fn run(name: &str, dir: &Path) -> (bool, String, String) {
    let Output { status, stdout, stderr } = Command::new(example(name)).arg(dir).output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A GPU that is 71 % busy since `sampled_ns`, and two processes that hold 5 and 7 bytes.
fn publish(maps: &Maps, stamp_ns: u64, sampled_ns: u64) {
    let timestamp_ns = OFFSET_NS as u64 + sampled_ns;
    let device = GpuDeviceMetrics { timestamp_ns, sm_util_pct: 71, mem_used: 12, mem_total: 80, ..Default::default() };
    put(&maps.device, 1u32, device);
    for (pid, used_gpu_memory_total) in [(1001u32, 5), (1002, 7)] {
        put(&maps.per_pid, pid, GpuPidMetricsAggregated { used_gpu_memory_total, ..Default::default() });
    }
    let mut state = GpuBridgeState { version: 1, phase: 1, source: 1, n_devices: 2, helper_pid: BRIDGE, ..Default::default() };
    state.devices[1].name[..11].copy_from_slice(b"NVIDIA H100");
    state.devices[1].uuid[..5].copy_from_slice(b"GPU-b");
    put(&maps.state, 0u32, state);
    write_meta(maps, stamp_ns);
}

fn write_meta(maps: &Maps, stamp_ns: u64) {
    let meta = GpuMeta {
        schema_version: 1,
        n_devices: 1,
        last_update_boottime_ns: stamp_ns,
        helper_pid: BRIDGE,
        clock_offset_ns: OFFSET_NS,
        ..Default::default()
    };
    put(&maps.meta, 0u32, meta);
}

#[test]
fn follow_prints_each_round_also_of_a_bridge_that_starts_anew() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 1_000_000_000, 900_000_000);
    let mut child = Command::new(example("follow")).arg(pins.path()).arg("3").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "the first round: 1 devices, 12 bytes held, of one round");
    write_meta(&maps, 1_250_000_000);
    assert_eq!(lines.next().unwrap(), "250.0ms later: 1 devices, 12 bytes held, of one round");
    for name in MAPS.iter().map(|map| map.name) {
        pins.remove(name);
    }
    let [meta, device, per_pid, per_pid_per_device, state] =
        [META, DEVICE, PER_PID, PER_PID_PER_DEVICE, STATE].map(|definition| pins.create(&definition));
    // Its first round, with one process less.
    let renewed = Maps { meta, device, per_pid, per_pid_per_device, state };
    put(&renewed.per_pid, 1001u32, GpuPidMetricsAggregated { used_gpu_memory_total: 5, ..Default::default() });
    put(&renewed.state, 0u32, GpuBridgeState { version: 1, helper_pid: BRIDGE, ..Default::default() });
    write_meta(&renewed, 3_250_000_000);
    assert_eq!(lines.next().unwrap(), "2.0s later: 0 devices, 5 bytes held, of one round");
    assert_eq!(lines.next(), None);
    assert!(child.wait().unwrap().success());
}

#[test]
fn freshness_tells_old_data_from_new() {
    let (pins, maps) = PinDir::full();
    assert_eq!(run("freshness", pins.path()), (true, "nothing has been published\n".to_owned(), String::new()));

    let now = boottime_now_ns().unwrap();
    publish(&maps, now, now);
    let (success, out, _) = run("freshness", pins.path());
    let lines: Vec<&str> = out.lines().collect();
    assert!(success && lines[0].starts_with("fresh: ") && lines[0].ends_with(" old, 1 devices"), "{out}");
    assert_eq!(lines[1], "bridge: publishing, source real");
    assert!(lines[2].starts_with("GPU 1, NVIDIA H100 (GPU-b): 71 % busy ") && lines[2].ends_with(" ago, 12 of 80 bytes used"), "{out}");
    assert_eq!(lines.len(), 3);

    thread::sleep(Duration::from_millis(1100));
    let (success, out, _) = run("freshness", pins.path());
    assert!(success && out.starts_with("stale: 1.") && out.contains(" old, do not believe the rest\n"), "{out}");

    for name in MAPS.iter().map(|map| map.name) {
        pins.remove(name);
    }
    let (success, out, err) = run("freshness", pins.path());
    assert!(!success && out.is_empty() && err.starts_with("freshness: gpu_meta is not pinned in "), "{err}");
}
