//! Processes on a device, and their utilization samples.

use serde::{Deserialize, Serialize};

/// A list of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// Processes with a compute context.
    Compute,
    /// Processes with a graphics context.
    Graphics,
    /// Clients of the Multi-Process Service.
    Mps,
}

/// A row in one or more process lists. A PID that stands in two lists with different figures is two of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// The PID as the driver gives it.
    pub pid: u32,
    /// The lists in which it stands.
    pub lists: Vec<List>,
    /// Memory that it holds, in bytes; absent: not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_memory: Option<u64>,
    /// Its GPU instance when the device is in MIG mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// Its compute instance when the device is in MIG mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// Its utilization samples.
    pub activity: Activity,
}

impl Process {
    /// A process in the compute list that holds so many bytes and was never sampled.
    pub fn compute(pid: u32, used_memory: u64) -> Self {
        Self { pid, lists: vec![List::Compute], used_memory: Some(used_memory), ..Self::default() }
    }

    /// The same in the graphics list.
    pub fn graphics(pid: u32, used_memory: u64) -> Self {
        Self { lists: vec![List::Graphics], ..Self::compute(pid, used_memory) }
    }

    /// The same in the list of MPS clients.
    pub fn mps(pid: u32, used_memory: u64) -> Self {
        Self { lists: vec![List::Mps], ..Self::compute(pid, used_memory) }
    }

    /// In these lists instead.
    #[must_use]
    pub fn in_lists(mut self, lists: &[List]) -> Self {
        self.lists = lists.to_vec();
        self
    }

    /// Its memory is not available.
    #[must_use]
    pub const fn memory_not_available(mut self) -> Self {
        self.used_memory = None;
        self
    }

    /// In a MIG instance.
    #[must_use]
    pub const fn in_instance(mut self, gpu_instance: u32, compute_instance: u32) -> Self {
        self.gpu_instance = Some(gpu_instance);
        self.compute_instance = Some(compute_instance);
        self
    }

    /// A new sample with these figures once a second.
    #[must_use]
    pub fn busy(self, load: Load) -> Self {
        self.sampled_every(1_000, vec![load])
    }

    /// A new sample every so many milliseconds, its figures taken from `loads` in turn.
    #[must_use]
    pub fn sampled_every(mut self, period_ms: u64, loads: Vec<Load>) -> Self {
        self.activity = Activity::Periodic { period_ms, phase_ms: 0, loads };
        self
    }

    /// These samples and no others.
    #[must_use]
    pub fn sampled_at(mut self, samples: Vec<Sample>) -> Self {
        self.activity = Activity::Samples(samples);
        self
    }
}

/// A process's utilization samples. Where none is newer than asked for, the process is left out of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Never sampled.
    #[default]
    None,
    /// Just these.
    Samples(Vec<Sample>),
    /// One at every multiple of the period since 1970, shifted by the phase.
    Periodic {
        /// Time between samples, in milliseconds.
        period_ms: u64,
        /// Shift, in milliseconds.
        #[serde(default)]
        phase_ms: u64,
        /// The figures, in turn.
        loads: Vec<Load>,
    },
}

impl Activity {
    /// The newest sample that is later than `after_us`, as of `now_us` (`CLOCK_REALTIME`). Given samples may lie in the future.
    pub fn newest(&self, after_us: u64, now_us: u64) -> Option<Sample> {
        match self {
            Self::None => None,
            Self::Samples(samples) => samples.iter().filter(|sample| sample.at_us > after_us).max_by_key(|sample| sample.at_us).copied(),
            Self::Periodic { period_ms, phase_ms, loads } => {
                let (number, at_us) = last_multiple(period_ms * 1_000, phase_ms * 1_000, now_us)?;
                let load = loads.get(usize::try_from(number % loads.len().max(1) as u64).ok()?)?;
                (at_us > after_us).then_some(Sample { at_us, load: *load })
            }
        }
    }
}

/// The last multiple of a period that is not later than `now_us`: its number and its time.
pub(super) fn last_multiple(period_us: u64, phase_us: u64, now_us: u64) -> Option<(u64, u64)> {
    let number = now_us.checked_sub(phase_us)?.checked_div(period_us)?;
    Some((number, number * period_us + phase_us))
}

