//! The version that an installed library bears: bytes in its image that the installation writes.

use std::{hint, str};

/// Room for the mark and a version with its terminating 0.
const LENGTH: usize = 64;
const MARK: usize = 27;

#[used]
static STAMP: [u8; LENGTH] = *b"nvml-sim's library version=\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The version that this library bears, if it bears one.
pub(crate) fn own() -> Option<&'static str> {
    // What the compiler knows of the bytes is not what is in the file.
    let stamp: &'static [u8; LENGTH] = hint::black_box(&STAMP);
    let version = stamp[MARK..].split(|byte| *byte == 0).next()?;
    str::from_utf8(version).ok().filter(|version| !version.is_empty())
}

/// Writes a version into a library's image.
pub(crate) fn write(image: &mut [u8], version: &str) -> Result<(), &'static str> {
    if version.len() >= LENGTH - MARK {
        return Err("the version is too long");
    }
    // Written backwards, so that the image has it once.
    let mut mark = *b"=noisrev yrarbil s'mis-lmvn";
    mark.reverse();
    let mut found = (0..image.len().saturating_sub(LENGTH)).filter(|at| image[*at..].starts_with(&mark));
    let (Some(at), None) = (found.next(), found.next()) else { return Err("its place is not found, or more than one") };
    let place = &mut image[at + MARK..at + LENGTH];
    place.fill(0);
    place[..version.len()].copy_from_slice(version.as_bytes());
    Ok(())
}
