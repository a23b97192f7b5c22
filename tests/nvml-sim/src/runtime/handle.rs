//! Handles: numbers that say which device and which of its MIG devices is meant.

use std::ptr;

use super::loaded::Gpu;
use crate::{
    abi::nvmlDevice_t,
    scenario::{Code, MigInstance},
};

const BASE: usize = 0x4e56_0000;
const PER_DEVICE: usize = 0x1000;
const PER_INSTANCE: usize = 0x10;

/// A device, or a MIG device on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) index: usize,
    pub(crate) gpu: &'a Gpu,
    pub(crate) instance: Option<&'a MigInstance>,
}

/// The handle of a device, or of the MIG device with this index on it.
pub(crate) fn encode(device: usize, mig: Option<u32>) -> nvmlDevice_t {
    let instance = mig.map_or(0, |index| index as usize + 1);
    nvmlDevice_t(ptr::without_provenance_mut(BASE + (device + 1) * PER_DEVICE + instance * PER_INSTANCE))
}

/// The device's index and the MIG device's.
pub(crate) fn decode(handle: nvmlDevice_t) -> Result<(usize, Option<u32>), Code> {
    let number = handle.0.addr().checked_sub(BASE + PER_DEVICE).ok_or(Code::INVALID_ARGUMENT)?;
    let (device, instance) = (number / PER_DEVICE, number % PER_DEVICE);
    if device >= PER_DEVICE || instance % PER_INSTANCE != 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok((device, (instance / PER_INSTANCE).checked_sub(1).map(|index| index as u32)))
}

/// What a handle means in the present scenario. A device that is no longer there has fallen off the bus.
pub(crate) fn place(gpus: &[Gpu], handle: nvmlDevice_t) -> Result<Place<'_>, Code> {
    let (index, mig) = decode(handle)?;
    let gpu = gpus.get(index).ok_or(Code::GPU_IS_LOST)?;
    let instance = match mig {
        None => None,
        Some(mig) => Some(gpu.device.mig.get()?.instances.iter().find(|instance| instance.index == mig).ok_or(Code::INVALID_ARGUMENT)?),
    };
    Ok(Place { index, gpu, instance })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::{decode, encode};
    use crate::{abi::nvmlDevice_t, scenario::Code};

    #[test]
    fn a_handle_leads_back_to_its_device() {
        for device in [0, 1, 31] {
            for mig in [None, Some(0), Some(6)] {
                assert_eq!(decode(encode(device, mig)), Ok((device, mig)));
            }
        }
    }

    #[test]
    fn no_other_pointer_is_a_handle() {
        let stack = 0_u8;
        for pointer in [
            ptr::null_mut(),
            ptr::without_provenance_mut(0x4e56_0000),
            ptr::without_provenance_mut(0x4e56_1001),
            (&raw const stack).cast_mut().cast(),
        ] {
            assert_eq!(decode(nvmlDevice_t(pointer)), Err(Code::INVALID_ARGUMENT), "{pointer:?}");
        }
    }
}
