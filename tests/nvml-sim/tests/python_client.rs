//! NVIDIA's own Python client reads from the simulated library what the scenario says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::process::Command;

use nvml_sim::{
    abi, library, nvidia,
    scenario::{
        Answer, Clocks, Code, Counter, Device, Ecc, FieldValue, Link, List, Load, Memory, MigInstance, NvLinks, Pci, Pcie, Process,
        ProcessUtilization, Sample, SampleBuffer, Scenario,
    },
};
use serde_json::{Value, json};

const NOT_SUPPORTED: u32 = abi::NVML_ERROR_NOT_SUPPORTED;

/// A device on which every figure is different.
fn full() -> Device {
    let link = |tx: u64, rx: u64| Link { active: true, tx: Counter::fixed(tx << 10), rx: Counter::fixed(rx << 10) };
    let pcie = Pcie {
        generation: 3.into(),
        width: 8.into(),
        max_generation: 5.into(),
        max_width: 16.into(),
        tx_kbps: 1_234.into(),
        rx_kbps: 5_678.into(),
        tx_bytes: Counter::fixed((1 << 40) + 1).into(),
        rx_bytes: Counter::fixed(2).into(),
        counter_bits: 64,
    };
    let mut device = Device::default()
        .name("NVIDIA Test ½")
        .uuid("GPU-1")
        .pci(Pci { domain: 1, bus: 0x3b, device: 2, device_id: 0x20b0_10de, subsystem_id: 0x134f_10de })
        .utilization(11, 12)
        .memory(1_000, 300, 100)
        .temperature_c(-3)
        .power_mw(13)
        .energy_mj(1 << 50)
        .clocks(Clocks { graphics: 14.into(), sm: 15.into(), mem: 16.into(), video: 17.into() })
        .max_clocks(Clocks { graphics: 24.into(), sm: 25.into(), mem: 26.into(), video: Answer::error(Code::UNKNOWN) })
        .event_reasons(0x8000_0000_0000_0001)
        .pcie(pcie)
        .encoder(18)
        .decoder(19)
        .ecc(Ecc { enabled: true, corrected: 20, uncorrected: 21 })
        .fans(vec![122, 31])
        .compute_mode(abi::NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        .persistence_mode(true)
        .nvlinks(NvLinks { version: 7, links: vec![link(40, 50), link(60, 70)], byte_counters: true, ..NvLinks::default() })
        .samples(abi::NVML_GPU_UTILIZATION_SAMPLES, SampleBuffer::given(vec![(1_000, 5), (2_000, 6), (3_000, 7)]))
        .samples(abi::NVML_MEMORY_UTILIZATION_SAMPLES, SampleBuffer::given(vec![]))
        .field(300, FieldValue::SignedInt(-7))
        .field(301, FieldValue::UnsignedShort(9))
        .process_utilization(ProcessUtilization { capacity: 72, ..ProcessUtilization::default() })
        .process(Process::compute(101, 1_001).sampled_at(vec![Sample::new(4_000, Load::all(1, 2, 3, 4))]))
        .process(Process::compute(102, 1_002).in_lists(&[List::Compute, List::Graphics]).memory_not_available())
        .process(Process::mps(103, 1_003).sampled_at(vec![Sample::new(8_000, Load::new(5, 6))]));
    device.average_power_mw = 22.into();
    device
}

fn mig() -> Device {
    let instance = |index: u32, gpu_instance| MigInstance {
        index,
        gpu_instance,
        compute_instance: 0,
        uuid: format!("MIG-{index}").into(),
        name: "1g.5gb".into(),
        memory: Memory { total: 500, used: 50, reserved: 5 }.into(),
        lists: None,
    };
    Device::default()
        .with_mig(vec![instance(0, 9), instance(2, 11)])
        .process(Process::compute(201, 7).in_instance(9, 0))
        .process(Process::compute(202, 8).in_instance(11, 0))
        .lists_answer(Code::NO_PERMISSION)
}

fn read(scenario: &Scenario) -> Value {
    let files = nvidia::fetch(&nvidia::target_directory().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(directory.path(), &[]).unwrap();
    installed.play(scenario).unwrap();
    let output = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client.py"))
        .arg(installed.path())
        .env("PYTHONPATH", &files.python_path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 must be installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let asked = installed.stats().unwrap();
    assert!(asked.calls("nvmlDeviceGetFieldValues") >= scenario.devices.len() as u64 && asked.in_flight() == 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn check(answers: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(answers[name], *value, "{name}");
    }
}

#[test]
fn nvidias_client_reads_every_value_of_the_scenario() {
    let scenario = Scenario::new().driver("999.1").device(full()).device(Device::default().name("bare")).device(mig());
    let result = read(&scenario);
    check(
        &result,
        &json!({
            "driver": "999.1", "nvml": "13.999.1", "cuda": [13_000, 13_000],
            "strings": ["Success", "Not Supported", "GPU is lost", "Unknown Error"],
            "by_uuid": [0, 1, 2], "by_bus_id": [0, 1, 2], "beyond": {"error": 2}, "after_shutdown": 1,
        }),
    );
    check_full(&result["devices"][0]);
    check_bare(&result["devices"][1]);
    check_mig(&result);
}

fn check_full(device: &Value) {
    check(
        device,
        &json!({
            "name": "NVIDIA Test ½", "uuid": "GPU-1", "index": 0, "minor": 0,
            "utilization": {"gpu": 11, "memory": 12},
            "memory": {"total": 1_000, "free": 600, "used": 400},
            "memory_v2": {"version": abi::nvmlMemory_v2, "total": 1_000, "reserved": 100, "free": 600, "used": 300},
            "temperature": 4_294_967_293_u32, "temperature_v": -3, "power": 13, "energy": 1_u64 << 50,
            "clocks": [14, 15, 16, 17], "clocks_by_id": [14, 15, 16, 17], "max_clocks": [24, 25, 26, {"error": 999}],
            "event_reasons": 0x8000_0000_0000_0001_u64, "throttle_reasons": 0x8000_0000_0000_0001_u64,
            "pcie": [1_234, 5_678], "link": [3, 8, 5, 16], "encoder": [18, 167_000], "decoder": [19, 167_000],
            "ecc": [20, 21, 1_020, 1_021], "ecc_mode": [1, 1], "fans": 2, "fan": 122, "fan_1": 31,
            "compute_mode": 3, "persistence_mode": 1,
            "nvlink": [[1, 7], [1, 7], [{"error": 3}, {"error": 3}], [{"error": 2}, {"error": 2}]],
            "mig_mode": {"error": 3}, "mig_count": 0, "is_mig": 0, "gpu_instance": {"error": 3}, "compute_instance": {"error": 3},
        }),
    );
    check(
        &device["pci"],
        &json!({
            "busId": "00000001:3B:02.0", "busIdLegacy": "0001:3B:02.0", "domain": 1, "bus": 0x3b, "device": 2,
            "pciDeviceId": 0x20b0_10de, "pciSubSystemId": 0x134f_10de,
        }),
    );
    let sample = |time: u64, value: u64| json!({"timeStamp": time, "sampleValue": value});
    assert_eq!(device["samples"][0], json!([1, [sample(1_000, 5), sample(2_000, 6), sample(3_000, 7)]]));
    assert_eq!((&device["samples"][1], &device["samples"][2]), (&json!({"error": 6}), &json!({"error": 3})));
    assert_eq!(device["samples_after"], json!([1, [sample(3_000, 7)]]));
    check_processes(device);
    let int = |value: i32| u64::from(value.cast_unsigned());
    assert_eq!(
        device["fields"],
        json!([
            [83, 0, 3, 0, 1_u64 << 50, true],
            [91, 0, 1, 0, 2, true],
            [138, 0, 3, 0, 40, true],
            [138, 1, 3, 0, 60, true],
            [138, u32::MAX, 3, 0, 100, true],
            [139, u32::MAX, 3, 0, 120, true],
            [185, 0, 1, 0, 22, true],
            [186, 0, 1, 0, 13, true],
            [197, 0, 3, 0, (1_u64 << 40) + 1, true],
            [198, 0, 3, 0, 2, true],
            [202, 1, 3, 0, 60 << 10, true],
            [204, 0, 3, 0, 50 << 10, true],
            [300, 0, 5, 0, int(-7), true],
            [301, 0, 6, 0, 9, true],
            [302, 0, 0, NOT_SUPPORTED, 0, true],
        ])
    );
}

fn check_processes(device: &Value) {
    let none = u32::MAX;
    let listed =
        |pid: u32, memory: Option<u64>| json!({"pid": pid, "usedGpuMemory": memory, "gpuInstanceId": none, "computeInstanceId": none});
    assert_eq!(device["compute"], json!([listed(101, Some(1_001)), listed(102, None)]));
    assert_eq!(device["graphics"], json!([listed(102, None)]));
    assert_eq!(device["mps"], json!([listed(103, Some(1_003))]));
    let pids = |mode: usize| device["details"][mode].as_array().unwrap().iter().map(|row| row["pid"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!([pids(0), pids(1), pids(2), pids(3)], [vec![101, 102], vec![102], vec![103], vec![101, 102, 103]]);
    let memory = |row: usize| device["details"][3][row]["usedGpuMemory"].as_u64().unwrap();
    assert_eq!([memory(1), memory(2)], [u64::MAX, 1_003]);

    let row = |pid: u32, time: u64, load: [u32; 4]| json!({"pid": pid, "timeStamp": time, "smUtil": load[0], "memUtil": load[1], "encUtil": load[2], "decUtil": load[3]});
    assert_eq!(device["processes"], json!([row(101, 4_000, [1, 2, 3, 4]), row(103, 8_000, [5, 6, 0, 0])]));
    assert_eq!(device["processes_after"], json!([row(103, 8_000, [5, 6, 0, 0])]));
    assert_eq!(device["processes_none"], json!({"error": 6}));
    check(&device["all_processes"][0], &row(101, 4_000, [1, 2, 3, 4]));
    check(&device["all_processes"][1], &row(103, 8_000, [5, 6, 0, 0]));
}

fn check_bare(device: &Value) {
    let no = json!({"error": NOT_SUPPORTED});
    for metric in [
        "utilization",
        "memory",
        "memory_v2",
        "temperature",
        "temperature_v",
        "power",
        "energy",
        "event_reasons",
        "throttle_reasons",
        "encoder",
        "decoder",
        "ecc_mode",
        "fan",
        "fan_1",
        "compute_mode",
        "persistence_mode",
        "processes",
        "all_processes",
        "mig_mode",
    ] {
        assert_eq!(device[metric], no, "{metric}");
    }
    check(device, &json!({"name": "bare", "index": 1, "fans": 0, "compute": [], "graphics": [], "mps": []}));
    let fields = device["fields"].as_array().unwrap();
    assert!(fields.iter().all(|field| field[3] == NOT_SUPPORTED), "{fields:?}");
}

fn check_mig(result: &Value) {
    let parent = &result["devices"][2];
    check(parent, &json!({"mig_mode": [1, 1], "mig_count": 7, "is_mig": 0, "compute": {"error": 4}, "utilization": {"error": 3}}));
    let instances = &result["instances"][2];
    let [first, second] = [&instances[0], &instances[2]];
    assert_eq!((&first["parent"], &second["parent"]), (&json!(2), &json!(2)));
    let listed = |pid: u32, memory: u64, gpu_instance: u32| json!([{"pid": pid, "usedGpuMemory": memory, "gpuInstanceId": gpu_instance, "computeInstanceId": 0}]);
    check(
        &first["device"],
        &json!({
            "uuid": "MIG-0", "name": "1g.5gb", "is_mig": 1, "gpu_instance": 9, "compute_instance": 0, "compute": listed(201, 7, 9),
            "memory": {"total": 500, "free": 445, "used": 55}, "temperature": {"error": 3},
        }),
    );
    check(&second["device"], &json!({"uuid": "MIG-2", "gpu_instance": 11, "compute": listed(202, 8, 11)}));
    assert_eq!((&instances[1], &instances[7]), (&json!({"error": 6}), &json!({"error": 2})));
    assert_eq!(result["instances"][0][0], json!({"error": 3}));
}
