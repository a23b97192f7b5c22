//! One card: who it is and what may be read of it now.

mod gate;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub(crate) use self::gate::{Access, Gate};

/// The kernel drivers whose cards are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Driver {
    Amdgpu,
    I915,
    Xe,
}

impl Driver {
    /// By the kernel's name for it.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Amdgpu, Self::I915, Self::Xe].into_iter().find(|driver| driver.name().as_bytes() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amdgpu => "amdgpu",
            Self::I915 => "i915",
            Self::Xe => "xe",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known of a card without reading of the GPU. Shared by its device and by whoever looks for its clients.
#[derive(Debug)]
pub(crate) struct Card {
    /// N of `/sys/class/drm/cardN`, which is also the minor number of `/dev/dri/cardN` (major 226).
    pub(crate) number: u32,
    /// The minor number of `/dev/dri/renderDM`, where there is one.
    pub(crate) render_minor: Option<u32>,
    /// As the kernel writes it, `0000:65:00.0`; that is also what fdinfo says in `drm-pdev`.
    pub(crate) pci: String,
    pub(crate) driver: Driver,
    /// `<root>/sys/class/drm/cardN`.
    pub(crate) directory: PathBuf,
    /// Whether it may be read.
    pub(crate) gate: Gate,
    is_integrated: AtomicBool,
}

impl Card {
    /// Whether its memory is the machine's, wholly or beside a carve-out. An AMD card is looked at when it is first awake; until then no.
    pub(crate) fn is_integrated(&self) -> bool {
        self.is_integrated.load(Ordering::Relaxed)
    }

    pub(crate) fn set_integrated(&self, is_integrated: bool) {
        self.is_integrated.store(is_integrated, Ordering::Relaxed);
    }

    /// `<root>/sys/class/drm/cardN/device`.
    pub(crate) fn device(&self) -> PathBuf {
        self.directory.join("device")
    }
}
