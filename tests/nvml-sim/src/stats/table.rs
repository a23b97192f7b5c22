//! The mapped table behind the account.
#![expect(unsafe_code, reason = "a file is mapped and its words are counted up by several processes")]

use std::{
    fs::{self, File, OpenOptions},
    io,
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    slice,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use crate::symbols::Symbol;

/// Rows a symbol: one a device, and one for calls that concern none.
pub(super) const ROWS: usize = NO_DEVICE + 1;
/// The row of calls that concern no device.
pub(crate) const NO_DEVICE: usize = 32;
/// Words a symbol and row: calls, returns, failures, ns, ns waiting.
pub(super) const CELL: usize = 5;
/// Words a field and row: asked, failed.
pub(super) const FIELD_CELL: usize = 2;
/// Field ids with a row; NVML's largest is 309.
pub(super) const FIELD_IDS: usize = 320;
/// Words before the cells.
pub(super) const HEADER: usize = 8;
pub(super) const LOADS: usize = 1;
pub(super) const LAST_PID: usize = 2;
pub(super) const SCENARIOS: usize = 3;
const FIELDS: usize = HEADER + Symbol::ALL.len() * ROWS * CELL;
/// Words in all.
pub(super) const WORDS: usize = FIELDS + FIELD_IDS * ROWS * FIELD_CELL;
const BYTES: usize = WORDS * size_of::<u64>();
/// Changes with the table's shape.
pub(super) const MAGIC: u64 = 0x6e76_6d6c_5349_0000 ^ (WORDS as u64) << 8 ^ Symbol::ALL.len() as u64;

pub(super) const fn cell_at(symbol: Symbol, row: usize) -> usize {
    HEADER + (symbol as usize * ROWS + row) * CELL
}

pub(super) const fn field_at(id: usize, row: usize) -> usize {
    FIELDS + (id * ROWS + row) * FIELD_CELL
}

/// The table, mapped for the life of the process.
#[derive(Debug)]
pub(crate) struct Table {
    words: &'static [AtomicU64],
}

impl Table {
    /// Maps the file, made anew when it is missing or of another shape. Where that is impossible the count is kept in memory, for nobody.
    pub(crate) fn open(path: Option<&Path>) -> Self {
        let table = path.and_then(|path| Self::map_file(path).ok()).unwrap_or_else(Self::in_memory);
        table.words[0].store(MAGIC, Relaxed);
        table.words[LOADS].fetch_add(1, Relaxed);
        table.words[LAST_PID].store(u64::from(std::process::id()), Relaxed);
        table
    }

    fn map_file(path: &Path) -> io::Result<Self> {
        let mut file = open(path)?;
        let shape = file.metadata()?.len();
        if shape != 0 && (shape != BYTES as u64 || ![0, MAGIC].contains(&first_word(&file)?)) {
            // Another process may have the old file mapped: it keeps it.
            fs::remove_file(path)?;
            file = open(path)?;
        }
        file.set_len(BYTES as u64)?;
        let length = NonZeroUsize::new(BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice; the file is BYTES long and nothing shortens it.
        let address = unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, file, 0)? };
        // SAFETY: the mapping is page-aligned, WORDS words long, never unmapped, and only accessed through atomics.
        Ok(Self { words: unsafe { slice::from_raw_parts(address.as_ptr().cast::<AtomicU64>(), WORDS) } })
    }

    fn in_memory() -> Self {
        let mapped = NonZeroUsize::new(BYTES).and_then(|length| {
            // SAFETY: a new anonymous mapping at an address of the kernel's choice.
            unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE) }.ok()
        });
        let words = match mapped {
            // SAFETY: as for the file's mapping.
            Some(address) => unsafe { slice::from_raw_parts(address.as_ptr().cast::<AtomicU64>(), WORDS) },
            None => Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect()),
        };
        Self { words }
    }

    /// A call begins.
    pub(crate) fn begin(&self, symbol: Symbol, row: usize) {
        self.words[cell_at(symbol, row)].fetch_add(1, Relaxed);
    }

    /// A call ends.
    pub(crate) fn end(&self, symbol: Symbol, row: usize, success: bool, ns: u64, waiting_ns: u64) {
        let at = cell_at(symbol, row);
        self.words[at + 1].fetch_add(1, Relaxed);
        self.words[at + 2].fetch_add(u64::from(!success), Relaxed);
        self.words[at + 3].fetch_add(ns, Relaxed);
        self.words[at + 4].fetch_add(waiting_ns, Relaxed);
    }

    /// A field was asked for. Ids beyond the table are not counted.
    pub(crate) fn field(&self, id: u32, row: usize, success: bool) {
        if (id as usize) < FIELD_IDS {
            let at = field_at(id as usize, row);
            self.words[at].fetch_add(1, Relaxed);
            self.words[at + 1].fetch_add(u64::from(!success), Relaxed);
        }
    }

    /// A scenario was taken up.
    pub(crate) fn scenario(&self) {
        self.words[SCENARIOS].fetch_add(1, Relaxed);
    }
}

