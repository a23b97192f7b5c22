//! The account of calls: a file that is mapped by the library, so that it can be read while the process lives and after it was killed.
//!
//! One row of counters a symbol and device, and one a field id and device. The file is shared by all processes that load the library with
//! the same path, and goes on counting; compare two readings with [`Stats::since`].

use std::{fs, io, path::Path, time::Duration};

use crate::{scenario::Scenario, symbols::Symbol};

pub(crate) mod table;

use table::{CELL, FIELD_CELL, FIELD_IDS, HEADER, MAGIC, NO_DEVICE, ROWS, WORDS};

/// A reading of the account.
#[derive(Clone, PartialEq, Eq)]
pub struct Stats {
    words: Vec<u64>,
}

/// What was counted of one symbol, of one device, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls that began.
    pub calls: u64,
    /// Calls that ended.
    pub returns: u64,
    /// Calls that ended with another code than SUCCESS; count queries that answer `INSUFFICIENT_SIZE` are among them.
    pub failures: u64,
    /// Time spent in calls that ended, waiting for the one lock included.
    pub time: Duration,
    /// Time of it spent waiting for the one lock.
    pub waiting: Duration,
}

impl Count {
    fn of(cell: &[u64]) -> Self {
        Self {
            calls: cell[0],
            returns: cell[1],
            failures: cell[2],
            time: Duration::from_nanos(cell[3]),
            waiting: Duration::from_nanos(cell[4]),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            returns: self.returns + other.returns,
            failures: self.failures + other.failures,
            time: self.time + other.time,
            waiting: self.waiting + other.waiting,
        }
    }
}

impl Stats {
    /// Reads the account; an empty one when no library has written it yet.
    ///
    /// # Errors
    /// When the file cannot be read, or was written by another version of the library.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { words: vec![0; WORDS] }),
            Err(error) => return Err(error),
        };
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        if bytes.is_empty() || words.len() == WORDS && words[0] == 0 {
            // Made this moment and not yet begun.
            return Ok(Self { words: vec![0; WORDS] });
        }
        if words.len() != WORDS || words[0] != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is not an account of this simulator", path.display())));
        }
        Ok(Self { words })
    }

    /// What was counted after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut words = self.words.clone();
        for (word, before) in words.iter_mut().zip(&earlier.words).skip(HEADER) {
            *word = word.wrapping_sub(*before);
        }
        Self { words }
    }

    /// How many processes have loaded the library with this account.
    pub fn loads(&self) -> u64 {
        self.words[table::LOADS]
    }

    /// The process that loaded the library last.
    pub fn last_pid(&self) -> u32 {
        self.words[table::LAST_PID] as u32
    }

    /// How often a scenario was taken up.
    pub fn scenarios_read(&self) -> u64 {
        self.words[table::SCENARIOS]
    }

    /// A symbol's count on one device. Calls on a MIG device count for the GPU that it is part of.
    ///
    /// # Panics
    /// When there is no such symbol or more devices than the account has room for: a typing error in a test must not read as 0 calls.
    pub fn on(&self, symbol: &str, device: usize) -> Count {
        assert!(device < NO_DEVICE, "the account has room for {NO_DEVICE} devices");
        self.cell(find(symbol), device)
    }

    /// A symbol's count over all devices.
    ///
    /// # Panics
    /// When there is no such symbol.
    pub fn of(&self, symbol: &str) -> Count {
        let symbol = find(symbol);
        (0..ROWS).map(|row| self.cell(symbol, row)).fold(Count::default(), Count::plus)
    }

    /// Calls of a symbol, over all devices.
    ///
    /// # Panics
    /// When there is no such symbol.
    pub fn calls(&self, symbol: &str) -> u64 {
        self.of(symbol).calls
    }

    /// Time in calls of a symbol, over all devices.
    ///
    /// # Panics
    /// When there is no such symbol.
    pub fn time_in(&self, symbol: &str) -> Duration {
        self.of(symbol).time
    }

    /// A device's count over all symbols.
    ///
    /// # Panics
    /// When there are more devices than the account has room for.
    pub fn device(&self, device: usize) -> Count {
        assert!(device < NO_DEVICE, "the account has room for {NO_DEVICE} devices");
        Symbol::ALL.iter().map(|symbol| self.cell(*symbol, device)).fold(Count::default(), Count::plus)
    }

    /// Everything.
    pub fn total(&self) -> Count {
        Symbol::ALL.iter().flat_map(|symbol| (0..ROWS).map(|row| self.cell(*symbol, row))).fold(Count::default(), Count::plus)
    }

    /// Calls that have begun and not ended. Those of a process that was killed stay.
    pub fn in_flight(&self) -> u64 {
        let total = self.total();
        total.calls.wrapping_sub(total.returns)
    }

    /// How often a field was asked for on a device, and how often without success.
    ///
    /// # Panics
    /// When there are more devices than the account has room for.
    pub fn field(&self, id: u32, device: usize) -> (u64, u64) {
        assert!(device < NO_DEVICE && (id as usize) < FIELD_IDS, "the account has no room for field {id} of device {device}");
        let at = table::field_at(id as usize, device);
        (self.words[at], self.words[at + FIELD_CELL - 1])
    }

    /// What a device's calls cost by the scenario's figures, however long they really took on a busy machine. A field that was answered
    /// with an error counts as one that is not supported.
    ///
    /// # Panics
    /// When there are more devices than the account has room for.
    pub fn nominal(&self, scenario: &Scenario, device: usize) -> Duration {
        let own = scenario.devices.get(device).map(|device| device.costs.clone()).unwrap_or_default();
        let calls = Symbol::ALL.iter().map(|symbol| self.cell(*symbol, device).calls * scenario.costs.of_call(*symbol, &own));
        let fields = (0..FIELD_IDS as u32).map(|id| {
            let (asked, failed) = self.field(id, device);
            (asked - failed) * scenario.costs.of_field(id, true) + failed * scenario.costs.of_field(id, false)
        });
        Duration::from_micros(calls.sum::<u64>() + fields.sum::<u64>())
    }

    /// The symbols that were called, with their counts over all devices.
    pub fn called(&self) -> impl Iterator<Item = (&'static str, Count)> {
        Symbol::ALL.iter().map(|symbol| (symbol.name(), self.of(symbol.name()))).filter(|(_, count)| count.calls > 0)
    }

    fn cell(&self, symbol: Symbol, row: usize) -> Count {
        let at = table::cell_at(symbol, row);
        Count::of(&self.words[at..at + CELL])
    }
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.called()).finish()
    }
}

#[expect(clippy::panic, reason = "documented: a misspelt symbol in a test must fail it")]
fn find(symbol: &str) -> Symbol {
    Symbol::ALL.iter().copied().find(|known| known.name() == symbol).unwrap_or_else(|| panic!("the simulator has no {symbol}"))
}
