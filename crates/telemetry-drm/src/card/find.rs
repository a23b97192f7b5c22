//! Which cards there are. Nothing is read of a GPU for it: names of links tell, and the PCI bus's own record of the device.

use std::{
    fs, io,
    os::unix::fs::DirEntryExt,
    path::{Path, PathBuf},
};

use super::Driver;
use crate::{parse, pci::PciAddress};

/// A card of one of the [drivers](Driver) that are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// N of `/sys/class/drm/cardN`.
    pub(crate) number: u32,
    /// As the kernel writes it, `0000:65:00.0`.
    pub(crate) pci: String,
    pub(crate) address: PciAddress,
    pub(crate) driver: Driver,
    /// `<root>/sys/class/drm/cardN`.
    pub(crate) directory: PathBuf,
    /// The number of that entry's inode: another card in the same place has another.
    pub(crate) inode: u64,
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
            look_at(number, entry.path(), entry.ino())
        })
        .collect();
    cards.sort_by_key(|card| (card.address, card.number));
    Ok(cards)
}

/// N of `cardN`; connectors (`card0-DP-1`) and render nodes are no cards.
pub(super) fn number(name: &[u8]) -> Option<u32> {
    parse::number(name.strip_prefix(b"card")?)
}

fn look_at(number: u32, directory: PathBuf, inode: u64) -> Option<Found> {
    let device = directory.join("device");
    let linked_driver = link_name(&device.join("driver"));
    let linked_pci = link_name(&device).filter(|name| PciAddress::parse(name.as_bytes()).is_some());
    let (driver, pci) = match (linked_driver, linked_pci) {
        (Some(driver), Some(pci)) => (driver, pci),
        (driver, pci) => {
            let uevent = fs::read(device.join("uevent")).ok()?;
            let said = |key| String::from_utf8(parse::uevent_value(&uevent, key)?.to_owned()).ok();
            (driver.or_else(|| said("DRIVER"))?, pci.or_else(|| said("PCI_SLOT_NAME"))?)
        }
    };
    let driver = Driver::from_name(&driver)?;
    let address = PciAddress::parse(pci.as_bytes())?;
    Some(Found { number, pci, address, driver, directory, inode })
}

fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
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
}