/// Whoever runs the library, the test that started it reads and removes the file.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o666).open(path)
}

fn first_word(file: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut word, 0)?;
    Ok(u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::Stats, Table};
    use crate::symbols::Symbol;

    #[test]
    fn counts_are_read_back_by_symbol_device_and_field() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("account");
        assert_eq!(Stats::read(&path).unwrap().total().calls, 0);

        let table = Table::open(Some(&path));
        table.begin(Symbol::nvmlDeviceGetName, 1);
        table.begin(Symbol::nvmlDeviceGetName, 2);
        table.end(Symbol::nvmlDeviceGetName, 2, false, 1_500, 400);
        table.field(186, 2, true);
        table.field(186, 2, false);
        table.field(9_999, 2, false);

        let stats = Stats::read(&path).unwrap();
        assert_eq!(stats.calls("nvmlDeviceGetName"), 2);
        assert_eq!(stats.on("nvmlDeviceGetName", 1).returns, 0);
        let second = stats.on("nvmlDeviceGetName", 2);
        assert_eq!((second.failures, second.time, second.waiting), (1, Duration::from_nanos(1_500), Duration::from_nanos(400)));
        assert_eq!(stats.device(2), second);
        assert_eq!(stats.in_flight(), 1);
        assert_eq!(stats.field(186, 2), (2, 1));
        assert_eq!(stats.last_pid(), std::process::id());

        let again = Table::open(Some(&path));
        again.begin(Symbol::nvmlShutdown, super::NO_DEVICE);
        let later = Stats::read(&path).unwrap();
        assert_eq!(later.loads(), 2);
        assert_eq!(later.since(&stats).total().calls, 1);
    }

    #[test]
    fn an_account_of_another_shape_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("account");
        for other in [vec![7; super::BYTES], vec![0; 100]] {
            std::fs::write(&path, other).unwrap();
            assert!(Stats::read(&path).is_err());
            Table::open(Some(&path)).begin(Symbol::nvmlShutdown, 0);
            assert_eq!(Stats::read(&path).unwrap().total().calls, 1);
        }
    }

    #[test]
    fn an_account_that_is_being_made_is_empty_and_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("account");
        for length in [0, super::BYTES] {
            std::fs::write(&path, vec![0; length]).unwrap();
            assert_eq!(Stats::read(&path).unwrap().total().calls, 0);
            Table::open(Some(&path)).begin(Symbol::nvmlShutdown, 0);
            assert_eq!(Stats::read(&path).unwrap().total().calls, 1);
        }
    }

    #[test]
    #[should_panic(expected = "has no nvmlDeviceGetNmae")]
    fn a_misspelt_symbol_is_not_zero_calls() {
        Stats { words: vec![0; super::WORDS] }.calls("nvmlDeviceGetNmae");
    }
}
