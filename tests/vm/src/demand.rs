//! What the maps hold, held against what was published.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};
use gpu_types::keys::PidDeviceKey;
use map_publisher::Records;
use map_reader::{Order, Reader};

/// In how far two per-process maps differ from a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amiss {
    pub(crate) missing: usize,
    surplus: usize,
    wrong: usize,
}

impl Amiss {
    /// Reads both maps and compares every entry.
    pub(crate) fn look(reader: &Reader, records: &Records) -> Result<Self> {
        let mut amiss = Self::default();
        let processes = reader.processes(Order::ByKey).context("cannot read gpu_per_pid")?;
        amiss.count(&records.processes, &processes);
        let process_devices = reader.process_devices(Order::ByKey).context("cannot read gpu_per_pid_per_device")?;
        let expected: Vec<(PidDeviceKey, _)> = records.process_devices.iter().map(|(key, record)| ((*key).into(), *record)).collect();
        amiss.count(&expected, &process_devices);
        Ok(amiss)
    }

    fn count<K: Copy + Ord, V: PartialEq>(&mut self, expected: &[(K, V)], found: &[(K, V)]) {
        let mut found: BTreeMap<K, &V> = found.iter().map(|(key, value)| (*key, value)).collect();
        for (key, value) in expected {
            match found.remove(key) {
                None => self.missing += 1,
                Some(other) if other != value => self.wrong += 1,
                Some(_) => {}
            }
        }
        self.surplus += found.len();
    }
}

impl fmt::Display for Amiss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} missing, {} surplus, {} wrong", self.missing, self.surplus, self.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_counted() {
        let mut amiss = Amiss::default();
        amiss.count(&[(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')], &[(1, 'a'), (2, 'x'), (4, 'd'), (5, 'e'), (6, 'f')]);
        assert_eq!(amiss, Amiss { missing: 1, surplus: 2, wrong: 1 });
        assert_eq!(amiss.to_string(), "1 missing, 2 surplus, 1 wrong");
    }
}