/// Utilization figures in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// SM.
    pub sm: u32,
    /// Memory.
    pub mem: u32,
    /// Encoder.
    pub enc: u32,
    /// Decoder.
    pub dec: u32,
}

impl Load {
    /// SM and memory; the video engines idle.
    pub const fn new(sm: u32, mem: u32) -> Self {
        Self { sm, mem, enc: 0, dec: 0 }
    }

    /// All four.
    pub const fn all(sm: u32, mem: u32, enc: u32, dec: u32) -> Self {
        Self { sm, mem, enc, dec }
    }
}

/// A utilization sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sample {
    /// `CLOCK_REALTIME` in microseconds.
    pub at_us: u64,
    /// The figures.
    pub load: Load,
}

impl Sample {
    /// A sample at a `CLOCK_REALTIME` in microseconds.
    pub const fn new(at_us: u64, load: Load) -> Self {
        Self { at_us, load }
    }
}

/// A row that process utilization hands out at every call, whatever the caller saw last: garbage as seen in the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawRow {
    /// Any number.
    pub pid: u32,
    /// Its time and figures.
    pub sample: Sample,
}

/// How `nvmlDeviceGetProcessUtilization` behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessUtilization {
    /// What a count query answers: the ring's capacity, not the number of processes.
    pub capacity: u32,
    /// Every sample that is newer than asked for, not only each process's newest.
    pub every_sample: bool,
    /// Rows handed out at every call.
    pub raw_rows: Vec<RawRow>,
}

impl Default for ProcessUtilization {
    fn default() -> Self {
        Self { capacity: 100, every_sample: false, raw_rows: Vec::new() }
    }
}

/// A list that grows between two calls: so many calls that would have succeeded find that so many rows more are there than the caller
/// has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Growth {
    /// How many calls fail so, per symbol, from the moment at which the scenario is read.
    pub times: u64,
    /// How many rows more than the caller's room are asked for.
    pub by: u32,
}

#[cfg(test)]
mod tests {
    use super::{Activity, Load, Process, Sample};

    const BUSY: Load = Load::new(70, 30);
    const IDLE: Load = Load::new(1, 0);

    #[test]
    fn a_periodic_sample_is_new_once_a_period() {
        let process = Process::compute(1, 0).sampled_every(1_000, vec![BUSY]);
        let first = process.activity.newest(0, 10_400_000).unwrap();
        assert_eq!(first, Sample::new(10_000_000, BUSY));
        assert_eq!(process.activity.newest(first.at_us, 10_999_999), None);
        assert_eq!(process.activity.newest(first.at_us, 11_000_000), Some(Sample::new(11_000_000, BUSY)));
    }

    #[test]
    fn loads_of_a_periodic_sample_take_turns() {
        let activity = Activity::Periodic { period_ms: 500, phase_ms: 100, loads: vec![BUSY, IDLE] };
        assert_eq!(activity.newest(0, 1_200_000), Some(Sample::new(1_100_000, BUSY)));
        assert_eq!(activity.newest(0, 1_600_000), Some(Sample::new(1_600_000, IDLE)));
        assert_eq!(activity.newest(0, 50_000), None);
    }

    #[test]
    fn the_newest_given_sample_after_the_cursor_is_found() {
        let process = Process::compute(1, 0).sampled_at(vec![Sample::new(30, BUSY), Sample::new(20, IDLE)]);
        assert_eq!(process.activity.newest(0, 25), Some(Sample::new(30, BUSY)));
        assert_eq!(process.activity.newest(30, 99), None);
    }

    #[test]
    fn a_period_without_loads_or_length_gives_no_sample() {
        assert_eq!(Activity::Periodic { period_ms: 0, phase_ms: 0, loads: vec![BUSY] }.newest(0, 9), None);
        assert_eq!(Activity::Periodic { period_ms: 1, phase_ms: 0, loads: vec![] }.newest(0, 9_999), None);
    }
}
