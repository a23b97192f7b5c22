//! Memory, of a device or of a MIG device.

use crate::{
    abi::{self, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t},
    runtime::{Call, Done, Out},
    scenario::{Code, Memory},
};

pub(crate) fn info(call: &Call<'_>, device: nvmlDevice_t, info: Out<nvmlMemory_t>) -> Done {
    let memory = memory_of(call, device)?;
    // This version counts what is reserved among what is used.
    info.put(nvmlMemory_t { total: memory.total, free: memory.free(), used: memory.used + memory.reserved })
}

pub(crate) fn info_v2(call: &Call<'_>, device: nvmlDevice_t, info: Out<nvmlMemory_v2_t>) -> Done {
    let version = info.get()?.version;
    if version != abi::nvmlMemory_v2 {
        // As seen: not ARGUMENT_VERSION_MISMATCH.
        return Err(Code::FUNCTION_NOT_FOUND);
    }
    let memory = memory_of(call, device)?;
    info.put(nvmlMemory_v2_t { version, total: memory.total, reserved: memory.reserved, free: memory.free(), used: memory.used })
}

fn memory_of<'a>(call: &Call<'a>, device: nvmlDevice_t) -> Result<&'a Memory, Code> {
    let place = call.place(device)?;
    place.instance.map_or(&place.gpu.device.memory, |instance| &instance.memory).get()
}
