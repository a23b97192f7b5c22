//! All maps as of one round.

use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

use crate::{BridgeState, Error, Map, Order, Reader};

/// How often a consistent picture is tried for. With the pauses, a bridge that died within a round costs the reader about ten milliseconds.
const ATTEMPTS: u32 = 32;
/// A round with thousands of processes is written in one or two milliseconds, the usual one in a tenth of that.
const PAUSE: Duration = Duration::from_micros(200);

/// Whether the parts of a [`Snapshot`] belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// All parts are of one round: the bridge's sequence counter was even and the same before and after the reads.
    Verified,
    /// The bridge has no `gpu_bridge_state`, or the one that is there belongs to another bridge than `gpu_meta`: the parts may be of
    /// different rounds.
    Unverified,
    /// At every attempt a round was being written, or one was written meanwhile: the parts may be of different rounds.
    Unsettled,
}

/// What all maps say, each part with its own error, entries sorted by key.
///
/// When `gpu_meta` is of another schema version than this crate's, [`Error::UnknownVersion`] stands for the records of all four maps of the contract.
///
/// Its default is for tests of what takes snapshots, to put parts into: nothing was asked for, and every part says so.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Snapshot {
    /// The `gpu_meta` record.
    pub meta: Result<GpuMeta, Error>,
    /// Devices by index, empty slots left out.
    pub devices: Result<Vec<(u32, GpuDeviceMetrics)>, Error>,
    /// Processes by PID, over all their GPUs.
    pub processes: Result<Vec<(u32, GpuPidMetricsAggregated)>, Error>,
    /// Processes by PID and device.
    pub process_devices: Result<Vec<(PidDeviceKey, GpuPidMetrics)>, Error>,
    /// What the bridge says of itself.
    pub state: Result<BridgeState, Error>,
    /// Whether all that belongs together.
    pub consistency: Consistency,
}

impl Default for Snapshot {
    fn default() -> Self {
        const fn not_asked_for<T>(map: Map) -> Result<T, Error> {
            Err(Error::NotAskedFor { map: map.name() })
        }
        Self {
            meta: not_asked_for(Map::Meta),
            devices: not_asked_for(Map::Device),
            processes: not_asked_for(Map::PerPid),
            process_devices: not_asked_for(Map::PerPidPerDevice),
            state: not_asked_for(Map::State),
            consistency: Consistency::Unverified,
        }
    }
}

impl Snapshot {
    /// The records are of another schema version than this crate's.
    fn refuse(&mut self, expected: u32, found: u32) {
        fn refuse<T>(part: &mut Result<T, Error>, map: Map, expected: u32, found: u32) {
            if part.is_ok() {
                *part = Err(Error::UnknownVersion { map: map.name(), expected, found });
            }
        }
        refuse(&mut self.devices, Map::Device, expected, found);
        refuse(&mut self.processes, Map::PerPid, expected, found);
        refuse(&mut self.process_devices, Map::PerPidPerDevice, expected, found);
    }
}

impl Reader {
    /// Reads all maps, between two rounds of the bridge if that can be had in a few attempts. It takes well under a millisecond with a few
    /// processes, some milliseconds with thousands, and about ten more when no attempt succeeds.
    ///
    /// ```no_run
    /// use map_reader::{Consistency, Reader};
    ///
    /// let snapshot = Reader::open("/sys/fs/bpf").snapshot();
    /// let held: u64 = snapshot.processes?.iter().map(|(_, process)| process.used_gpu_memory_total).sum();
    /// let used: u64 = snapshot.devices?.iter().map(|(_, device)| device.mem_used).sum();
    /// if snapshot.consistency == Consistency::Verified {
    ///     println!("{} bytes are held by nobody who is known", used.saturating_sub(held));
    /// }
    /// # Ok::<(), map_reader::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let read = || (self.meta(), self.devices(), self.processes(Order::ByKey), self.process_devices(Order::ByKey), self.state_record());
        let ((meta, devices, processes, process_devices, state), settled) = settled(|| self.sequence(), read);
        // A counter that another bridge left behind stands still and proves nothing.
        let same_bridge = matches!((&meta, &state), (Ok(meta), Ok(state)) if meta.helper_pid == state.helper_pid);
        let consistency = match settled {
            Consistency::Verified if !same_bridge => Consistency::Unverified,
            other => other,
        };
        let state = state.map(|record| BridgeState::new(record, settled == Consistency::Verified));
        let mut snapshot = Snapshot { meta, devices, processes, process_devices, state, consistency };
        if let Err(Error::UnknownVersion { expected, found, .. }) = snapshot.meta {
            snapshot.refuse(expected, found);
        }
        snapshot
    }
}

/// What `read` gives while `sequence` is even and stands still; after the last attempt what it gives all the same.
pub(crate) fn settled<T>(sequence: impl Fn() -> Option<u64>, read: impl Fn() -> T) -> (T, Consistency) {
    for _ in 0..ATTEMPTS {
        let Some(before) = sequence() else { return (read(), Consistency::Unverified) };
        if before.is_multiple_of(2) {
            // The reads are system calls, which order nothing by themselves on every architecture.
            fence(Ordering::Acquire);
            let content = read();
            fence(Ordering::Acquire);
            if sequence() == Some(before) {
                return (content, Consistency::Verified);
            }
        }
        thread::sleep(PAUSE);
    }
    (read(), Consistency::Unsettled)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Feeds `sequence` from the list, the last one for ever; `read` gives the number of its call.
    #[track_caller]
    fn check(counters: &[Option<u64>], reads: u32, expected: Consistency) {
        let (next, calls) = (Cell::new(0), Cell::new(0));
        let sequence = || {
            let at = next.replace(next.get() + 1);
            counters[at.min(counters.len() - 1)]
        };
        let read = || {
            calls.set(calls.get() + 1);
            calls.get()
        };
        assert_eq!(settled(sequence, read), (reads, expected));
    }

    #[test]
    fn an_even_counter_that_stands_still_verifies() {
        check(&[Some(4), Some(4)], 1, Consistency::Verified);
        check(&[Some(0), Some(0)], 1, Consistency::Verified);
    }

    #[test]
    fn nothing_is_read_while_a_round_is_being_written() {
        check(&[Some(3), Some(3), Some(4), Some(4)], 1, Consistency::Verified);
    }

    #[test]
    fn a_round_written_meanwhile_means_reading_again() {
        check(&[Some(4), Some(5), Some(6), Some(8), Some(8), Some(8)], 3, Consistency::Verified);
    }

    #[test]
    fn a_bridge_that_died_within_a_round_is_read_once_at_the_end() {
        check(&[Some(7)], 1, Consistency::Unsettled);
    }

    #[test]
    fn without_a_counter_nothing_is_verified() {
        check(&[None], 1, Consistency::Unverified);
        check(&[Some(4), None], 2, Consistency::Unverified);
    }
}
