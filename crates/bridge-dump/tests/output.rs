//! JSON, tables, filters and rounds as they come, from real maps.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gpu_types::bytes::Record;
use gpu_types::keys::PidDeviceKey;
use gpu_types::maps::{DEVICE, MAPS, META, PER_PID, PER_PID_PER_DEVICE, STATE};
use gpu_types::{GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::boottime_now_ns;
use serde_json::{Value, json};

#[path = "../../map-reader/tests/support/mod.rs"]
mod maps;
#[path = "support/mod.rs"]
mod schema;
use maps::{Maps, PinDir, put};
use schema::{assert_valid, is_valid};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bridge-dump");
const BRIDGE: u32 = 77;
const OFFSET_NS: i64 = 1_700_000_000_000_000_000;
const WAIT: Duration = Duration::from_secs(20);

fn published_schema() -> Value {
    serde_json::from_str(include_str!("../schema/dump.schema.json")).unwrap()
}

fn program(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--pin-dir").arg(dir).args(arguments);
    command
}

#[track_caller]
fn run(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = program(dir, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A valid document and the exit status.
#[track_caller]
fn document(dir: &Path, arguments: &[&str]) -> (i32, Value) {
    let (status, out, _) = run(dir, &[&["--output=json"], arguments].concat());
    let document = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    assert_valid(&published_schema(), &document);
    (status, document)
}

fn text(bytes: &mut [u8], text: &str) {
    bytes[..text.len()].copy_from_slice(text.as_bytes());
}

fn write_meta(maps: &Maps, stamp_ns: u64) {
    let meta = GpuMeta {
        schema_version: 1,
        n_devices: 2,
        last_update_boottime_ns: stamp_ns,
        helper_pid: BRIDGE,
        clock_offset_ns: OFFSET_NS,
        ..Default::default()
    };
    put(&maps.meta, 0u32, meta);
}

/// Two devices, the second of which does not report its fan, NVLink, and why it is slowed; three processes, one without a sample.
fn publish(maps: &Maps) {
    let now = boottime_now_ns().unwrap();
    let sampled = OFFSET_NS as u64 + now;
    let device = GpuDeviceMetrics {
        timestamp_ns: sampled,
        sm_util_pct: 71,
        mem_total: 85_899_345_920,
        mem_used: 12_884_901_889,
        temp_c: 64,
        power_mw: 412_345,
        throttle_reasons: 0x24 | 1 << 40,
        pcie_tx_kbps: 1_234_567,
        ecc_corrected_total: u64::MAX,
        fan_speed_pct: 30,
        compute_mode: 3,
        ..Default::default()
    };
    put(&maps.device, 0u32, device);
    put(&maps.device, 1u32, GpuDeviceMetrics { throttle_reasons: 0, fan_speed_pct: 0, compute_mode: 9, ..device });
    let mut state = GpuBridgeState {
        version: 1,
        phase: 1,
        source: 1,
        n_devices: 2,
        helper_pid: BRIDGE,
        poll_interval_ns: 20_000_000,
        rounds: 7,
        ..Default::default()
    };
    text(&mut state.driver_version, "580.105.08");
    for (index, present) in [(0, u64::MAX), (1, !(1 << 10 | 1 << 15 | 1 << 16 | 1 << 19))] {
        let device = &mut state.devices[index];
        text(&mut device.name, "NVIDIA H100 80GB HBM3");
        text(&mut device.uuid, &format!("GPU-{index}"));
        (device.phase, device.vendor_id, device.metrics_present) = (1, 0x10de, present);
    }
    put(&maps.state, 0u32, state);
    for (pid, devices, timestamp_ns) in [(1001u32, &[0u32][..], sampled), (1002, &[0, 1], sampled), (1003, &[1], 0)] {
        let count = devices.len() as u8;
        let record = GpuPidMetricsAggregated {
            timestamp_ns,
            used_gpu_memory_total: 1 << 30,
            sm_util_pct_max: 38,
            gpu_device_primary: if count == 1 { devices[0] as u8 } else { 0xFF },
            device_count: count,
            ..Default::default()
        };
        put(&maps.per_pid, pid, record);
        for &index in devices {
            let record = GpuPidMetrics { timestamp_ns, used_gpu_memory: 1 << 29, gpu_device: index as u8, ..Default::default() };
            put(&maps.per_pid_per_device, PidDeviceKey::new(pid, index), record);
        }
    }
    write_meta(maps, now);
}

#[test]
fn a_document_has_exact_numbers_words_for_codes_and_null_for_what_is_not_known() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let (status, document) = document(pins.path(), &[]);
    assert_eq!(status, 0);
    assert_eq!(document["format"], 1);
    assert_eq!(document["consistency"], "verified");
    assert_eq!(document["freshness"]["state"], "fresh");
    assert_eq!(document["errors"], json!([]));
    assert_eq!(document["meta"]["clock_offset_ns"], OFFSET_NS);
    let bridge = &document["bridge"];
    assert_eq!(
        (&bridge["phase"], &bridge["source"], &bridge["invented"], &bridge["driver_version"], &bridge["bridge_version"]),
        (&json!("publishing"), &json!("real"), &json!(false), &json!("580.105.08"), &Value::Null)
    );
    let [first, second] = &document["devices"].as_array().unwrap()[..] else { panic!("two devices") };
    assert_eq!(first["ecc_corrected_total"], u64::MAX);
    assert_eq!(first["mem_used"], 12_884_901_889_u64);
    assert_eq!(first["throttle_reasons"], json!({"code": 0x24_u64 | 1 << 40, "names": ["sw_power_cap", "sw_thermal_slowdown", "bit_40"]}));
    assert_eq!(first["compute_mode"], json!({"code": 3, "name": "exclusive_process"}));
    assert_eq!((&first["uuid"], &first["pci_bus_id"], &first["state"]), (&json!("GPU-0"), &Value::Null, &json!("answering")));
    assert_eq!((&first["vendor_id"], &first["vendor"]), (&json!(0x10de), &json!("NVIDIA")));
    assert_eq!((&first["nvlink_tx_kbps"], &first["fan_speed_pct"]), (&json!(0), &json!(30)), "0 that is reported");
    for absent in ["throttle_reasons", "nvlink_tx_kbps", "nvlink_rx_kbps", "fan_speed_pct"] {
        assert_eq!(second[absent], Value::Null, "{absent} is not reported");
    }
    assert_eq!(second["compute_mode"], json!({"code": 9, "name": null}));

    let processes = document["processes"].as_array().unwrap();
    assert_eq!(processes.iter().map(|process| process["pid"].as_u64().unwrap()).collect::<Vec<_>>(), [1001, 1002, 1003]);
    assert_eq!((&processes[0]["gpu_device_primary"], &processes[0]["sm_util_pct_max"]), (&json!(0), &json!(38)));
    assert_eq!((&processes[1]["gpu_device_primary"], &processes[1]["device_count"]), (&Value::Null, &json!(2)));
    for absent in ["timestamp_ns", "sample_age_ns", "sm_util_pct_max", "mem_util_pct_max"] {
        assert_eq!(processes[2][absent], Value::Null, "{absent}: no sample yet");
    }
    assert_eq!(document["process_devices"].as_array().unwrap().len(), 4);
}

#[test]
fn the_schema_refuses_what_is_not_a_document() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let (_, document) = document(pins.path(), &[]);
    let refused = |change: fn(&mut Value)| {
        let mut changed = document.clone();
        change(&mut changed);
        assert_ne!(changed, document);
        !is_valid(&published_schema(), &changed)
    };
    assert!(refused(|document| document["format"] = json!(2)));
    assert!(refused(|document| document["surplus"] = json!(1)));
    assert!(refused(|document| drop(document.as_object_mut().unwrap().remove("errors"))));
    assert!(refused(|document| document["devices"][0]["sm_util_pct"] = json!("71")));
    assert!(refused(|document| document["devices"][1]["power_mw"] = json!(-1)));
    assert!(refused(|document| drop(document["processes"][0].as_object_mut().unwrap().remove("pid"))));
    assert!(refused(|document| document["freshness"]["state"] = json!("ripe")));
}

#[test]
fn documents_of_empty_missing_and_garbled_maps_are_valid() {
    let (pins, maps) = PinDir::full();
    let (status, empty) = document(pins.path(), &[]);
    assert_eq!((status, &empty["freshness"]["state"], &empty["bridge"]), (0, &json!("never_published"), &Value::Null));

    let ones = [u8::MAX; 8192];
    put(&maps.meta, 0u32, GpuMeta { schema_version: 1, ..GpuMeta::from_bytes(&ones[..32]).unwrap() });
    put(&maps.device, 15u32, GpuDeviceMetrics::from_bytes(&ones[..128]).unwrap());
    put(&maps.per_pid, u32::MAX, GpuPidMetricsAggregated::from_bytes(&ones[..32]).unwrap());
    put(&maps.per_pid_per_device, u64::MAX, GpuPidMetrics::from_bytes(&ones[..40]).unwrap());
    put(&maps.state, 0u32, GpuBridgeState { version: 1, ..GpuBridgeState::from_bytes(&ones[..size_of::<GpuBridgeState>()]).unwrap() });
    let (status, garbled) = document(pins.path(), &[]);
    assert_eq!((status, &garbled["devices"][0]["timestamp_ns"]), (0, &json!(u64::MAX)));
    assert_eq!(garbled["bridge"]["phase"], "unknown");
    run(pins.path(), &["--output=table"]);

    for name in MAPS.iter().map(|map| map.name) {
        pins.remove(name);
    }
    let (status, missing) = document(pins.path(), &[]);
    assert_eq!(status, 1);
    assert_eq!((&missing["meta"], &missing["devices"], &missing["freshness"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!(missing["errors"].as_array().unwrap().len(), 4);
}

#[test]
fn what_another_bridge_left_behind_says_nothing_of_this_one() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    put(&maps.state, 0u32, GpuBridgeState { version: 1, source: 2, helper_pid: BRIDGE + 1, ..Default::default() });
    let (_, document) = document(pins.path(), &[]);
    assert_eq!((&document["bridge"], &document["devices"][1]["fan_speed_pct"]), (&Value::Null, &json!(0)));
    assert_eq!(document["consistency"], "unverified");
}

#[test]
fn filters_choose_maps_devices_and_processes_in_every_form() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let (status, chosen) = document(pins.path(), &["--map=gpu_device,gpu_per_pid", "--device=1", "--pid=1002,1001"]);
    assert_eq!(status, 0);
    let members: Vec<_> =
        chosen.as_object().unwrap().keys().map(String::as_str).filter(|name| !["format", "pin_dir"].contains(name)).collect();
    assert_eq!(members, ["boottime_ns", "bridge", "consistency", "devices", "errors", "freshness", "processes"]);
    assert_eq!((&chosen["devices"][0]["index"], &chosen["devices"][1]), (&json!(1), &Value::Null));
    assert_eq!((&chosen["processes"][0]["pid"], &chosen["processes"][1]), (&json!(1002), &Value::Null));

    let (status, out, err) = run(pins.path(), &["--map=gpu_per_pid", "--pid=1003"]);
    assert_eq!((status, err.as_str()), (0, ""));
    let expected = "# gpu_per_pid\n  [pid 1003] {TimestampNs:0 UsedGpuMemoryTotal:1073741824 SmUtilPctMax:38 MemUtilPctMax:0 \
                    GpuDevicePrimary:1 DeviceCount:1 Pad:0}\n\n";
    assert_eq!(out, expected);
    pins.remove("gpu_meta");
    assert_eq!(
        run(pins.path(), &["--map=gpu_per_pid", "--pid=1003"]),
        (0, expected.to_owned(), String::new()),
        "a map that nobody asked for"
    );
}

#[test]
fn the_table_has_units_and_words() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let (status, out, err) = run(pins.path(), &["--output=table"]);
    assert_eq!((status, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("fresh (") && lines[0].ends_with(" old) · publishing · source real · every 20 ms · driver 580.105.08"),
        "{out}"
    );
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert!(lines[2].starts_with("GPU  VENDOR  NAME"), "{out}");
    let first = words(lines[3]);
    assert!(
        first.starts_with("0 NVIDIA NVIDIA H100 80GB HBM3 answering 71 % 0 % 12.0 GiB 80.0 GiB 64 °C 412 W 0 MHz 1.2 GB/s 0 kB/s 0 kB/s"),
        "{out}"
    );
    assert!(first.contains("30 % exclusive_process sw_power_cap,sw_thermal_slowdown,bit_40 "), "{out}");
    assert!(words(lines[4]).contains("1.2 GB/s 0 kB/s - - 0 - 9 - "), "{out}");
    assert_eq!(words(lines[8]).split(' ').take(7).collect::<Vec<_>>(), ["1002", "x2", "1.0", "GiB", "38", "%", "0"], "{out}");
    assert_eq!(words(lines[9]), "1003 1 1.0 GiB - - -", "{out}");
    write_meta(&maps, 1);
    assert!(run(pins.path(), &["--output=table"]).1.starts_with("STALE ("));
}

#[test]
fn a_device_of_any_vendor_shows_what_it_reports_and_nothing_that_it_does_not() {
    let (pins, maps) = PinDir::full();
    let record = GpuDeviceMetrics { timestamp_ns: 1, sm_util_pct: 0, ..Default::default() };
    let mut state = GpuBridgeState { version: 1, phase: 1, source: 1, n_devices: 4, helper_pid: BRIDGE, ..Default::default() };
    for (index, vendor_id) in [(0, 0x1002), (1, 0x8086), (2, 0x1234), (3, 0x1002)] {
        // Its utilization, which is 0, and nothing else; the last one does not answer.
        let device = &mut state.devices[index];
        (device.vendor_id, device.metrics_present, device.phase) = (vendor_id, 0b11, if index == 3 { 3 } else { 1 });
        if index != 3 {
            put(&maps.device, index as u32, record);
        }
    }
    put(&maps.state, 0u32, state);
    write_meta(&maps, boottime_now_ns().unwrap());

    let (_, document) = document(pins.path(), &[]);
    let devices = document["devices"].as_array().unwrap();
    let vendors: Vec<_> = devices.iter().map(|device| (&device["vendor"], &device["vendor_id"])).collect();
    let expected = [(json!("AMD"), json!(0x1002)), (json!("Intel"), json!(0x8086)), (Value::Null, json!(0x1234))];
    assert_eq!(vendors, expected.iter().map(|(name, id)| (name, id)).collect::<Vec<_>>());
    // Every metric of the record is told from 0.
    let known = ["index", "vendor", "vendor_id", "state", "timestamp_ns", "sample_age_ns", "sm_util_pct"];
    let null = |name: &str, value: &Value| known.contains(&name) || value.is_null();
    assert_eq!(devices[0]["sm_util_pct"], 0);
    assert!(devices[0].as_object().unwrap().iter().all(|(name, value)| null(name, value)), "{:#}", devices[0]);

    let out = run(pins.path(), &["--output=table"]).1;
    let words = |line: usize| out.lines().nth(line).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(out.lines().next().unwrap().ends_with(" · GPU 3 LOST"), "{out}");
    let row = words(3);
    assert_eq!(row[..6], ["0", "AMD", "-", "answering", "0", "%"], "{out}");
    // But the age, last.
    assert!(row[6..].split_last().is_some_and(|(_, metrics)| metrics.len() >= 14 && metrics.iter().all(|metric| metric == "-")), "{out}");
    assert_eq!((&words(4)[1], &words(5)[1]), (&"Intel".to_owned(), &"-".to_owned()), "{out}");
}

/// A running `--follow` and its lines as they come.
struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Follower {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut child = program(dir, arguments).arg("--follow").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    #[track_caller]
    fn next(&self) -> Value {
        let line = self.lines.recv_timeout(WAIT).expect("a line for the round");
        let document = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_valid(&published_schema(), &document);
        document
    }

    fn finish(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        err
    }
}

#[test]
fn each_round_is_a_line_that_comes_at_once_and_a_new_bridge_is_followed() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let follower = Follower::start(pins.path(), &["--output=json", "--map=gpu_meta,gpu_device"]);
    assert_eq!(follower.next()["devices"][0]["index"], 0);
    for _ in 0..3 {
        let stamp = boottime_now_ns().unwrap();
        write_meta(&maps, stamp);
        assert_eq!(follower.next()["meta"]["last_update_boottime_ns"], stamp);
    }
    assert!(follower.lines.recv_timeout(Duration::from_millis(300)).is_err(), "no round, no line");

    for name in MAPS.iter().map(|map| map.name) {
        pins.remove(name);
    }
    let [meta, device, per_pid, per_pid_per_device, state] =
        [META, DEVICE, PER_PID, PER_PID_PER_DEVICE, STATE].map(|definition| pins.create(&definition));
    let maps = Maps { meta, device, per_pid, per_pid_per_device, state };
    write_meta(&maps, 5);
    let document = follower.next();
    assert_eq!((&document["meta"]["last_update_boottime_ns"], &document["devices"]), (&json!(5), &json!([])));
    assert_eq!(follower.finish(), "");
}

#[test]
fn a_bridge_that_is_not_there_yet_is_waited_for_and_said_once() {
    let pins = PinDir::empty();
    let follower = Follower::start(pins.path(), &["--output=json"]);
    thread::sleep(Duration::from_millis(500));
    let [meta, device, per_pid, per_pid_per_device, state] =
        [META, DEVICE, PER_PID, PER_PID_PER_DEVICE, STATE].map(|definition| pins.create(&definition));
    publish(&Maps { meta, device, per_pid, per_pid_per_device, state });
    assert_eq!(follower.next()["freshness"]["state"], "fresh");
    let err = follower.finish();
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("waiting for a bridge: gpu_meta is not pinned in "), "{err}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_it() {
    let (pins, maps) = PinDir::full();
    publish(&maps);
    let mut child = program(pins.path(), &["--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = test_support::until(WAIT, || {
        write_meta(&maps, boottime_now_ns().unwrap());
        child.try_wait().unwrap()
    });
    assert_eq!(ended.expect("the end of the program").code(), Some(0));
}

#[test]
fn a_live_screen_needs_a_terminal() {
    let pins = PinDir::empty();
    let (status, out, err) = run(pins.path(), &["--watch"]);
    assert_eq!((status, out.as_str()), (1, ""));
    assert_eq!(err, "bridge-dump: --watch needs a terminal; for a pipe or a file there is --follow\n");
}
