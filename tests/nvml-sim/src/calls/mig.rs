//! Multi-Instance GPU.

use crate::{
    abi::nvmlDevice_t,
    runtime::{Call, Done, Out, handle_of},
    scenario::{Code, MigInstance},
};

pub(crate) fn mode(call: &Call<'_>, device: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) -> Done {
    let mig = call.gpu(device)?.device.mig.get()?;
    current.put(u32::from(mig.enabled))?;
    pending.put(u32::from(mig.pending))
}

pub(crate) fn max_count(call: &Call<'_>, device: nvmlDevice_t, count: Out<u32>) -> Done {
    count.put(call.gpu(device)?.device.mig.get().map_or(0, |mig| mig.max_devices))
}

pub(crate) fn by_index(call: &Call<'_>, device: nvmlDevice_t, index: u32, mig_device: Out<nvmlDevice_t>) -> Done {
    let place = call.place(device)?;
    if place.instance.is_some() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let mig = place.gpu.device.mig.get()?;
    if !mig.enabled {
        return Err(Code::NOT_SUPPORTED);
    }
    if index >= mig.max_devices {
        return Err(Code::INVALID_ARGUMENT);
    }
    let there = mig.instances.iter().any(|instance| instance.index == index);
    if there { mig_device.put(handle_of(place.index, Some(index))) } else { Err(Code::NOT_FOUND) }
}

pub(crate) fn gpu_instance(call: &Call<'_>, device: nvmlDevice_t, id: Out<u32>) -> Done {
    id.put(instance(call, device)?.gpu_instance)
}

pub(crate) fn compute_instance(call: &Call<'_>, device: nvmlDevice_t, id: Out<u32>) -> Done {
    id.put(instance(call, device)?.compute_instance)
}

pub(crate) fn is_mig(call: &Call<'_>, device: nvmlDevice_t, is_mig: Out<u32>) -> Done {
    is_mig.put(u32::from(call.place(device)?.instance.is_some()))
}

pub(crate) fn parent(call: &Call<'_>, mig_device: nvmlDevice_t, device: Out<nvmlDevice_t>) -> Done {
    instance(call, mig_device)?;
    device.put(handle_of(call.place(mig_device)?.index, None))
}

fn instance<'a>(call: &Call<'a>, device: nvmlDevice_t) -> Result<&'a MigInstance, Code> {
    call.place(device)?.instance.ok_or(Code::NOT_SUPPORTED)
}
