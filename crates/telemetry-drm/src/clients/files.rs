//! Small reads from the kernel's files without allocating.

use std::{
    ffi::CStr,
    fmt::{self, Write as _},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RawDir, StatxFlags, openat, statx},
    io::{Errno, pread},
};

/// Enough for every file that is read here; of a longer one, the lines that fit.
pub(super) const TEXT_BYTES: usize = 8192;
/// The kernel hands out no more than this many bytes of directory entries at once.
pub(super) const ENTRIES_BYTES: usize = 32 * 1024;

/// A path built in place.
#[derive(Debug)]
pub(super) struct ShortPath {
    bytes: [u8; 128],
    length: usize,
}

impl ShortPath {
    /// None when it does not fit, as no path made of the kernel's own numbers does.
    pub(super) fn new(parts: fmt::Arguments<'_>) -> Option<Self> {
        let mut path = Self { bytes: [0; 128], length: 0 };
        path.write_fmt(parts).ok().map(|()| path)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Write for ShortPath {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Opens a file below `directory` for reading.
pub(super) fn open_file(directory: impl AsFd, path: fmt::Arguments<'_>) -> Result<OwnedFd, Errno> {
    open_below(directory, path, OFlags::RDONLY)
}

/// Opens a directory below `directory`.
pub(super) fn open_directory(directory: impl AsFd, path: fmt::Arguments<'_>) -> Result<OwnedFd, Errno> {
    open_below(directory, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn open_below(directory: impl AsFd, path: fmt::Arguments<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = ShortPath::new(path).ok_or(Errno::NAMETOOLONG)?;
    openat(directory, path.as_bytes(), flags | OFlags::CLOEXEC, Mode::empty())
}

/// The whole lines of a file, from its beginning.
pub(super) fn read_lines(file: impl AsFd, buffer: &mut [u8; TEXT_BYTES]) -> Result<&[u8], Errno> {
    let length = pread(file, &mut buffer[..], 0)?;
    let text = &buffer[..length];
    if length < TEXT_BYTES {
        return Ok(text);
    }
    // Half a number is a wrong one.
    let end = text.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    Ok(&text[..end])
}

/// Opens, reads and closes.
pub(super) fn read_file<'a>(directory: impl AsFd, path: fmt::Arguments<'_>, buffer: &'a mut [u8; TEXT_BYTES]) -> Result<&'a [u8], Errno> {
    read_lines(open_file(directory, path)?, buffer)
}

/// Memory for the entries of a directory.
pub(super) struct Entries(Box<[MaybeUninit<u8>]>);

impl fmt::Debug for Entries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entries").finish_non_exhaustive()
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self(Box::new_uninit_slice(ENTRIES_BYTES))
    }
}

impl Entries {
    /// Shows every name in `directory` to `each` until one is an error.
    pub(super) fn for_each(&mut self, directory: BorrowedFd<'_>, mut each: impl FnMut(&CStr) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut entries = RawDir::new(directory, &mut self.0);
        while let Some(entry) = entries.next() {
            each(entry?.file_name())?;
        }
        Ok(())
    }
}

/// Whether there is such a file, which can be seen without opening it; if that cannot be told, there is.
pub(super) fn exists(directory: impl AsFd, path: fmt::Arguments<'_>) -> bool {
    let looked = ShortPath::new(path)
        .ok_or(Errno::NAMETOOLONG)
        .and_then(|path| statx(directory, path.as_bytes(), AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE));
    !looked.is_err_and(is_gone)
}

/// Whether an error only says that the process, or its file, is no longer there.
pub(super) fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::SRCH | Errno::NODEV | Errno::NXIO)
}

/// Whether an error says that one may not look.
pub(super) fn is_denied(error: Errno) -> bool {
    matches!(error, Errno::ACCESS | Errno::PERM)
}
