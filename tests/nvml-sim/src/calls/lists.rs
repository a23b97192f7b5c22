//! Lists of processes.

use crate::{
    abi::{
        self, NO_INSTANCE, NVML_VALUE_NOT_AVAILABLE, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_v1_t,
        nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    },
    runtime::{Call, Done, Out, Place},
    scenario::{Code, List, Process},
};

macro_rules! lists {
    ($($v1:ident, $v2:ident, $v3:ident: $list:ident;)*) => {
        $(
            pub(crate) fn $v1(call: &Call<'_>, device: nvmlDevice_t, count: Out<u32>, infos: Out<nvmlProcessInfo_v1_t>) -> Done {
                fill(call, device, &[List::$list], count, infos, row_v1)
            }

            pub(crate) fn $v2(call: &Call<'_>, device: nvmlDevice_t, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) -> Done {
                fill(call, device, &[List::$list], count, infos, row_v2)
            }

            pub(crate) fn $v3(call: &Call<'_>, device: nvmlDevice_t, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) -> Done {
                fill_v3(call, device, List::$list, count, infos)
            }
        )*
    };
}

lists! {
    compute_v1, compute_v2, compute_v3: Compute;
    graphics_v1, graphics_v2, graphics_v3: Graphics;
    mps_v1, mps_v2, mps_v3: Mps;
}

fn fill_v3(call: &Call<'_>, device: nvmlDevice_t, list: List, count: Out<u32>, infos: Out<nvmlProcessInfo_v2_t>) -> Done {
    if call.place(device)?.gpu.device.wide_rows {
        // Early R535 drivers write these wider rows into the caller's narrower ones, and past their end.
        fill(call, device, &[list], count, infos.cast::<nvmlProcessDetail_v1_t>(), detail_row)
    } else {
        fill(call, device, &[list], count, infos, row_v2)
    }
}

pub(crate) fn detail(call: &Call<'_>, device: nvmlDevice_t, list: Out<nvmlProcessDetailList_v1_t>) -> Done {
    let asked = list.get()?;
    if asked.version != abi::nvmlProcessDetailList_v1 {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    let lists: &[List] = match asked.mode {
        abi::NVML_PROCESS_MODE_COMPUTE => &[List::Compute],
        abi::NVML_PROCESS_MODE_GRAPHICS => &[List::Graphics],
        abi::NVML_PROCESS_MODE_MPS => &[List::Mps],
        abi::NVML_PROCESS_MODE_ALL => &[List::Compute, List::Graphics, List::Mps],
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    let mut count = asked.numProcArrayEntries;
    let done = fill(call, device, lists, Out::member(&raw mut count), Out::member(asked.procArray), detail_row);
    list.put(nvmlProcessDetailList_v1_t { numProcArrayEntries: count, ..asked })?;
    done
}

/// Writes the rows when there is room for all, else says how many there are.
fn fill<Row>(call: &Call<'_>, device: nvmlDevice_t, lists: &[List], count: Out<u32>, infos: Out<Row>, row: fn(&Process) -> Row) -> Done {
    let place = call.place(device)?;
    let refused = place.instance.map_or(place.gpu.device.lists, |instance| instance.lists);
    if let Some(code) = refused {
        return Err(code);
    }
    let room = count.get()?;
    let listed = || place.gpu.device.processes.iter().filter(|process| is_listed(process, lists, &place));
    let needed = listed().count() as u32;
    if needed > room {
        count.put(needed)?;
        return Err(Code::INSUFFICIENT_SIZE);
    }
    let growth = place.gpu.device.list_growth;
    if room > 0 && place.gpu.grows(call.symbol, growth.times) {
        count.put(room.saturating_add(growth.by))?;
        return Err(Code::INSUFFICIENT_SIZE);
    }
    count.put(needed)?;
    listed().enumerate().try_for_each(|(at, process)| infos.put_at(at, row(process)))
}

fn is_listed(process: &Process, lists: &[List], place: &Place<'_>) -> bool {
    let there = |instance: &crate::scenario::MigInstance| {
        process.gpu_instance == Some(instance.gpu_instance) && process.compute_instance.is_none_or(|own| own == instance.compute_instance)
    };
    process.lists.iter().any(|list| lists.contains(list)) && place.instance.is_none_or(there)
}

fn row_v1(process: &Process) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t { pid: process.pid, usedGpuMemory: process.used_memory.unwrap_or(NVML_VALUE_NOT_AVAILABLE) }
}

fn row_v2(process: &Process) -> nvmlProcessInfo_v2_t {
    nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.used_memory.unwrap_or(NVML_VALUE_NOT_AVAILABLE),
        gpuInstanceId: process.gpu_instance.unwrap_or(NO_INSTANCE),
        computeInstanceId: process.compute_instance.unwrap_or(NO_INSTANCE),
    }
}

fn detail_row(process: &Process) -> nvmlProcessDetail_v1_t {
    nvmlProcessDetail_v1_t {
        pid: process.pid,
        usedGpuMemory: process.used_memory.unwrap_or(NVML_VALUE_NOT_AVAILABLE),
        gpuInstanceId: process.gpu_instance.unwrap_or(NO_INSTANCE),
        computeInstanceId: process.compute_instance.unwrap_or(NO_INSTANCE),
        usedGpuCcProtectedMemory: 0,
    }
}
