//! A loaded library and calls on it.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_ulonglong},
    ptr,
    time::{Duration, Instant},
};

use libloading::Library;
use nvml_sim::{
    abi::{nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t, nvmlValueType_t},
    library::{self, Installed},
    scenario::{Code, Scenario},
};
use tempfile::TempDir;

/// An installed and loaded library in a directory of its own.
pub(crate) struct Nvml {
    pub(crate) installed: Installed,
    library: Library,
    _directory: TempDir,
}

impl Nvml {
    /// Loads a library with a scenario.
    pub(crate) fn load(scenario: &Scenario) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let installed = library::install(directory.path(), &[]).unwrap();
        installed.play(scenario).unwrap();
        // SAFETY: the library's initialization does nothing.
        let library = unsafe { Library::new(installed.path()) }.unwrap();
        Self { installed, library, _directory: directory }
    }

    /// Loads and initializes.
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let nvml = Self::load(scenario);
        assert_eq!(nvml.call0("nvmlInit_v2"), Code::SUCCESS);
        nvml
    }

    /// A function of this type, which the caller must get right.
    pub(crate) fn function<T: Copy>(&self, symbol: &str) -> T {
        // SAFETY: the caller's type; the library stays loaded as long as `self`.
        *unsafe { self.library.get::<T>(symbol.as_bytes()) }.unwrap()
    }

    pub(crate) fn call0(&self, symbol: &str) -> nvmlReturn_t {
        let function = self.function::<unsafe extern "C" fn() -> nvmlReturn_t>(symbol);
        // SAFETY: a function without parameters.
        unsafe { function() }
    }

    /// A call with a device and a place for its answer.
    pub(crate) fn get<T: Default>(&self, symbol: &str, device: nvmlDevice_t) -> Result<T, Code> {
        let function = self.function::<unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t>(symbol);
        let mut answer = T::default();
        // SAFETY: the place is valid for the call.
        check(unsafe { function(device, &raw mut answer) }).map(|()| answer)
    }

    pub(crate) fn power(&self, device: nvmlDevice_t) -> Result<u32, Code> {
        self.get("nvmlDeviceGetPowerUsage", device)
    }

    pub(crate) fn device(&self, index: u32) -> nvmlDevice_t {
        self.try_device(index).unwrap()
    }

    pub(crate) fn try_device(&self, index: u32) -> Result<nvmlDevice_t, Code> {
        let function = self.function::<unsafe extern "C" fn(c_uint, *mut nvmlDevice_t) -> nvmlReturn_t>("nvmlDeviceGetHandleByIndex_v2");
        let mut device = nvmlDevice_t(ptr::null_mut());
        // SAFETY: the place is valid for the call.
        check(unsafe { function(index, &raw mut device) }).map(|()| device)
    }

    pub(crate) fn text(&self, symbol: &str, device: nvmlDevice_t, room: usize) -> Result<Vec<u8>, Code> {
        let function = self.function::<unsafe extern "C" fn(nvmlDevice_t, *mut c_char, c_uint) -> nvmlReturn_t>(symbol);
        let mut buffer = vec![-1; room];
        // SAFETY: the buffer is as long as is said.
        check(unsafe { function(device, buffer.as_mut_ptr(), room as u32) })?;
        // SAFETY: a call that succeeds ends the string within the buffer.
        Ok(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_bytes().to_vec())
    }

    /// A list of processes into room for `room` rows: how many rows there are.
    pub(crate) fn list<Row>(&self, symbol: &str, device: nvmlDevice_t, rows: &mut [Row], room: u32) -> (nvmlReturn_t, u32) {
        let function = self.function::<unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut Row) -> nvmlReturn_t>(symbol);
        let mut count = room;
        let place = if rows.is_empty() { ptr::null_mut() } else { rows.as_mut_ptr() };
        // SAFETY: the caller's rows are many enough for what the scenario writes.
        (unsafe { function(device, &raw mut count, place) }, count)
    }

    pub(crate) fn field(&self, device: nvmlDevice_t, id: u32, scope: u32) -> Result<(u32, u64), Code> {
        let function =
            self.function::<unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> nvmlReturn_t>("nvmlDeviceGetFieldValues");
        let mut value = nvmlFieldValue_t {
            fieldId: id,
            scopeId: scope,
            timestamp: 0,
            latencyUsec: 0,
            valueType: nvmlValueType_t(0),
            nvmlReturn: Code::UNKNOWN,
            value: nvmlValue_t(0),
        };
        // SAFETY: one value is said and given.
        check(unsafe { function(device, 1, &raw mut value) })?;
        check(value.nvmlReturn).map(|()| (value.valueType.0, value.value.0))
    }

    /// Process utilization into room for `room` rows.
    pub(crate) fn utilization<Row>(&self, device: nvmlDevice_t, rows: &mut [Row], last_seen_us: u64) -> (nvmlReturn_t, u32) {
        type Function<Row> = unsafe extern "C" fn(nvmlDevice_t, *mut Row, *mut c_uint, c_ulonglong) -> nvmlReturn_t;
        let function = self.function::<Function<Row>>("nvmlDeviceGetProcessUtilization");
        let mut count = rows.len() as u32;
        let place = if rows.is_empty() { ptr::null_mut() } else { rows.as_mut_ptr() };
        // SAFETY: the room is what is said.
        (unsafe { function(device, place, &raw mut count, last_seen_us) }, count)
    }
}

pub(crate) fn check(code: nvmlReturn_t) -> Result<(), Code> {
    if code == Code::SUCCESS { Ok(()) } else { Err(code) }
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited 20 s for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
