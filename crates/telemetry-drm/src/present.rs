//! Whether there is anything to open.

use std::{fs, path::Path};

/// Whether there is a GPU for the source below `root`. Names of links are looked at and nothing of a GPU is read, so that it may be asked again and
/// again where there is none.
pub fn is_present(root: &Path) -> bool {
    let Ok(cards) = fs::read_dir(root.join("sys/class/drm")) else { return false };
    cards.flatten().filter(|card| card.file_name().as_encoded_bytes().starts_with(b"card")).any(|card| {
        let driver = fs::read_link(card.path().join("device/driver"));
        driver.is_ok_and(|driver| driver.file_name().is_some_and(|name| name == "amdgpu" || name == "i915" || name == "xe"))
    })
}
