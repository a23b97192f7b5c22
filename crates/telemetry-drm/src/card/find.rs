//! Which cards there are. Nothing is read of a GPU for it: names of links tell, and the PCI bus's own record of the device.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::Driver;

/// A card of one of the [drivers](Driver) that are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// N of `/sys/class/drm/cardN`.
    pub(crate) number: u32,
    /// As the kernel writes it, `0000:65:00.0`.
    pub(crate) pci: String,
    pub(crate) driver: Driver,
    /// `<root>/sys/class/drm/cardN`.
    pub(crate) directory: PathBuf,
}

impl Found {
    /// The directory of its PCI device.
    pub(crate) fn device(&self) -> PathBuf {
        self.directory.join("device")
    }
}

/// The cards in `drm`, in PCI order.
pub(crate) fn find(drm: &Path) -> io::Result<Vec<Found>> {
    let mut cards: Vec<_> = fs::read_dir(drm)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = number(entry.file_name().as_encoded_bytes())?;
            look_at(number, entry.path())
        })
        .collect();
    cards.sort_by_cached_key(|card| (place(&card.pci), card.number));
    Ok(cards)
}

/// N of `cardN`; connectors (`card0-DP-1`) and render nodes are no cards.
pub(super) fn number(name: &[u8]) -> Option<u32> {
    let digits = name.strip_prefix(b"card")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

fn look_at(number: u32, directory: PathBuf) -> Option<Found> {
    let device = directory.join("device");
    let linked_driver = link_name(&device.join("driver"));
    let linked_pci = link_name(&device).filter(|name| place(name).is_some());
    let (driver, pci) = match (linked_driver, linked_pci) {
        (Some(driver), Some(pci)) => (driver, pci),
        (driver, pci) => {
            let uevent = fs::read_to_string(device.join("uevent")).ok()?;
            let said = |key| value(&uevent, key).map(str::to_owned);
            (driver.or_else(|| said("DRIVER"))?, pci.or_else(|| said("PCI_SLOT_NAME"))?)
        }
    };
    let driver = Driver::from_name(&driver)?;
    place(&pci)?;
    Some(Found { number, pci, driver, directory })
}

fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

/// The value of `key` in a uevent file's lines of `KEY=value`.
pub(super) fn value<'text>(uevent: &'text str, key: &str) -> Option<&'text str> {
    uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

/// Domain, bus, device and function of `0000:65:00.0`.
fn place(pci: &str) -> Option<(u32, u32, u32, u32)> {
    let (rest, function) = pci.rsplit_once('.')?;
    let mut parts = rest.split(':').map(|part| u32::from_str_radix(part, 16).ok());
    let place = (parts.next()??, parts.next()??, parts.next()??, u32::from_str_radix(function, 16).ok()?);
    parts.next().is_none().then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_cards_have_a_number() {
        assert_eq!(number(b"card0"), Some(0));
        assert_eq!(number(b"card10"), Some(10));
        for name in ["card", "card0-DP-1", "renderD128", "version", "cardx", "ttm", "card99999999999"] {
            assert_eq!(number(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn places_on_the_bus_are_hexadecimal() {
        assert_eq!(place("0000:65:00.0"), Some((0, 0x65, 0, 0)));
        assert_eq!(place("10000:0a:1f.7"), Some((0x1_0000, 0x0a, 0x1f, 7)));
        assert!(place("0000:0b:00.0") < place("0000:65:00.0"));
        for text in ["", "vkms", "virtio0", "0000:65:00", "65:00.0", "0:1:2:3.4", "i915.0"] {
            assert_eq!(place(text), None, "{text}");
        }
    }
}
