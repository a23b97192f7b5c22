//! The `bridge-dump` program against real maps.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use gpu_types::bytes::Record;
use gpu_types::keys::PidDeviceKey;
use gpu_types::maps::{MAPS, MapDefinition, PER_PID};
use gpu_types::{GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

#[path = "../../map-reader/tests/support/mod.rs"]
mod support;
use support::{Maps, PinDir, SetOnDrop, bind_to_one_cpu, put, put_all};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bridge-dump");

fn program(dir: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--pin-dir").arg(dir);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs the program on `dir`: its exit status, standard output and standard error.
#[track_caller]
fn run(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap_or_else(|| panic!("{status}")), text(&stdout).to_owned(), text(&stderr).to_owned())
}

/// What a small bridge with one device and two processes publishes, and how it is printed.
fn publish(maps: &Maps) {
    let meta = GpuMeta {
        schema_version: 1,
        n_devices: 1,
        last_update_boottime_ns: 1_234_567_890,
        helper_pid: 77,
        clock_offset_ns: -3,
        ..Default::default()
    };
    put(&maps.meta, 0u32, meta);
    put(&maps.device, 1u32, GpuDeviceMetrics { mem_total: 85_899_345_920, ..Default::default() });
    put(&maps.device, 2u32, GpuDeviceMetrics { timestamp_ns: 4, sm_util_pct: 71, compute_mode: 3, ..Default::default() });
    for (pid, timestamp_ns) in [(100_001u32, 5), (1017, 6)] {
        put(&maps.per_pid, pid, GpuPidMetricsAggregated { timestamp_ns, device_count: 1, gpu_device_primary: 2, ..Default::default() });
        let metrics = GpuPidMetrics { timestamp_ns, gpu_device: 2, enc_util_pct: 9, ..Default::default() };
        put(&maps.per_pid_per_device, PidDeviceKey::new(pid, 2), metrics);
    }
    put(&maps.per_pid_per_device, PidDeviceKey::new(1017, 0), GpuPidMetrics::default());
}

const META: &str = "\
# gpu_meta
  {SchemaVersion:1 N_devices:1 LastUpdateBoottimeNs:1234567890 HelperPid:77 Reserved:0 ClockOffsetNs:-3}

";
const DEVICES: &str = "\
# gpu_device
  [device 2] {TimestampNs:4 SmUtilPct:71 MemUtilPct:0 MemTotal:0 MemUsed:0 MemReserved:0 TempC:0 PowerMw:0 SmClockMhz:0 MemClockMhz:0 \
ThrottleReasons:0 PcieTxKbps:0 PcieRxKbps:0 EncUtilPct:0 DecUtilPct:0 NvlinkTxKbps:0 NvlinkRxKbps:0 EccCorrectedTotal:0 \
EccUncorrectedTotal:0 FanSpeedPct:0 ComputeMode:3}

";
const PROCESSES: &str = "\
# gpu_per_pid
  [pid 1017] {TimestampNs:6 UsedGpuMemoryTotal:0 SmUtilPctMax:0 MemUtilPctMax:0 GpuDevicePrimary:2 DeviceCount:1 Pad:0}
  [pid 100001] {TimestampNs:5 UsedGpuMemoryTotal:0 SmUtilPctMax:0 MemUtilPctMax:0 GpuDevicePrimary:2 DeviceCount:1 Pad:0}

";
const PROCESS_DEVICES: &str = "\
# gpu_per_pid_per_device
  [pid 1017 dev 0] {TimestampNs:0 UsedGpuMemory:0 SmUtilPct:0 MemUtilPct:0 EncUtilPct:0 DecUtilPct:0 GpuDevice:0 MigInstance:0 Pad:0}
  [pid 1017 dev 2] {TimestampNs:6 UsedGpuMemory:0 SmUtilPct:0 MemUtilPct:0 EncUtilPct:9 DecUtilPct:0 GpuDevice:2 MigInstance:0 Pad:0}
  [pid 100001 dev 2] {TimestampNs:5 UsedGpuMemory:0 SmUtilPct:0 MemUtilPct:0 EncUtilPct:9 DecUtilPct:0 GpuDevice:2 MigInstance:0 Pad:0}

";

fn publish_state(maps: &Maps, source: u32) {
    put(&maps.state, 0u32, GpuBridgeState { version: 1, phase: 1, source, helper_pid: 77, ..Default::default() });
}

#[test]
fn all_maps_are_printed_and_nothing_else() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let expected = (0, [META, DEVICES, PROCESSES, PROCESS_DEVICES].concat(), String::new());
    assert_eq!(run(program(pins.path())), expected, "with a state map that was never written");
    publish_state(&maps, 1);
    assert_eq!(run(program(pins.path())), expected, "with a real source");
    pins.remove("gpu_bridge_state");
    assert_eq!(run(program(pins.path())), expected, "without a state map");
}

