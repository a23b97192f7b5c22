//! Which card a DRM device file belongs to.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::files::{self, Entries, TEXT_BYTES};
use crate::{
    parse::{number, uevent_value},
    pci::PciAddress,
};

/// DRM's device number.
pub(super) const DRM_MAJOR: u32 = 226;

/// Cards by the minor numbers of their `cardN` and `renderDN`.
#[derive(Debug, Default)]
pub(super) struct Minors(Vec<(u32, usize)>);

impl Minors {
    /// Looks below `/sys/class/drm` anew. Wakes no GPU: uevent is kept by the kernel's own device model.
    pub(super) fn look(&mut self, drm: impl AsFd, cards: &[PciAddress], entries: &mut Entries, text: &mut [u8; TEXT_BYTES]) {
        self.0.clear();
        let drm = drm.as_fd();
        let looked = entries.for_each(drm, |name| {
            let Some((name, minor)) = name.to_str().ok().and_then(|name| Some((name, minor_of(name.as_bytes())?))) else { return Ok(()) };
            if let Ok(uevent) = files::read_file(drm, format_args!("{name}/device/uevent"), text)
                && let Some(card) = slot_of(uevent).and_then(|slot| cards.iter().position(|card| *card == slot))
            {
                self.0.push((minor, card));
            }
            Ok(())
        });
        if let Err(error) = looked {
            log::debug!("cannot list DRM's devices: {error}");
        }
    }

    /// The card with this minor number.
    pub(super) fn card(&self, minor: u32) -> Option<usize> {
        self.0.iter().find(|&&(of, _)| of == minor).map(|&(_, card)| card)
    }
}

/// The number in `card1` and `renderD128`, alone or at the end of a path: the kernel names its devices by their minor numbers.
pub(super) fn minor_of(path: &[u8]) -> Option<u32> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let digits = name.strip_prefix(b"card").or_else(|| name.strip_prefix(b"renderD"))?;
    number(digits)
}

fn slot_of(uevent: &[u8]) -> Option<PciAddress> {
    PciAddress::parse(uevent_value(uevent, "PCI_SLOT_NAME")?)
}

/// Opened anew each time, since a driver that is loaded later brings the directory.
pub(super) fn open_drm(root: impl AsFd) -> Result<std::os::fd::OwnedFd, Errno> {
    files::open_directory(root, format_args!("sys/class/drm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_file_is_known_by_its_name() {
        assert_eq!(minor_of(b"/dev/dri/renderD128"), Some(128));
        assert_eq!(minor_of(b"/somewhere/else/dev/dri/card10"), Some(10));
        assert_eq!(minor_of(b"/dev/dri/card1 (deleted)"), Some(1));
        for other in
            [&b"/dev/dri/card1-HDMI-A-1"[..], b"/dev/dri/card", b"socket:[17]", b"/dev/dri/by-path", b"/dev/dri/renderD99999999999"]
        {
            assert_eq!(minor_of(other), None, "{}", other.escape_ascii());
        }
    }
}
