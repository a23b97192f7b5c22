//! Calls that go wrong.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command},
    time::Duration,
};

use nvml_sim::{
    library::{self, Installed},
    scenario::{Code, Device, Effect, Fault, Scenario},
    stats::Stats,
};

use crate::nvml::{Nvml, wait_for};

#[test]
fn an_error_of_one_call_on_one_device_is_its_own() {
    let failing = Device::a100().fails("nvmlDeviceGetPowerUsage", Code::NOT_READY);
    let nvml = Nvml::start(&Scenario::new().device(failing).device(Device::a100()));
    assert_eq!(nvml.power(nvml.device(0)), Err(Code::NOT_READY));
    assert!(nvml.get::<u32>("nvmlDeviceGetComputeMode", nvml.device(0)).is_ok());
    assert!(nvml.power(nvml.device(1)).is_ok());
    let stats = nvml.installed.stats().unwrap();
    assert_eq!((stats.on("nvmlDeviceGetPowerUsage", 0).failures, stats.on("nvmlDeviceGetPowerUsage", 1).failures), (1, 0));
}

#[test]
fn a_lost_device_has_no_handle_either() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100()).device(Device::t4().lost(Code::GPU_IS_LOST)));
    assert_eq!(nvml.try_device(1), Err(Code::GPU_IS_LOST));
    assert!(nvml.try_device(0).is_ok());
}

#[test]
fn initialization_fails_as_often_as_it_is_said_to() {
    let nvml = Nvml::load(&Scenario::new().fault(Fault::error("nvmlInit_v2", Code::DRIVER_NOT_LOADED).times(2)));
    let answers = [(); 3].map(|()| nvml.call0("nvmlInit_v2"));
    assert_eq!(answers, [Code::DRIVER_NOT_LOADED, Code::DRIVER_NOT_LOADED, Code::SUCCESS]);
}

#[test]
fn a_fault_begins_at_its_time() {
    let fault = Fault::error("nvmlDeviceGetPowerUsage", Code::GPU_IS_LOST).starting_in(Duration::from_millis(300));
    let begun = std::time::Instant::now();
    let nvml = Nvml::start(&Scenario::new().device(Device::a100().fault(fault)));
    let device = nvml.device(0);
    wait_for("the fault", || nvml.power(device) == Err(Code::GPU_IS_LOST));
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_symbol_that_is_missing_by_scenario_answers_so() {
    let nvml = Nvml::start(&Scenario::new().device(Device::a100()).missing("nvmlDeviceGetPowerUsage"));
    assert_eq!(nvml.power(nvml.device(0)), Err(Code::FUNCTION_NOT_FOUND));
}

#[test]
fn a_hanging_call_goes_on_when_the_scenario_changes_and_others_never_stop() {
    let scenario = |device: Device| Scenario::new().device(device.power_mw(5)).device(Device::a100());
    for spin in [false, true] {
        let hang = Fault::new("nvmlDeviceGetPowerUsage", Effect::Hang { spin, for_ever: false });
        let nvml = Nvml::start(&scenario(Device::a100().fault(hang)));
        let other = nvml.device(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| nvml.power(nvml.device(0)));
            wait_for("the call", || nvml.installed.stats().unwrap().in_flight() == 1);
            assert!(nvml.power(other).is_ok());
            assert!(!waiting.is_finished());
            nvml.installed.play(&scenario(Device::a100())).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(5));
        });
        assert_eq!(nvml.installed.stats().unwrap().in_flight(), 0);
    }
}

/// A process that loads the library and calls a function of one device for ever.
struct Caller(Child);

impl Drop for Caller {
    fn drop(&mut self) {
        // Both fail when it is over already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn caller(installed: &Installed, symbol: &str) -> Caller {
    let program = format!(
        "import ctypes; l = ctypes.CDLL({:?}); l.nvmlInit_v2(); d = ctypes.c_void_p(); \
         l.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d)); v = ctypes.c_ulonglong()\nwhile True: l.{symbol}(d, ctypes.byref(v))",
        installed.path()
    );
    Caller(Command::new("python3").args(["-c", &program]).spawn().unwrap())
}

#[test]
fn a_crash_ends_the_process_and_the_account_remains() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(directory.path(), &[]).unwrap();
    let crash = Fault::crash("nvmlDeviceGetPowerUsage").after_calls(3);
    installed.play(&Scenario::new().device(Device::a100().fault(crash))).unwrap();
    let mut child = caller(&installed, "nvmlDeviceGetPowerUsage");
    assert_eq!(child.0.wait().unwrap().signal(), Some(nix::libc::SIGSEGV));
    let count = Stats::read(&installed.stats_path()).unwrap().on("nvmlDeviceGetPowerUsage", 0);
    assert_eq!((count.calls, count.returns), (4, 3));
}

#[test]
fn a_call_that_hangs_for_ever_is_in_the_account_after_sigkill() {
    let directory = tempfile::tempdir().unwrap();
    let installed = library::install(directory.path(), &[]).unwrap();
    let hang = Fault::new("nvmlDeviceGetPowerUsage", Effect::Hang { spin: false, for_ever: true }).after_calls(1);
    let device = Device::a100();
    installed.play(&Scenario::new().device(device.clone().fault(hang))).unwrap();
    let mut child = caller(&installed, "nvmlDeviceGetPowerUsage");
    wait_for("the hang", || installed.stats().unwrap().calls("nvmlDeviceGetPowerUsage") == 2);
    installed.play(&Scenario::new().device(device)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(child.0.try_wait().unwrap(), None);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let stats = installed.stats().unwrap();
    assert_eq!((stats.of("nvmlDeviceGetPowerUsage").returns, stats.in_flight(), stats.last_pid()), (1, 1, child.0.id()));
}
