//! PCI addresses as numbers.

/// Where a device is on PCI: domain, bus, device and function in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PciAddress(u64);

impl PciAddress {
    /// From `0000:65:00.0`.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = str::from_utf8(text).ok()?.splitn(3, ':');
        let domain = hex(parts.next()?, 8)?;
        let bus = hex(parts.next()?, 2)?;
        let (device, function) = parts.next()?.split_once('.')?;
        let (device, function) = (hex(device, 2)?, hex(function, 1)?);
        (device < 32 && function < 8).then_some(Self(domain << 16 | bus << 8 | device << 3 | function))
    }

    /// From kfd's `domain` and `location_id` (bus, device and function).
    pub(crate) const fn of_location(domain: u32, location: u16) -> Self {
        Self((domain as u64) << 16 | location as u64)
    }

    /// Bus, device and function as kfd's `location_id` has them.
    pub(crate) const fn location(self) -> u16 {
        self.0 as u16
    }

    /// The same device's first function.
    pub(crate) const fn first_function(self) -> Self {
        Self(self.0 & !7)
    }
}

fn hex(text: &str, most: usize) -> Option<u64> {
    let is_hex = !text.is_empty() && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_told_apart_and_have_the_order_of_the_bus() {
        let address = PciAddress::parse(b"0000:65:00.0").unwrap();
        assert_eq!(address, PciAddress::of_location(0, 0x6500));
        assert_eq!(PciAddress::parse(b"0000:65:00.1").unwrap().first_function(), address);
        assert_eq!(PciAddress::parse(b"10000:E1:00.0"), PciAddress::parse(b"10000:e1:00.0"));
        assert_ne!(PciAddress::parse(b"0001:65:00.0").unwrap(), address);
        assert_eq!(PciAddress::parse(b"0001:65:1f.7").unwrap().location(), 0x65ff);
        let places = [&b"0000:0b:00.0"[..], b"0000:65:00.0", b"0000:65:00.1", b"0000:65:01.0", b"0001:00:02.0", b"10000:00:02.0"];
        assert!(places.map(PciAddress::parse).is_sorted());
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            &b""[..],
            b"vkms",
            b"virtio0",
            b"i915.0",
            b"0:1:2:3.4",
            b"0000:65:00",
            b"65:00.0",
            b"0000:65:20.0",
            b"0000:65:00.8",
            b"0000:165:00.0",
            b"+000:65:00.0",
            b"\xff",
        ] {
            assert_eq!(PciAddress::parse(text), None, "{text:?}");
        }
    }
}
