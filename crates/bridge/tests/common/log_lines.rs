//! What is logged in a process that has one test.

use std::sync::{Mutex, MutexGuard};

use log::{Level, LevelFilter, Log, Metadata, Record};

/// The lines of levels `info` and above.
pub struct Lines(Mutex<Vec<(Level, String)>>);

pub static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.all().push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

impl Lines {
    pub fn collect(&'static self) {
        log::set_logger(self).unwrap();
        log::set_max_level(LevelFilter::Info);
    }

    pub fn all(&self) -> MutexGuard<'_, Vec<(Level, String)>> {
        self.0.lock().unwrap()
    }

    /// How many lines of this level hold `part`.
    pub fn count(&self, level: Level, part: &str) -> usize {
        self.all().iter().filter(|(at, line)| *at == level && line.contains(part)).count()
    }
}
