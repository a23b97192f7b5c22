//! What the kernel writes as text: numbers, and lines of `KEY=value`. Nothing is allocated.

use std::str::FromStr;

/// Text without the line end, blanks and padding around it.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    let is_filling = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let start = text.iter().position(|byte| !is_filling(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_filling(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// A whole decimal number that the type can hold, and nothing else. Energy counters use all 64 bits.
pub(crate) fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    // A plus sign, which Rust would take, the kernel does not write.
    let text = Some(trimmed(text)).filter(|text| !text.starts_with(b"+"))?;
    str::from_utf8(text).ok()?.parse().ok()
}

/// The value of `key` in a uevent file.
pub(crate) fn uevent_value<'text>(uevent: &'text [u8], key: &str) -> Option<&'text [u8]> {
    let value_of = |line: &'text [u8]| line.strip_prefix(key.as_bytes())?.strip_prefix(b"=");
    uevent.split(|byte| *byte == b'\n').find_map(value_of).map(trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_alone_and_fit() {
        assert_eq!(number::<i64>(b"42\n"), Some(42));
        assert_eq!(number::<i64>(b"-273150\n"), Some(-273_150));
        assert_eq!(number::<u64>(b"44000\n\0\0\0"), Some(44_000));
        for text in ["", "\n", "+1", "- 1", "Query currently inaccessible\n", "12 13", "0x10", "4.0", "99999999999999999999"] {
            assert_eq!((number::<i64>(text.as_bytes()), number::<u64>(text.as_bytes())), (None, None), "{text:?}");
        }
        assert_eq!((number::<u64>(b"18446744073709551615"), number::<u32>(b"4294967296")), (Some(u64::MAX), None));
        assert_eq!((number::<u64>(b"-1"), number::<u64>(b"\xff")), (None, None));
    }

    #[test]
    fn a_uevent_has_a_value_for_a_whole_key() {
        let uevent = b"DRIVER=amdgpu\nPCI_ID=1002:67DF\nPCI_SUBSYS_ID=\nPCI_SLOT_NAME=0000:65:00.0\n";
        assert_eq!(uevent_value(uevent, "DRIVER"), Some(&b"amdgpu"[..]));
        assert_eq!(uevent_value(uevent, "PCI_SLOT_NAME"), Some(&b"0000:65:00.0"[..]));
        assert_eq!(uevent_value(uevent, "PCI_SUBSYS_ID"), Some(&b""[..]));
        assert_eq!((uevent_value(uevent, "PCI"), uevent_value(uevent, "SLOT_NAME")), (None, None));
    }
}
