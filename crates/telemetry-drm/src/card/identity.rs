//! Who a card is.

use std::fs;

use telemetry::Identity;

use super::{Driver, Found};
use crate::{
    parse::{trimmed, uevent_value},
    sysfs::{Attribute, Files},
};

const AMD: u32 = 0x1002;
const INTEL: u32 = 0x8086;
/// Raven and Picasso.
const RAVEN: [&str; 2] = ["1002:15dd", "1002:15d8"];

/// What can be had of a card's identity. The bus's own record says what kind it is, asleep or not; the driver's files are read only of one
/// that is awake.
pub(crate) fn identify(found: &Found, index: u32, is_asleep: bool, files: &dyn Files) -> Identity {
    let device = found.device();
    let uevent = fs::read(device.join("uevent")).unwrap_or_default();
    let said = |name: &str| {
        let mut buffer = [0; 256];
        let text = Attribute::new(device.join(name)).read(files, 0, &mut buffer).ok().map(trimmed)?;
        Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty())
    };
    let (vendor_id, vendor) = match found.driver {
        Driver::Amdgpu => (AMD, "AMD"),
        Driver::I915 | Driver::Xe => (INTEL, "Intel"),
    };
    let id = uevent_value(&uevent, "PCI_ID").map(|id| String::from_utf8_lossy(id).to_lowercase());
    let kind = id.map_or_else(|| format!("{vendor} GPU"), |id| format!("{vendor} GPU {id}"));
    let (name, unique_id) = match found.driver {
        Driver::Amdgpu if !is_asleep => (said("product_name"), said("unique_id")),
        _ => (None, None),
    };
    Identity {
        index,
        // As AMD's own tools write it.
        uuid: unique_id.map(|id| format!("GPU-{id}")).unwrap_or_default(),
        pci_bus_id: found.pci.clone(),
        name: name.unwrap_or(kind),
        vendor_id,
    }
}

/// Whether it is an APU whose busy file is known to get stuck; these have no product name of their own.
pub(super) fn is_raven(identity: &Identity) -> bool {
    RAVEN.iter().any(|id| identity.name.ends_with(id))
}
