//! Opening: what is found, what is left out, and what an error says.

use std::{fs, os::unix::fs::symlink, time::Duration};

use nvml_sim::{
    library,
    scenario::{Board, Code, Device, Pci, Scenario},
};
use telemetry::{Answer, DeviceError, Identity, OpenError, TelemetrySource};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};
use tempfile::TempDir;

use crate::machine::{Gpu, Machine};

#[test]
fn devices_are_handed_out_with_their_identity() {
    let t4 = Device::t4().uuid("GPU-1").pci(Pci { bus: 0x3b, device_id: 0x1eb8_10de, ..Pci::default() });
    let machine = Machine::new(&Scenario::new().driver("580.105.08").device(t4).device(Board::H100));
    let source = machine.open();
    assert_eq!(source.info.name, "nvml");
    assert_eq!(source.info.driver_version.as_deref(), Some("580.105.08"));
    assert_eq!(source.info.library.as_deref(), machine.nvml.path().to_str());
    let expected =
        Identity { index: 0, uuid: "GPU-1".into(), pci_bus_id: "00000000:3B:00.0".into(), name: "Tesla T4".into(), vendor_id: 0x10de };
    assert_eq!(*source.devices[0].identity(), expected);
    assert_eq!(source.devices[1].identity().name, "NVIDIA H100 80GB HBM3");
    assert_eq!(source.devices.len(), 2);
}

#[test]
fn a_name_in_broken_utf8_is_shown_lossily() {
    let machine = Machine::new(&Scenario::new().device(Device::t4().name(&b"\xf8RTX 4090"[..])));
    assert_eq!(machine.open().devices[0].identity().name, "\u{fffd}RTX 4090");
}

#[test]
fn a_device_without_identity_is_kept() {
    let board = Device::t4().fails("nvmlDeviceGetUUID", Code::NOT_SUPPORTED).fails("nvmlDeviceGetName", Code::UNKNOWN);
    let mut gpu = Machine::new(&Scenario::new().device(board)).gpu(0);
    assert_eq!((gpu.device.identity().uuid.as_str(), gpu.device.identity().name.as_str()), ("", ""));
    assert_eq!(gpu.read("sensors").metrics.temp_c, Some(33));
}

#[test]
fn more_devices_than_the_maps_have_slots_for_are_the_bridge_s_business() {
    let source = Machine::new(&Scenario::new().devices(18, Board::T4)).open();
    let indices: Vec<_> = source.devices.iter().map(|device| device.identity().index).collect();
    assert_eq!(indices, (0..18).collect::<Vec<_>>());
}

#[test]
fn a_device_without_handle_is_lost_and_the_others_are_read() {
    for code in [Code::GPU_IS_LOST, Code::INSUFFICIENT_POWER, Code::NO_DATA, Code::RESET_REQUIRED, Code::UNKNOWN, Code::NO_PERMISSION] {
        let bad = Device::t4().fails("nvmlDeviceGetHandleByIndex*", code);
        let source = Machine::new(&Scenario::new().device(Board::T4).device(bad).device(Board::T4)).open();
        let mut gpus: Vec<_> = source.devices.into_iter().map(Gpu::new).collect();
        assert_eq!(gpus.iter().map(|gpu| gpu.device.identity().index).collect::<Vec<_>>(), [0, 1, 2], "{code:?}");
        let error = gpus[1].try_ask("sensors").expect_err("no handle");
        assert!(
            matches!(&error, DeviceError::Lost(text) if text.contains("no handle") && text.contains(&format!("({})", code.0))),
            "{error:?}"
        );
        assert_eq!(gpus[2].ask("sensors"), Answer::Answered);
    }
}

#[test]
fn a_device_without_handle_is_looked_for_ever_less_often_until_it_has_one() {
    let bad = Device::t4().fails("nvmlDeviceGetHandleByIndex*", Code::RESET_REQUIRED);
    let machine = Machine::new(&Scenario::new().device(Board::T4).device(bad));
    let mut gpu = machine.gpu(1);
    let opened = machine.stats();
    for _ in 0..120 {
        gpu.try_ask("sensors").expect_err("no handle");
        gpu.later(Duration::from_secs(1));
    }
    let looked = machine.stats().since(&opened).calls("nvmlDeviceGetHandleByIndex_v2");
    assert!((5..=8).contains(&looked), "{looked} times in two minutes");
    machine.play(&Scenario::new().device(Board::T4).device(Device::h100()));
    gpu.later(Duration::from_secs(64));
    assert_eq!(gpu.read("sensors").metrics.temp_c, Some(29));
    assert_eq!((gpu.device.identity().index, gpu.device.identity().name.as_str()), (1, "NVIDIA H100 80GB HBM3"));
}