#[test]
fn each_missing_map_is_named_and_the_others_are_printed() {
    let sections = [META, DEVICES, PROCESSES, PROCESS_DEVICES];
    for (missing, MapDefinition { name, .. }) in MAPS.iter().enumerate().take(4) {
        let (pins, maps) = PinDir::full();
        publish(&maps);
        pins.remove(name);
        let (status, out, err) = run(program(pins.path()));
        assert_eq!(status, 1);
        let rest: String = sections.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, section)| *section).collect();
        assert_eq!(out, rest);
        let dir = pins.path().display();
        assert_eq!(err, format!("{name} is not printed: {name} is not pinned in {dir}: is a bridge running with this pin directory?\n"));
    }
}

#[test]
fn a_foreign_map_and_a_directory_are_named_and_the_others_are_printed() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    pins.remove("gpu_per_pid");
    pins.create(&MapDefinition { max_entries: 64, ..PER_PID });
    pins.remove("gpu_per_pid_per_device");
    fs::create_dir(pins.pin("gpu_per_pid_per_device")).unwrap();
    let (status, out, err) = run(program(pins.path()));
    assert_eq!((status, out), (1, [META, DEVICES].concat()));
    let dir = pins.path().display();
    assert_eq!(
        err,
        format!(
            "gpu_per_pid is not printed: {dir}/gpu_per_pid is a foreign map: its max_entries is 64, expected 4096 (remove it and start the bridge again, or name another pin \
             directory)\n\
             gpu_per_pid_per_device is not printed: {dir}/gpu_per_pid_per_device is a directory, not a pinned BPF map: remove it and start \
             the bridge again\n"
        )
    );
}

#[test]
fn without_any_map_only_reasons_are_printed() {
    let pins = PinDir::empty();
    let missing = pins.pin("missing");
    let plain = tempfile::tempdir().unwrap();
    for dir in [pins.path(), &missing, plain.path()] {
        let (status, out, err) = run(program(dir));
        assert_eq!((status, out.as_str()), (1, ""));
        let named: Vec<_> = err.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(named, ["gpu_meta", "gpu_device", "gpu_per_pid", "gpu_per_pid_per_device"]);
        assert!(err.lines().all(|line| line.contains(&dir.display().to_string())), "{err}");
    }
}

#[test]
fn invented_data_is_called_so_on_standard_error() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let out = [META, DEVICES, PROCESSES, PROCESS_DEVICES].concat();
    publish_state(&maps, 2);
    let mock = "this data is invented: it comes from the bridge's mock source\n";
    assert_eq!(run(program(pins.path())), (0, out.clone(), mock.to_owned()));
    publish_state(&maps, 3);
    let fallback = "this data is invented: the bridge could not open a real source and fell back to its mock one (its log says why)\n";
    assert_eq!(run(program(pins.path())), (0, out.clone(), fallback.to_owned()));

    put(&maps.state, 0u32, GpuBridgeState { version: 9, ..Default::default() });
    let unknown = "cannot tell whether this data is invented: cannot interpret gpu_bridge_state: its version is 9, this program knows 1 (use one that came with the bridge)\n";
    assert_eq!(run(program(pins.path())), (0, out, unknown.to_owned()));
}

