//! Files of the kernel's that say one thing each: kept open, read from the start each time, and left alone for a while where they fail.

use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::parse::number;

const SECOND_NS: u64 = 1_000_000_000;
/// A file that is not there, or still fails after some tries, is tried again this often.
const LONGEST_GAP_NS: u64 = 30 * SECOND_NS;
/// What `show` functions write is a number or a word.
const TEXT_BYTES: usize = 64;

/// How files are opened and read. The kernel's errors cannot be had from plain files, so tests put a layer of their own here.
pub(crate) trait Files: Send + Sync + fmt::Debug {
    /// Opens for reading.
    fn open(&self, path: &Path) -> Result<File, Errno>;

    /// Reads from the start of the file into `buffer`, in one call; `path` is what was opened.
    fn read(&self, path: &Path, file: &File, buffer: &mut [u8]) -> Result<usize, Errno>;
}

/// The system's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemFiles;

impl Files for SystemFiles {
    fn open(&self, path: &Path) -> Result<File, Errno> {
        File::open(path).map_err(|error| errno(&error))
    }

    fn read(&self, _path: &Path, file: &File, buffer: &mut [u8]) -> Result<usize, Errno> {
        file.read_at(buffer, 0).map_err(|error| errno(&error))
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// One attribute.
#[derive(Debug)]
pub(crate) struct Attribute {
    path: PathBuf,
    file: Option<File>,
    failures: u32,
    retry_ns: u64,
    last_error: Errno,
    has_answered: bool,
}

impl Attribute {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, failures: 0, retry_ns: 0, last_error: Errno::NOENT, has_answered: false }
    }

    /// What the file says now. One that failed is not tried again at every tick: the last error is repeated until its time has come.
    /// `ENODEV` is what a file says whose device is gone; it is opened anew once, since the device may be there again.
    pub(crate) fn read<'buffer>(&mut self, files: &dyn Files, now_ns: u64, buffer: &'buffer mut [u8]) -> Result<&'buffer [u8], Errno> {
        if now_ns < self.retry_ns {
            return Err(self.last_error);
        }
        match self.try_read(files, buffer) {
            Ok(length) => {
                (self.failures, self.retry_ns, self.has_answered) = (0, 0, true);
                Ok(&buffer[..length])
            }
            Err(error) => {
                let gap_ns = if error == Errno::NOENT { LONGEST_GAP_NS } else { (SECOND_NS << self.failures.min(5)).min(LONGEST_GAP_NS) };
                self.failures += 1;
                self.retry_ns = now_ns.saturating_add(gap_ns);
                self.last_error = error;
                Err(error)
            }
        }
    }

    fn try_read(&mut self, files: &dyn Files, buffer: &mut [u8]) -> Result<usize, Errno> {
        if let Some(file) = &self.file {
            match files.read(&self.path, file, buffer) {
                Err(Errno::NODEV) => self.file = None,
                result => return result,
            }
        }
        let file = files.open(&self.path)?;
        let result = files.read(&self.path, &file, buffer);
        self.file = Some(file);
        result
    }

    /// The number that the file holds, `None` for whatever reason there is none.
    pub(crate) fn number(&mut self, files: &dyn Files, now_ns: u64) -> Option<i64> {
        let mut buffer = [0; TEXT_BYTES];
        number(self.read(files, now_ns, &mut buffer).ok()?)
    }

    /// The same where a negative number makes no sense.
    pub(crate) fn unsigned(&mut self, files: &dyn Files, now_ns: u64) -> Option<u64> {
        let mut buffer = [0; TEXT_BYTES];
        number(self.read(files, now_ns, &mut buffer).ok()?)
    }

    /// Whether it has answered and is not there any more.
    pub(crate) fn has_vanished(&self) -> bool {
        self.has_answered && self.failures > 0 && matches!(self.last_error, Errno::NOENT | Errno::NODEV)
    }

    /// Lets a read at `at_ns` try, whatever failed before.
    pub(crate) fn retry_by(&mut self, at_ns: u64) {
        self.failures = 0;
        self.retry_ns = self.retry_ns.min(at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_once_and_read_anew_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("temp1_input");
        std::fs::write(&path, "44000\n").unwrap();
        let mut attribute = Attribute::new(&path);
        assert_eq!(attribute.number(&SystemFiles, 0), Some(44_000));
        std::fs::write(&path, "45000\n").unwrap();
        assert_eq!(attribute.number(&SystemFiles, 0), Some(45_000));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(attribute.number(&SystemFiles, 0), Some(45_000), "still the same open file");
    }

    #[test]
    fn a_file_that_is_not_there_is_looked_for_again_after_half_a_minute() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mem_busy_percent");
        let mut attribute = Attribute::new(&path);
        assert_eq!(attribute.number(&SystemFiles, 0), None);
        std::fs::write(&path, "3").unwrap();
        assert_eq!(attribute.number(&SystemFiles, 29 * SECOND_NS), None);
        assert_eq!(attribute.number(&SystemFiles, 31 * SECOND_NS), Some(3));
    }

    #[test]
    fn what_fails_is_tried_ever_less_often_and_recovers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("busy");
        // A directory opens, and fails on read.
        std::fs::create_dir(&path).unwrap();
        let mut attribute = Attribute::new(&path);
        let mut buffer = [0; 8];
        assert_eq!(attribute.read(&SystemFiles, 0, &mut buffer), Err(Errno::ISDIR));
        assert_eq!(attribute.retry_ns, SECOND_NS);
        assert_eq!(attribute.read(&SystemFiles, SECOND_NS, &mut buffer), Err(Errno::ISDIR));
        assert_eq!(attribute.retry_ns, 3 * SECOND_NS);
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "7").unwrap();
        attribute.file = None;
        assert_eq!(attribute.read(&SystemFiles, 3 * SECOND_NS, &mut buffer), Ok(b"7".as_slice()));
        assert_eq!(attribute.retry_ns, 0);
    }
}
