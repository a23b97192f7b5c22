//! NVLinks.

use super::metrics::enable_state;
use crate::{
    abi::{nvmlDevice_t, nvmlEnableState_t},
    clock,
    runtime::{Call, Done, Out},
    scenario::{Code, Link, NvLinks},
};

/// Links that nvml.h allows to be asked for; one that the device does not have is not supported, one beyond is an invalid argument.
const MAX_LINKS: u32 = 36;

pub(crate) fn state(call: &Call<'_>, device: nvmlDevice_t, link: u32, active: Out<nvmlEnableState_t>) -> Done {
    active.put(enable_state(find(call, device, link)?.1.active))
}

pub(crate) fn version(call: &Call<'_>, device: nvmlDevice_t, link: u32, version: Out<u32>) -> Done {
    version.put(find(call, device, link)?.0.version)
}

pub(crate) fn utilization_counter(call: &Call<'_>, device: nvmlDevice_t, link: u32, counter: u32, rx: Out<u64>, tx: Out<u64>) -> Done {
    let (_, link) = find(call, device, link)?;
    if counter > 1 {
        return Err(Code::INVALID_ARGUMENT);
    }
    let now = clock::boottime_ns();
    rx.put(link.rx.bytes_at(now))?;
    tx.put(link.tx.bytes_at(now))
}

fn find<'a>(call: &Call<'a>, device: nvmlDevice_t, link: u32) -> Result<(&'a NvLinks, &'a Link), Code> {
    let nvlinks = call.gpu(device)?.device.nvlinks.get()?;
    if link >= MAX_LINKS {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok((nvlinks, nvlinks.links.get(link as usize).ok_or(Code::NOT_SUPPORTED)?))
}