#[test]
fn records_of_another_schema_are_not_printed_as_if_they_were_of_this_one() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let meta = GpuMeta { schema_version: 2, last_update_boottime_ns: 1, helper_pid: 7, ..Default::default() };
    put(&maps.meta, 0u32, meta);
    let (status, out, err) = run(program(pins.path()));
    assert_eq!((status, out.as_str()), (1, ""));
    let line = |map| {
        format!(
            "{map} is not printed: cannot interpret {map}: its version is 2, this program knows 1 (use one that came with the bridge)\n"
        )
    };
    assert_eq!(err, ["gpu_meta", "gpu_device", "gpu_per_pid", "gpu_per_pid_per_device"].map(line).concat());
}

/// Fills the per-process maps, so that the output is larger than a pipe holds.
fn fill(maps: &Maps, timestamp_ns: u64) {
    let pids: Vec<u32> = (1..=3000).collect();
    let keys: Vec<_> = pids.iter().map(|&pid| PidDeviceKey::new(pid, 3)).collect();
    put_all(&maps.per_pid, &pids, &[GpuPidMetricsAggregated { timestamp_ns, ..Default::default() }; 3000]);
    put_all(&maps.per_pid_per_device, &keys, &[GpuPidMetrics { timestamp_ns, ..Default::default() }; 3000]);
}

#[test]
fn a_reader_that_closes_the_output_ends_the_dump_quietly() {
    let (pins, maps) = PinDir::full();
    fill(&maps, 1);
    let mut child = program(pins.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!((status.code(), text(&stderr)), (Some(0), ""));
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let mut command = program(pins.path());
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let (status, _, err) = run(command);
    assert_eq!(status, 1);
    assert_eq!(err, "bridge-dump: cannot write to standard output: No space left on device (os error 28)\n");
}

#[test]
fn a_closed_standard_error_loses_the_notes_and_nothing_else() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    pins.remove("gpu_meta");
    let mut command = program(pins.path());
    command.stderr(File::options().write(true).open("/dev/full").unwrap());
    let (status, out, _) = run(command);
    assert_eq!((status, out), (1, [DEVICES, PROCESSES, PROCESS_DEVICES].concat()));
}

#[test]
fn garbage_in_every_map_is_printed() {
    let (pins, maps) = PinDir::full();
    let ones = [u8::MAX; 4096];
    put(&maps.meta, 0u32, GpuMeta { schema_version: 1, ..GpuMeta::from_bytes(&ones[..32]).unwrap() });
    for index in 0..16u32 {
        put(&maps.device, index, GpuDeviceMetrics::from_bytes(&ones[..128]).unwrap());
    }
    put(&maps.per_pid, u32::MAX, GpuPidMetricsAggregated::from_bytes(&ones[..32]).unwrap());
    put(&maps.per_pid_per_device, u64::MAX, GpuPidMetrics::from_bytes(&ones[..40]).unwrap());
    put(&maps.state, 0u32, GpuBridgeState { version: 1, ..GpuBridgeState::from_bytes(&ones[..size_of::<GpuBridgeState>()]).unwrap() });
    let (status, out, err) = run(program(pins.path()));
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(out.matches("  [device ").count(), 16);
    assert!(out.contains("  [pid 4294967295 dev 4294967295] {TimestampNs:18446744073709551615 "), "{out}");
    assert!(out.contains("ClockOffsetNs:-1}\n"), "{out}");
}

