//! One card: who it is, what may be read of it now, and the device that does so.

mod amdgpu;
mod device;
mod find;
mod gate;
mod hwmon;
mod identity;
mod intel;
mod local_memory;
mod looker;
mod pcie;
mod power;
mod question;
mod roster;
mod sensors;
mod shared_clients;

use std::{fmt, path::PathBuf};

pub(crate) use self::{
    device::{DrmDevice, Shared},
    find::{Found, find},
    gate::Gate,
    identity::identify,
    roster::Roster,
    shared_clients::SharedClients,
};

/// Where Intel's integrated GPUs are: on bus 0, as device 2.
const INTEGRATED: u16 = 2 << 3;

/// The kernel drivers whose cards are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Driver {
    Amdgpu,
    I915,
    Xe,
}

impl Driver {
    const ALL: [Self; 3] = [Self::Amdgpu, Self::I915, Self::Xe];

    /// By the kernel's name for it.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|driver| driver.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amdgpu => "amdgpu",
            Self::I915 => "i915",
            Self::Xe => "xe",
        }
    }

    const fn is_intel(self) -> bool {
        matches!(self, Self::I915 | Self::Xe)
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known of a card without reading of the GPU, and whether that may be done. Shared by its device and by whoever reads its clients.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) found: Found,
    pub(crate) gate: Gate,
    /// Whether its memory is the machine's, wholly or beside a carve-out.
    pub(crate) is_integrated: bool,
}

impl Card {
    pub(crate) fn new(found: Found, gate: Gate) -> Self {
        let is_integrated = match found.driver {
            Driver::Amdgpu => amdgpu::is_apu(&found.device()),
            // They all have this place; their virtual functions are further functions of it.
            Driver::I915 | Driver::Xe => found.address.first_function().location() == INTEGRATED,
        };
        Self { found, gate, is_integrated }
    }

    fn device(&self) -> PathBuf {
        self.found.device()
    }
}

#[cfg(test)]
mod tests;
