//! The PCIe link.

use crate::{
    abi::{self, nvmlDevice_t, nvmlPcieUtilCounter_t},
    runtime::{Call, Done, Out},
    scenario::{Answer, Code, Pcie},
};

pub(crate) fn throughput(call: &Call<'_>, device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, kbps: Out<u32>) -> Done {
    let pcie = &call.gpu(device)?.device.pcie;
    match counter.0 {
        abi::NVML_PCIE_UTIL_TX_BYTES => kbps.put(*pcie.tx_kbps.get()?),
        abi::NVML_PCIE_UTIL_RX_BYTES => kbps.put(*pcie.rx_kbps.get()?),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

pub(crate) fn generation(call: &Call<'_>, device: nvmlDevice_t, generation: Out<u32>) -> Done {
    put(call, device, generation, |pcie| &pcie.generation)
}

pub(crate) fn width(call: &Call<'_>, device: nvmlDevice_t, width: Out<u32>) -> Done {
    put(call, device, width, |pcie| &pcie.width)
}

pub(crate) fn max_generation(call: &Call<'_>, device: nvmlDevice_t, generation: Out<u32>) -> Done {
    put(call, device, generation, |pcie| &pcie.max_generation)
}

pub(crate) fn max_width(call: &Call<'_>, device: nvmlDevice_t, width: Out<u32>) -> Done {
    put(call, device, width, |pcie| &pcie.max_width)
}

fn put(call: &Call<'_>, device: nvmlDevice_t, to: Out<u32>, of: impl Fn(&Pcie) -> &Answer<u32>) -> Done {
    to.put(*of(&call.gpu(device)?.device.pcie).get()?)
}
