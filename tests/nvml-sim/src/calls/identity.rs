//! Who a device is, and how it is found.

use std::ffi::c_char;

use crate::{
    abi::{nvmlDevice_t, nvmlPciInfo_t},
    runtime::{Call, Done, Gpu, Out, Place, handle_of},
    scenario::{Code, Pci},
};

/// The device's address, or one made from its index.
pub(crate) fn pci_of(index: usize, gpu: &Gpu) -> Pci {
    let mut pci = gpu.device.pci.clone().unwrap_or_default();
    if (pci.domain, pci.bus, pci.device) == (0, 0, 0) {
        pci.bus = index as u32 + 1;
    }
    pci
}

fn uuid_of(place: &Place<'_>) -> Vec<u8> {
    let own = place.instance.map_or(&place.gpu.device.uuid, |instance| &instance.uuid).as_bytes();
    if !own.is_empty() {
        return own.to_vec();
    }
    let kind = if place.instance.is_some() { "MIG" } else { "GPU" };
    let instance = place.instance.map_or(0, |instance| instance.index + 1);
    format!("{kind}-5107a7ed-0000-4000-{instance:04x}-{:012x}", place.index).into_bytes()
}

pub(crate) fn count(call: &Call<'_>, count: Out<u32>) -> Done {
    call.initialized()?;
    count.put(call.loaded.gpus.len() as u32)
}

pub(crate) fn by_index(call: &Call<'_>, index: usize, device: Out<nvmlDevice_t>) -> Done {
    call.initialized()?;
    if index >= call.loaded.gpus.len() {
        return Err(Code::INVALID_ARGUMENT);
    }
    device.put(handle_of(index, None))
}

pub(crate) fn by_uuid(call: &Call<'_>, uuid: Option<String>, device: Out<nvmlDevice_t>) -> Done {
    call.initialized()?;
    let uuid = uuid.ok_or(Code::INVALID_ARGUMENT)?;
    let named = |place: &Place<'_>| String::from_utf8_lossy(&uuid_of(place)) == uuid;
    for (index, gpu) in call.loaded.gpus.iter().enumerate() {
        if named(&Place { index, gpu, instance: None }) {
            return device.put(handle_of(index, None));
        }
        for instance in gpu.device.mig.get().map(|mig| &mig.instances[..]).unwrap_or_default() {
            if named(&Place { index, gpu, instance: Some(instance) }) {
                return device.put(handle_of(index, Some(instance.index)));
            }
        }
    }
    Err(Code::NOT_FOUND)
}

pub(crate) fn by_bus_id(call: &Call<'_>, bus_id: Option<String>, device: Out<nvmlDevice_t>) -> Done {
    call.initialized()?;
    let bus_id = bus_id.ok_or(Code::INVALID_ARGUMENT)?;
    let named = |(index, gpu): (usize, &Gpu)| {
        let pci = pci_of(index, gpu);
        [pci.bus_id(), pci.legacy_bus_id()].iter().any(|own| own.eq_ignore_ascii_case(&bus_id))
    };
    let index = call.loaded.gpus.iter().enumerate().position(named).ok_or(Code::NOT_FOUND)?;
    device.put(handle_of(index, None))
}

pub(crate) fn index(call: &Call<'_>, device: nvmlDevice_t, index: Out<u32>) -> Done {
    let place = call.place(device)?;
    index.put(place.instance.map_or(place.index as u32, |instance| instance.index))
}

pub(crate) fn name(call: &Call<'_>, device: nvmlDevice_t, name: Out<c_char>, room: u32) -> Done {
    let place = call.place(device)?;
    name.put_text(place.instance.map_or(&place.gpu.device.name, |instance| &instance.name).as_bytes(), room)
}

pub(crate) fn uuid(call: &Call<'_>, device: nvmlDevice_t, uuid: Out<c_char>, room: u32) -> Done {
    uuid.put_text(&uuid_of(&call.place(device)?), room)
}

pub(crate) fn minor(call: &Call<'_>, device: nvmlDevice_t, minor: Out<u32>) -> Done {
    call.gpu(device)?;
    minor.put(call.place(device)?.index as u32)
}

pub(crate) fn pci_info(call: &Call<'_>, device: nvmlDevice_t, info: Out<nvmlPciInfo_t>) -> Done {
    let place = call.place(device)?;
    let pci = pci_of(place.index, place.gpu);
    info.put(nvmlPciInfo_t {
        busIdLegacy: c_text(&pci.legacy_bus_id()),
        domain: pci.domain,
        bus: pci.bus,
        device: pci.device,
        pciDeviceId: pci.device_id,
        pciSubSystemId: pci.subsystem_id,
        busId: c_text(&pci.bus_id()),
    })
}

/// Older than the last member of the struct, which it leaves alone.
pub(crate) fn pci_info_v2(call: &Call<'_>, device: nvmlDevice_t, info: Out<nvmlPciInfo_t>) -> Done {
    let place = call.place(device)?;
    let pci = pci_of(place.index, place.gpu);
    let bytes = info.cast::<u8>();
    let legacy: [c_char; 16] = c_text(&pci.legacy_bus_id());
    let numbers = [pci.domain, pci.bus, pci.device, pci.device_id, pci.subsystem_id];
    let before = legacy.iter().map(|byte| *byte as u8).chain(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    before.enumerate().try_for_each(|(at, byte)| bytes.put_at(at, byte))
}

fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}
