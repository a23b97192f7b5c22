//! Life of the library: initialization, bad arguments, changes of the scenario, versions.

use std::{ffi::c_uint, process::Command, ptr};

use libloading::Library;
use nvml_sim::{
    abi::{nvmlDevice_t, nvmlMemory_v2, nvmlMemory_v2_t, nvmlReturn_t, nvmlTemperature_v1_t, nvmlUtilization_t},
    library,
    scenario::{Code, Device, Scenario},
};

use crate::nvml::{Nvml, check, wait_for};

#[test]
fn nothing_answers_before_initialization_and_after_shutdown() {
    let nvml = Nvml::load(&Scenario::new().device(Device::a100()));
    assert_eq!(nvml.try_device(0), Err(Code::UNINITIALIZED));
    assert_eq!(nvml.call0("nvmlShutdown"), Code::UNINITIALIZED);
    assert_eq!(nvml.call0("nvmlInit_v2"), Code::SUCCESS);
    assert_eq!(nvml.call0("nvmlInit_v2"), Code::SUCCESS);
    let device = nvml.device(0);
    assert_eq!(nvml.call0("nvmlShutdown"), Code::SUCCESS);
    assert!(nvml.power(device).is_ok(), "initialized twice, shut down once");
    assert_eq!(nvml.call0("nvmlShutdown"), Code::SUCCESS);
    assert_eq!(nvml.power(device), Err(Code::UNINITIALIZED));
}

#[test]
fn null_and_foreign_pointers_are_invalid_arguments() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100()));
    let device = nvml.device(0);
    type Get = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t;
    for symbol in ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetIndex", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetCurrPcieLinkWidth"] {
        // SAFETY: null is what is tested.
        assert_eq!(unsafe { nvml.function::<Get>(symbol)(device, ptr::null_mut()) }, Code::INVALID_ARGUMENT, "{symbol}");
    }
    let foreign = [
        nvmlDevice_t(ptr::null_mut()),
        nvmlDevice_t(ptr::without_provenance_mut(8)),
        nvmlDevice_t(ptr::without_provenance_mut(usize::MAX)),
    ];
    for foreign in foreign {
        assert_eq!(nvml.power(foreign), Err(Code::INVALID_ARGUMENT));
    }
    assert_eq!(nvml.list::<u8>("nvmlDeviceGetComputeRunningProcesses_v3", device, &mut [], 0).0, Code::SUCCESS);
    assert_eq!(nvml.text("nvmlDeviceGetName", device, 5), Err(Code::INSUFFICIENT_SIZE));
    assert_eq!(nvml.try_device(1), Err(Code::INVALID_ARGUMENT));
}

#[test]
fn wrong_version_words_are_refused_as_seen() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100()));
    let device = nvml.device(0);
    assert_eq!(nvml.get::<nvmlMemory_v2_t>("nvmlDeviceGetMemoryInfo_v2", device).unwrap_err(), Code::FUNCTION_NOT_FOUND);
    assert_eq!(nvml.get::<nvmlTemperature_v1_t>("nvmlDeviceGetTemperatureV", device).unwrap_err(), Code::ARGUMENT_VERSION_MISMATCH);
    let function = nvml.function::<unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_v2_t) -> nvmlReturn_t>("nvmlDeviceGetMemoryInfo_v2");
    let mut memory = nvmlMemory_v2_t { version: nvmlMemory_v2, ..nvmlMemory_v2_t::default() };
    // SAFETY: the place is valid for the call.
    assert_eq!(unsafe { function(device, &raw mut memory) }, Code::SUCCESS);
    assert_eq!((memory.total, memory.reserved), (40_960 << 20, 518 << 20));
}

#[test]
fn the_older_pci_call_leaves_the_younger_member_alone() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100()));
    for (symbol, written) in [("nvmlDeviceGetPciInfo_v2", 36), ("nvmlDeviceGetPciInfo_v3", 68)] {
        let function = nvml.function::<unsafe extern "C" fn(nvmlDevice_t, *mut u8) -> nvmlReturn_t>(symbol);
        let mut bytes = [0xee_u8; 80];
        // SAFETY: the struct has 68 bytes.
        assert_eq!(unsafe { function(nvml.device(0), bytes.as_mut_ptr()) }, Code::SUCCESS);
        assert_eq!(&bytes[..12], b"0000:01:00.0");
        assert!(bytes[..written].iter().all(|byte| *byte != 0xee) && bytes[written..].iter().all(|byte| *byte == 0xee), "{symbol}");
    }
}

#[test]
fn a_name_in_broken_utf8_comes_as_it_is() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100().name(&b"\xf8RTX"[..])));
    assert_eq!(nvml.text("nvmlDeviceGetName", nvml.device(0), 96).unwrap(), b"\xf8RTX");
}

