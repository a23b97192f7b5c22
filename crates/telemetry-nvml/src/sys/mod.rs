//! NVML's calls as safe functions that return their own code.
//!
//! They go through nvml-wrapper's raw side: its safe calls lose return codes (23–30), cut unknown event reasons, have no memory info v1,
//! no field scopes, and allocate and count anew at every process list. All of this crate's `unsafe` is here.
#![expect(unsafe_code, reason = "NVML is a C library")]

mod code;
mod lists;
mod metrics;

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_uint},
    fmt, ptr,
    sync::Arc,
};

use nvml_wrapper::{Nvml, error::NvmlError};
use nvml_wrapper_sys::bindings as ffi;

pub(crate) use self::{
    code::Code,
    lists::{ListBuffer, ListVersion, ProcessBuffer},
    metrics::{Clock, Direction, Ecc, Field, RingBuffer, SampleKind},
};

/// Why a library did not open.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// It could not be loaded: not there, or not a library for this process.
    NotLoadable(String),
    /// It was loaded and is not NVML.
    NotNvml(String),
    /// It is NVML and did not initialise.
    Init(Code),
}

/// NVML, loaded and initialised. Clones share it; with the last one and the last [`Gpu`] it is shut down and let go of.
#[derive(Clone)]
pub(crate) struct Library {
    nvml: Arc<Nvml>,
}

/// A device's handle with the library that it belongs to. NVML is thread-safe, so clones may be used from several threads.
#[derive(Clone)]
pub(crate) struct Gpu {
    library: Library,
    handle: ffi::nvmlDevice_t,
}

// SAFETY: a handle is not tied to the thread that got it; NVML documents its calls as thread-safe.
unsafe impl Send for Gpu {}

/// A reading call, by what it takes beside the handle.
type ReadUint = unsafe extern "C" fn(ffi::nvmlDevice_t, *mut c_uint) -> ffi::nvmlReturn_t;
type ReadUintOf = unsafe extern "C" fn(ffi::nvmlDevice_t, c_uint, *mut c_uint) -> ffi::nvmlReturn_t;
type ReadTwoUints = unsafe extern "C" fn(ffi::nvmlDevice_t, *mut c_uint, *mut c_uint) -> ffi::nvmlReturn_t;
type ReadUlong = unsafe extern "C" fn(ffi::nvmlDevice_t, *mut u64) -> ffi::nvmlReturn_t;
type ReadText = unsafe extern "C" fn(ffi::nvmlDevice_t, *mut c_char, c_uint) -> ffi::nvmlReturn_t;

/// A call whose symbol the library lacks is one that it does not support.
fn symbol<F: Copy, E>(looked_up: &Result<F, E>) -> Result<F, Code> {
    looked_up.as_ref().map_err(|_| Code::FUNCTION_NOT_FOUND).copied()
}

impl Library {
    /// Loads the library by name or path and initialises it.
    pub(crate) fn load(path: &OsStr) -> Result<Self, LoadError> {
        let nvml = Nvml::builder().lib_path(path).init().map_err(|error| match (&error, Code::of(&error)) {
            (_, Some(code)) => LoadError::Init(code),
            (NvmlError::LibloadingError(inner), None) => LoadError::NotLoadable(inner.to_string()),
            (_, None) => LoadError::NotNvml(error.to_string()),
        })?;
        if let Err(error) = &nvml.lib().nvmlShutdown {
            let text = error.to_string();
            // Its drop would call what is not there.
            std::mem::forget(nvml);
            return Err(LoadError::NotNvml(text));
        }
        Ok(Self { nvml: Arc::new(nvml) })
    }

    fn lib(&self) -> &ffi::NvmlLib {
        self.nvml.lib()
    }

    pub(crate) fn driver_version(&self) -> Result<String, Code> {
        let call = symbol(&self.lib().nvmlSystemGetDriverVersion)?;
        let mut buffer = [0; 80];
        // SAFETY: the buffer is as long as the call is told.
        Code::check(unsafe { call(buffer.as_mut_ptr(), buffer.len() as c_uint) })?;
        Ok(lossy(&buffer))
    }

    pub(crate) fn device_count(&self) -> Result<u32, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetCount_v2)?;
        let mut count = 0;
        // SAFETY: the call writes one `unsigned int`.
        Code::check(unsafe { call(&raw mut count) })?;
        Ok(count)
    }

    pub(crate) fn device(&self, index: u32) -> Result<Gpu, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetHandleByIndex_v2)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the call writes one handle.
        Code::check(unsafe { call(index, &raw mut handle) })?;
        Ok(Gpu { library: self.clone(), handle })
    }

    /// The device of this UUID. Takes milliseconds.
    pub(crate) fn device_by_uuid(&self, uuid: &str) -> Result<Gpu, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetHandleByUUID)?;
        let uuid = CString::new(uuid).map_err(|_| Code::INVALID_ARGUMENT)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the text ends in a NUL, and the call writes one handle.
        Code::check(unsafe { call(uuid.as_ptr(), &raw mut handle) })?;
        Ok(Gpu { library: self.clone(), handle })
    }
}

