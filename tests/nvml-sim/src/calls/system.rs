//! Initialization and what concerns no device.

use std::{
    ffi::{CStr, c_char, c_int},
    fs,
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    abi::nvmlReturn_t,
    runtime::{Call, Done, Out},
    scenario::Code,
    stamp,
};

pub(crate) fn init(call: &Call<'_>) -> Done {
    if call.loaded.generation == 0 {
        // No scenario could be read; the reason has been printed.
        return Err(Code::UNKNOWN);
    }
    call.library.users.fetch_add(1, Relaxed);
    Ok(())
}

pub(crate) fn init_with_flags(call: &Call<'_>, _flags: u32) -> Done {
    init(call)
}

pub(crate) fn shutdown(call: &Call<'_>) -> Done {
    let fewer = call.library.users.fetch_update(Relaxed, Relaxed, |users| users.checked_sub(1));
    fewer.map(drop).map_err(|_| Code::UNINITIALIZED)
}

pub(crate) fn driver_version(call: &Call<'_>, version: Out<c_char>, room: u32) -> Done {
    call.initialized()?;
    version.put_text(call.loaded.scenario.driver_version.as_bytes(), room)
}

pub(crate) fn nvml_version(call: &Call<'_>, version: Out<c_char>, room: u32) -> Done {
    match stamp::own() {
        Some(own) => version.put_text(format!("13.{own}").as_bytes(), room),
        None => version.put_text(call.loaded.scenario.nvml_version.as_bytes(), room),
    }
}

pub(crate) fn cuda_version(call: &Call<'_>, version: Out<c_int>) -> Done {
    version.put(call.loaded.scenario.cuda_version)
}

pub(crate) fn process_name(call: &Call<'_>, pid: u32, name: Out<c_char>, room: u32) -> Done {
    call.initialized()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NOT_FOUND)?;
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let shown = &program[..program.len().min((room as usize).saturating_sub(1))];
    name.put_text(shown, room)
}

pub(crate) const fn error_string(code: nvmlReturn_t) -> &'static CStr {
    match code {
        Code::SUCCESS => c"Success",
        Code::UNINITIALIZED => c"Uninitialized",
        Code::INVALID_ARGUMENT => c"Invalid Argument",
        Code::NOT_SUPPORTED => c"Not Supported",
        Code::NO_PERMISSION => c"Insufficient Permissions",
        Code::NOT_FOUND => c"Not Found",
        Code::INSUFFICIENT_SIZE => c"Insufficient Size",
        Code::INSUFFICIENT_POWER => c"Insufficient External Power",
        Code::DRIVER_NOT_LOADED => c"Driver Not Loaded",
        Code::TIMEOUT => c"Timeout",
        Code::LIBRARY_NOT_FOUND => c"NVML Shared Library Not Found",
        Code::FUNCTION_NOT_FOUND => c"Function Not Found",
        Code::GPU_IS_LOST => c"GPU is lost",
        Code::RESET_REQUIRED => c"GPU requires restart",
        Code::LIB_RM_VERSION_MISMATCH => c"RM has detected an NVML/RM version mismatch.",
        Code::NO_DATA => c"No data",
        Code::INSUFFICIENT_RESOURCES => c"Ran out of critical resources, other than memory",
        Code::ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        Code::DEPRECATED => c"Deprecated",
        Code::NOT_READY => c"Not ready",
        Code::GPU_NOT_FOUND => c"GPU not found",
        Code::INVALID_STATE => c"Invalid state",
        Code::RESET_TYPE_NOT_SUPPORTED => c"Reset type not supported",
        _ => c"Unknown Error",
    }
}