#[test]
fn a_dump_beside_a_busy_bridge_is_whole() {
    let (pins, maps) = PinDir::full();
    publish_state(&maps, 1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (filled, wait_filled) = mpsc::channel();
        let (maps, done) = (&maps, &done);
        scope.spawn(move || {
            bind_to_one_cpu();
            fill(maps, 1);
            filled.send(()).unwrap();
            for timestamp_ns in 2.. {
                fill(maps, timestamp_ns);
                put(&maps.device, 0u32, GpuDeviceMetrics { timestamp_ns, ..Default::default() });
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _done = SetOnDrop(done);
        wait_filled.recv().unwrap();
        for _ in 0..20 {
            let (status, out, err) = run(program(pins.path()));
            assert_eq!((status, err.as_str()), (0, ""));
            let processes = |line: &&str| line.starts_with("  [pid ");
            assert_eq!(out.lines().filter(processes).count(), 6000, "each of the 3000 processes once in each of both maps");
            assert!(out.starts_with("# gpu_meta\n") && out.ends_with("}\n\n"));
            assert_eq!(out.matches("\n\n").count(), 4, "a blank line after each section");
        }
    });
}

/// The program as a user without any privilege, from a place that he may read.
fn as_nobody(directory: &Path, dir: &Path) -> Command {
    const NOBODY: u32 = 65534;
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    let copy = directory.join("bridge-dump");
    // By another process: a child that another test forks meanwhile would hold a file that this one writes, and it could not be run.
    assert!(Command::new("cp").arg(PROGRAM).arg(&copy).status().unwrap().success());
    let mut command = Command::new(copy);
    // std also drops the supplementary groups; capabilities go with the change of the user.
    command.arg("--pin-dir").arg(dir).current_dir("/").uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn a_user_who_may_only_read_the_pins_can_dump_them() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    for MapDefinition { name, .. } in MAPS {
        fs::set_permissions(pins.pin(name), Permissions::from_mode(0o644)).unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    let expected = (0, [META, DEVICES, PROCESSES, PROCESS_DEVICES].concat(), String::new());
    assert_eq!(run(as_nobody(place.path(), pins.path())), expected);
}

#[test]
fn a_user_who_may_not_read_a_pin_is_told_so() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    for MapDefinition { name, .. } in MAPS {
        fs::set_permissions(pins.pin(name), Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(pins.pin("gpu_device"), Permissions::from_mode(0o600)).unwrap();
    let place = tempfile::tempdir().unwrap();
    let (status, out, err) = run(as_nobody(place.path(), pins.path()));
    assert_eq!((status, out), (1, [META, PROCESSES, PROCESS_DEVICES].concat()));
    assert!(err.starts_with("gpu_device is not printed: not allowed to read ") && err.contains("the mode of the pin"), "{err}");
    assert_eq!(err.lines().count(), 1);

    fs::set_permissions(pins.path(), Permissions::from_mode(0o700)).unwrap();
    let (status, out, err) = run(as_nobody(place.path(), pins.path()));
    assert_eq!((status, out.as_str()), (1, ""));
    assert_eq!(err.matches("is not printed: not allowed to read ").count(), 4, "{err}");
}

#[track_caller]
fn check_usage(arguments: &[&str], status: i32, out: &str, err: &str) {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    let found = run(command);
    assert_eq!(found.0, status, "{found:?}");
    assert!(found.1.contains(out) && found.1.is_empty() == out.is_empty(), "{found:?}");
    assert!(found.2.contains(err) && found.2.is_empty() == err.is_empty(), "{found:?}");
}

#[test]
fn help_and_version_are_given_and_wrong_usage_refused() {
    check_usage(&["--help"], 0, "--pin-dir <DIR>", "");
    check_usage(&["-h"], 0, "[default: /sys/fs/bpf]", "");
    check_usage(&["--version"], 0, concat!("bridge-dump ", env!("CARGO_PKG_VERSION"), "\n"), "");
    check_usage(&["--pin-dir"], 2, "", "--pin-dir");
    check_usage(&["--colour"], 2, "", "--colour");
    check_usage(&["/sys/fs/bpf"], 2, "", "/sys/fs/bpf");
}

#[test]
fn of_two_pin_directories_the_last_is_taken() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let mut command = Command::new(PROGRAM);
    command.arg("--pin-dir=/nowhere").arg(format!("--pin-dir={}", pins.path().display()));
    assert_eq!(run(command).0, 0);
}