impl Gpu {
    fn lib(&self) -> &ffi::NvmlLib {
        self.library.lib()
    }

    pub(crate) const fn library(&self) -> &Library {
        &self.library
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.handle == other.handle
    }

    fn read_uint<E>(&self, call: &Result<ReadUint, E>) -> Result<u32, Code> {
        let mut value = 0;
        let call = symbol(call)?;
        // SAFETY: the handle is this library's; the call writes one `unsigned int`.
        Code::check(unsafe { call(self.handle, &raw mut value) })?;
        Ok(value)
    }

    fn read_uint_of<E>(&self, call: &Result<ReadUintOf, E>, which: u32) -> Result<u32, Code> {
        let mut value = 0;
        let call = symbol(call)?;
        // SAFETY: the handle is this library's; the call writes one `unsigned int`.
        Code::check(unsafe { call(self.handle, which, &raw mut value) })?;
        Ok(value)
    }

    fn read_two_uints<E>(&self, call: &Result<ReadTwoUints, E>) -> Result<(u32, u32), Code> {
        let (mut one, mut other) = (0, 0);
        let call = symbol(call)?;
        // SAFETY: the handle is this library's; the call writes two `unsigned int`s.
        Code::check(unsafe { call(self.handle, &raw mut one, &raw mut other) })?;
        Ok((one, other))
    }

    fn read_ulong<E>(&self, call: &Result<ReadUlong, E>) -> Result<u64, Code> {
        let mut value = 0;
        let call = symbol(call)?;
        // SAFETY: the handle is this library's; the call writes one `unsigned long long`.
        Code::check(unsafe { call(self.handle, &raw mut value) })?;
        Ok(value)
    }

    fn read_text<E>(&self, call: &Result<ReadText, E>) -> Result<String, Code> {
        let mut buffer = [0; 96];
        let call = symbol(call)?;
        // SAFETY: the handle is this library's; the buffer is as long as the call is told.
        Code::check(unsafe { call(self.handle, buffer.as_mut_ptr(), buffer.len() as c_uint) })?;
        Ok(lossy(&buffer))
    }

    pub(crate) fn uuid(&self) -> Result<String, Code> {
        self.read_text(&self.lib().nvmlDeviceGetUUID)
    }

    pub(crate) fn name(&self) -> Result<String, Code> {
        self.read_text(&self.lib().nvmlDeviceGetName)
    }

    pub(crate) fn pci_bus_id(&self) -> Result<String, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetPciInfo_v3)?;
        let mut info =
            ffi::nvmlPciInfo_t { busIdLegacy: [0; 16], domain: 0, bus: 0, device: 0, pciDeviceId: 0, pciSubSystemId: 0, busId: [0; 32] };
        // SAFETY: the handle is this library's; the struct is what `_v3` fills.
        Code::check(unsafe { call(self.handle, &raw mut info) })?;
        Ok(lossy(&info.busId))
    }

    /// Whether MIG is enabled now.
    pub(crate) fn mig_is_enabled(&self) -> Result<bool, Code> {
        Ok(self.read_two_uints(&self.lib().nvmlDeviceGetMigMode)?.0 == 1)
    }

    /// How many MIG devices there can be.
    pub(crate) fn most_mig_devices(&self) -> Result<u32, Code> {
        self.read_uint(&self.lib().nvmlDeviceGetMaxMigDeviceCount)
    }

    pub(crate) fn mig_device(&self, index: u32) -> Result<Self, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetMigDeviceHandleByIndex)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the handle is this library's; the call writes one handle.
        Code::check(unsafe { call(self.handle, index, &raw mut handle) })?;
        Ok(Self { library: self.library.clone(), handle })
    }

    /// The GPU instance that a MIG device stands for.
    pub(crate) fn gpu_instance_id(&self) -> Result<u32, Code> {
        self.read_uint(&self.lib().nvmlDeviceGetGpuInstanceId)
    }

    /// The compute instance, within its GPU instance, that a MIG device stands for.
    pub(crate) fn compute_instance_id(&self) -> Result<u32, Code> {
        self.read_uint(&self.lib().nvmlDeviceGetComputeInstanceId)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Library")
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({:p})", self.handle)
    }
}

/// NVML's version word of a struct: its size, and its version in the top byte.
const fn struct_version<T>(version: u32) -> u32 {
    size_of::<T>() as u32 | version << 24
}

/// The text up to its NUL; bytes that are no UTF-8 replaced (a name that starts with 0xF8 has been seen under WSL).
fn lossy(buffer: &[c_char]) -> String {
    // C's char is signed on x86_64 and unsigned on aarch64.
    let bytes: Vec<u8> = buffer.iter().map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::from_utf8_lossy(&bytes).into_owned(), |text| text.to_string_lossy().into_owned())
}
