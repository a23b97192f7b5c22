//! `--pin-mode` and `--pin-group`: who besides the bridge's user may read the pins.

use std::fmt;

use nix::unistd::Group;

use crate::UsageError;

/// Permission bits of a pin; its owner can always read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinMode(u32);

const OWNER_READS_AND_WRITES: u32 = 0o600;

impl PinMode {
    /// Reads an octal number.
    ///
    /// # Errors
    /// When it is none, has bits other than permissions, or locks the owner out.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const ACCEPTED: &str = "accepted: an octal number from 0600 to 0777, such as 0640 or 0644";
        let digits = text.strip_prefix("0o").unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(ACCEPTED);
        }
        match u32::from_str_radix(digits, 8) {
            Ok(mode) if mode <= 0o777 && mode & OWNER_READS_AND_WRITES == OWNER_READS_AND_WRITES => Ok(Self(mode)),
            _ => Err(ACCEPTED),
        }
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the group or everybody may write.
    pub const fn lets_others_write(self) -> bool {
        self.0 & 0o022 != 0
    }
}

impl fmt::Display for PinMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// A group, as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinGroup {
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
}

impl PinGroup {
    /// Reads a number or a name. Whether there is such a group is not looked at.
    ///
    /// # Errors
    /// When it is empty, or the number that means "no group".
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text.parse() {
            Ok(u32::MAX) => Err("accepted: a group's name, or its number"),
            Ok(gid) => Ok(Self::Id(gid)),
            Err(_) if text.is_empty() => Err("accepted: a group's name, or its number"),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }

    /// Its number.
    ///
    /// # Errors
    /// When this machine knows no group of that name.
    pub fn gid(&self) -> Result<u32, UsageError> {
        let name = match self {
            Self::Id(gid) => return Ok(*gid),
            Self::Name(name) => name,
        };
        let missing = |problem| UsageError::NoSuchGroup { name: name.clone(), problem };
        match Group::from_name(name) {
            Ok(Some(group)) => Ok(group.gid.as_raw()),
            Ok(None) => Err(missing("there is no such group".to_owned())),
            Err(errno) => Err(missing(format!("cannot be looked up: {errno}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_leave_the_owner_in() {
        for (text, bits) in [("0600", 0o600), ("640", 0o640), ("0o644", 0o644), ("00666", 0o666), ("777", 0o777)] {
            assert_eq!(PinMode::parse(text).map(PinMode::bits), Ok(bits), "{text}");
        }
        for text in ["", "0", "0400", "0244", "0688", "rw-r-----", "01644", "+640", "-640", "0x1ff", "99999999999999", "6 40"] {
            assert!(PinMode::parse(text).is_err(), "{text}");
        }
        assert_eq!(PinMode::parse("640").map(|mode| mode.to_string()).as_deref(), Ok("0640"));
    }

    #[test]
    fn who_may_write_is_told_from_who_may_read() {
        let writable = |text| PinMode::parse(text).map(PinMode::lets_others_write);
        assert_eq!(["0600", "0640", "0644", "0620", "0602", "0666"].map(writable), [false, false, false, true, true, true].map(Ok));
    }

    #[test]
    fn groups_are_numbers_or_names_of_this_machine() {
        assert_eq!(PinGroup::parse("0").unwrap().gid(), Ok(0));
        assert_eq!(PinGroup::parse("4294967294").unwrap().gid(), Ok(4_294_967_294));
        assert_eq!(PinGroup::parse("root").unwrap().gid(), Ok(0));
        assert!(matches!(PinGroup::parse("no-such-group").unwrap().gid(), Err(UsageError::NoSuchGroup { .. })));
        assert!(PinGroup::parse("").is_err() && PinGroup::parse("4294967295").is_err());
    }
}