#[track_caller]
fn check_error(scenario: &Scenario, is_available: bool, words: &[&str]) {
    let error = Machine::new(scenario).try_open().expect_err("it must not open");
    let text = error.to_string();
    assert_eq!(matches!(error, OpenError::Failed(_)), is_available, "{text}");
    words.iter().for_each(|word| assert!(text.contains(word), "{text:?} lacks {word:?}"));
}

#[test]
fn what_is_not_there_is_not_available_and_what_does_not_work_has_failed() {
    let gpu = || Scenario::new().device(Board::T4);
    check_error(&gpu().init_fails(Code::DRIVER_NOT_LOADED), false, &["driver not loaded", "kernel module loaded?"]);
    check_error(&gpu().init_fails(Code::GPU_NOT_FOUND), false, &["GPU not found (28)"]);
    check_error(&gpu().init_fails(Code::NO_PERMISSION), true, &["no permission", "/dev/nvidiactl"]);
    check_error(&gpu().init_fails(Code::LIB_RM_VERSION_MISMATCH), true, &["mismatch", "reload the module"]);
    check_error(&gpu().init_fails(Code::UNKNOWN), true, &["unknown error (999)", "container"]);
    check_error(&gpu().init_fails(Code::INSUFFICIENT_RESOURCES), true, &["insufficient resources (23)"]);
    check_error(&Scenario::new(), false, &["no GPU"]);
    check_error(&gpu().fails("nvmlDeviceGetCount*", Code::DRIVER_NOT_LOADED), false, &["driver not loaded"]);
    let unreachable = Device::t4().fails("nvmlDeviceGetHandleByIndex*", Code::NO_PERMISSION);
    check_error(&Scenario::new().device(unreachable), true, &["GPU 0: no permission", "/dev/nvidia0"]);
}

#[track_caller]
fn open_error(library: LibraryChoice) -> OpenError {
    NvmlSource::new(NvmlOptions { library }).open().expect_err("it must not open")
}

#[test]
fn a_library_that_does_not_exist_is_not_available_and_the_place_is_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(library::FILE_NAME);
    let error = open_error(LibraryChoice::Path(path.clone()));
    assert!(matches!(&error, OpenError::NotAvailable(text) if text.contains(path.to_str().unwrap())), "{error}");
    let error = open_error(LibraryChoice::UnderHost(directory.path().into()));
    let place = directory.path().join("home/kubernetes/bin/nvidia/lib64");
    assert!(matches!(&error, OpenError::NotAvailable(text) if text.contains(place.to_str().unwrap())), "{error}");
}

#[test]
fn a_file_that_is_no_library_has_failed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(library::FILE_NAME);
    fs::write(&path, "not a library").unwrap();
    let error = open_error(LibraryChoice::Path(path.clone()));
    assert!(
        matches!(&error, OpenError::Failed(text) if text.contains("cannot be loaded") && text.contains("driver's own libnvidia-ml.so.1")),
        "{error}"
    );
    assert!(!error.to_string().contains("libloading"), "{error}");
}

#[test]
fn a_library_without_its_first_and_last_call_has_failed() {
    for symbol in ["nvmlInit_v2", "nvmlShutdown"] {
        let error = Machine::without(&[symbol], &Scenario::new().device(Board::T4)).try_open().expect_err("it must not open");
        assert!(matches!(&error, OpenError::Failed(text) if text.contains("is not NVML") && text.contains(symbol)), "{error}");
    }
}

#[test]
fn under_a_host_path_the_library_is_found_through_links() {
    let host = TempDir::new().unwrap();
    let nvml = library::install(&host.path().join("opt/nvidia/580.1/lib64"), &[]).unwrap();
    nvml.play(&Scenario::new().device(Board::T4)).unwrap();
    fs::create_dir_all(host.path().join("usr")).unwrap();
    symlink("/opt/nvidia/580.1/lib64", host.path().join("usr/lib64")).unwrap();
    let source = NvmlSource::new(NvmlOptions { library: LibraryChoice::UnderHost(host.path().into()) }).open().unwrap();
    assert_eq!(source.info.library.as_deref(), nvml.path().to_str());
}

#[test]
fn the_library_is_shut_down_with_the_last_device() {
    let machine = Machine::new(&Scenario::new().device(Board::T4).device(Board::T4));
    let mut devices = machine.open().devices;
    // Has a thread of its own by now.
    Gpu::new(devices.pop().unwrap()).ask_all();
    assert_eq!(machine.stats().calls("nvmlShutdown"), 0);
    drop(devices);
    assert_eq!(machine.stats().calls("nvmlShutdown"), 1);
    assert_eq!(machine.open().devices.len(), 2, "and can be opened again");
}