#[test]
fn each_change_of_the_scenario_is_taken_up() {
    let mut scenario = Scenario::new().device(Device::a100().power_mw(10_000));
    let nvml = Nvml::start(&scenario);
    let device = nvml.device(0);
    for power_mw in 10_001..10_050 {
        // Files of the same size, written within one tick of the file system's clock.
        scenario.change(0, |device| device.power_mw(power_mw));
        nvml.installed.play(&scenario).unwrap();
        wait_for("the new figure", || nvml.power(device) == Ok(power_mw));
    }
    assert_eq!(nvml.installed.stats().unwrap().scenarios_read(), 50);
}

#[test]
fn a_bad_scenario_leaves_the_last_good_one_in_use() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100().power_mw(7)));
    let device = nvml.device(0);
    std::fs::write(nvml.installed.scenario_path(), r#"{"devices": [{"nonsense": 1}]}"#).unwrap();
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(nvml.power(device), Ok(7));
    }
    nvml.installed.play(&Scenario::new().device(Device::a100().power_mw(8))).unwrap();
    wait_for("the good scenario", || nvml.power(device) == Ok(8));
}

#[test]
fn a_device_that_is_no_longer_there_is_lost() {
    let nvml = Nvml::start(&Scenario::new().devices(2, Device::a100()));
    let second = nvml.device(1);
    nvml.installed.play(&Scenario::new().device(Device::a100())).unwrap();
    wait_for("the loss", || nvml.power(second) == Err(Code::GPU_IS_LOST));
    assert!(nvml.power(nvml.device(0)).is_ok());
}

#[test]
fn a_library_without_a_scenario_says_so_and_fails() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(directory.path(), &[]).unwrap();
    let program = format!("import ctypes, sys; sys.exit(ctypes.CDLL({:?}).nvmlInit_v2() != 999)", installed.path());
    let output = Command::new("python3").args(["-c", &program]).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot read scenario") && said.contains("scenario.json"), "{said}");
}

#[test]
fn variables_name_the_scenario_and_the_account() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(&directory.path().join("lib"), &[]).unwrap();
    let [scenario, account] = ["other.json", "other.stats"].map(|name| directory.path().join(name));
    Scenario::new().devices(3, Device::t4()).write(&scenario).unwrap();
    let program = format!(
        "import ctypes, sys; l = ctypes.CDLL({:?}); n = ctypes.c_uint(); l.nvmlInit_v2(); l.nvmlDeviceGetCount_v2(ctypes.byref(n)); sys.exit(n.value)",
        installed.path()
    );
    let status = Command::new("python3")
        .args(["-c", &program])
        .env(nvml_sim::SCENARIO_VARIABLE, &scenario)
        .env(nvml_sim::STATS_VARIABLE, &account)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!(nvml_sim::stats::Stats::read(&account).unwrap().calls("nvmlDeviceGetCount_v2"), 1);
    assert!(!installed.stats_path().exists());
}

#[test]
fn an_old_library_does_not_get_on_with_a_new_driver() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install_version(directory.path(), "570.1", &[]).unwrap();
    let device = Device::a100();
    installed.play(&Scenario::new().driver("570.1").device(device.clone())).unwrap();
    let open = || {
        // SAFETY: the library's initialization does nothing.
        unsafe { Library::new(installed.path()) }.unwrap()
    };
    let init = |library: &Library| {
        // SAFETY: a function without parameters.
        check(unsafe { library.get::<unsafe extern "C" fn() -> nvmlReturn_t>(b"nvmlInit_v2").unwrap()() })
    };
    let old = open();
    assert_eq!(init(&old), Ok(()));
    installed.play(&Scenario::new().driver("580.1").device(device)).unwrap();
    library::install_version(directory.path(), "580.1", &[]).unwrap();
    wait_for("the mismatch", || init(&old) == Err(Code::LIB_RM_VERSION_MISMATCH));
    old.close().unwrap();
    assert_eq!(init(&open()), Ok(()));
}

#[test]
fn many_threads_call_while_the_scenario_changes() {
    const CALLS: u64 = 2_000;
    let scenario = |power_mw: u32| Scenario::new().devices(4, Device::a100().power_mw(power_mw).utilization(power_mw, power_mw));
    let nvml = Nvml::start(&scenario(1));
    let before = nvml.installed.stats().unwrap();
    std::thread::scope(|scope| {
        for index in 0..4 {
            let nvml = &nvml;
            scope.spawn(move || {
                let device = nvml.device(index);
                for _ in 0..CALLS {
                    assert!(nvml.power(device).unwrap() > 0);
                    let rates = nvml.get::<nvmlUtilization_t>("nvmlDeviceGetUtilizationRates", device).unwrap();
                    assert_eq!(rates.gpu, rates.memory, "from one scenario");
                }
            });
        }
        for power_mw in 2..40 {
            nvml.installed.play(&scenario(power_mw)).unwrap();
        }
    });
    let counted = nvml.installed.stats().unwrap().since(&before);
    assert_eq!(counted.calls("nvmlDeviceGetPowerUsage"), 4 * CALLS);
    assert_eq!(counted.on("nvmlDeviceGetUtilizationRates", 3).returns, CALLS);
    assert_eq!(counted.total().calls, 4 * (2 * CALLS + 1));
}
