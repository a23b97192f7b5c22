//! From readings to the ABI's records: a pure function of rounds and the clocks.

use std::time::Duration;

use gpu_types::{GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated, keys::PidDeviceKey, maps};
use map_publisher::Records;
use telemetry::{CLOCK_STEP_NS, Metrics, Now, Process, Reading, Stamp};

use crate::sampler::{DeviceReading, Edition, Round};

/// A process's utilization counts for at least this long after its sample.
const SHORTEST_SAMPLE_HOLD: Duration = Duration::from_secs(2);
/// … and for this many sample periods.
const SAMPLE_PERIODS_HELD: f64 = 2.5;

/// The most entries that either per-process map can hold without losing some.
const ROOM: usize = maps::PID_PUBLISH_LIMIT as usize;
/// Device indices that have a slot.
const SLOTS: usize = gpu_types::GPU_MAX_DEVICES as usize;

/// What one source has to say in a picture of all of them.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What the source's own indices are counted from.
    pub first_index: u32,
    /// What of it is new.
    pub news: News,
    /// Its newest round.
    pub round: &'a Round,
}

impl<'a> Part<'a> {
    /// The part of a source that is alone.
    pub fn whole(round: &'a Round) -> Self {
        Self { first_index: 0, news: if round.has_news { News::InTime } else { News::Nothing }, round }
    }

    /// The devices with the indices that they are published under.
    pub(crate) fn devices(self) -> impl Iterator<Item = (u32, &'a DeviceReading)> {
        self.round.devices.iter().map(move |device| (self.first_index.saturating_add(device.index), device))
    }
}

/// Whether a source has answered since the last picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It has not: what it said before stands for its hold.
    Nothing,
    /// In a tick before this one. It does not make the picture older.
    Late,
    /// In this tick.
    InTime,
}

/// Makes records of rounds, in memory that it keeps.
#[derive(Debug, Default)]
pub struct RecordBuilder {
    /// The records of the round that was filled in last.
    pub records: Records,
    /// Processes that there was no room for.
    pub left_out: usize,
    /// Devices with a slot that is in use.
    pub devices: u32,
    by_memory: Vec<Holder>,
    /// The round's processes by key.
    by_key: Vec<Place>,
    /// Whose processes the round has.
    origins: Vec<Origin>,
    /// What the processes' records were made of.
    made: Made,
}

/// One device's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    index: u32,
    edition: Option<Edition>,
    /// How long their utilization counts after its sample.
    hold_ns: u64,
    device: u16,
    part: u16,
}

impl Origin {
    fn reading<'a>(&self, parts: &[Part<'a>]) -> &'a Reading {
        &parts[usize::from(self.part)].round.devices[usize::from(self.device)].reading
    }
}

/// What the processes' records were made of, and for how long they would not be others if they were made anew.
#[derive(Debug, Default)]
struct Made {
    origins: Vec<Origin>,
    /// Until the first utilization is too old to count.
    until_boottime_ns: u64,
    /// The clock offset at the time, and the largest difference between it and a sample's.
    clock_offset_ns: i64,
    offset_spread_ns: u64,
    newest_sample_ns: u64,
}

impl Made {
    /// Made of the same at another time, records are the same.
    fn is_of(&self, origins: &[Origin], now: Now) -> bool {
        let drift_ns = self.clock_offset_ns.abs_diff(now.clock_offset_ns);
        now.boottime_ns <= self.until_boottime_ns
            && self.offset_spread_ns.saturating_add(drift_ns) <= CLOCK_STEP_NS
            && origins.iter().all(|origin| origin.edition.is_some())
            && origins == self.origins
    }

    fn begin(&mut self, origins: &[Origin], now: Now) {
        self.origins.clear();
        self.origins.extend_from_slice(origins);
        self.until_boottime_ns = u64::MAX;
        self.clock_offset_ns = now.clock_offset_ns;
        self.offset_spread_ns = 0;
        self.newest_sample_ns = 0;
    }

    /// Of a sample that counts until `until_boottime_ns`.
    fn add(&mut self, sampled: Stamp, until_boottime_ns: u64, now: Now) {
        self.offset_spread_ns = self.offset_spread_ns.max(sampled.clock_offset_ns.abs_diff(now.clock_offset_ns));
        if sampled.realtime_ns > now.realtime_ns() {
            // It is published as of now, which is another time at the next tick.
            self.until_boottime_ns = 0;
        } else if now.boottime_ns <= until_boottime_ns {
            self.until_boottime_ns = self.until_boottime_ns.min(until_boottime_ns);
        }
    }
}

/// A process's key, and where in the rounds it is. Ordered by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: u64,
    process: u32,
    origin: u16,
}

/// How a round is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The publisher's clocks.
    pub now: Now,
    /// How long a device that does not answer keeps its last record.
    pub hold: Duration,
    /// The last published stamp: time does not run backwards.
    pub last_stamp_ns: u64,
    /// The host PID in `gpu_meta`.
    pub helper_pid: u32,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    pid: u32,
    memory: u64,
    /// Where the process's entries are.
    first: usize,
    count: usize,
}

impl RecordBuilder {
    /// Fills [`RecordBuilder::records`] from the sources' rounds, no two of which have a device of the same index.
    pub fn fill(&mut self, parts: &[Part<'_>], frame: &Frame) {
        let Frame { now, hold, .. } = *frame;
        self.records.devices = [GpuDeviceMetrics::default(); SLOTS];
        self.devices = 0;
        self.origins.clear();
        for (part_number, part) in (0..).zip(parts) {
            for (device_number, (index, device)) in (0..).zip(part.devices()) {
                let Some(slot) = self.records.devices.get_mut(index as usize) else { continue };
                let Some(read) = device.read.filter(|_| is_held(device, now, hold)) else { continue };
                let sampled = device.reading.sampled.unwrap_or(read);
                *slot = device_record(&device.reading.metrics, publish_time(sampled, now));
                self.devices += 1;
                let (edition, hold_ns) = (device.edition, sample_hold_ns(&device.reading));
                self.origins.push(Origin { index, edition, hold_ns, device: device_number, part: part_number });
            }
        }
        if !self.made.is_of(&self.origins, now) {
            self.make_processes(parts, now);
        }
        self.records.meta = GpuMeta {
            schema_version: gpu_types::GPU_SCHEMA_VERSION,
            n_devices: self.devices,
            last_update_boottime_ns: self.stamp(parts, frame),
            helper_pid: frame.helper_pid,
            _reserved: 0,
            clock_offset_ns: now.clock_offset_ns,
        };
    }

    fn make_processes(&mut self, parts: &[Part<'_>], now: Now) {
        self.by_key.clear();
        for (number, origin) in (0..).zip(&self.origins) {
            add_processes(&mut self.by_key, origin.index, number, origin.reading(parts));
        }
        self.made.begin(&self.origins, now);
        self.order_processes(parts, now);
        self.aggregate();
        self.made.newest_sample_ns = self.records.processes.iter().map(|(_, record)| record.timestamp_ns).max().unwrap_or(0);
    }

    /// The records of the processes by key. Places are sorted instead of records, a third of their size.
    fn order_processes(&mut self, parts: &[Part<'_>], now: Now) {
        self.by_key.sort_unstable();
        let (entries, made) = (&mut self.records.process_devices, &mut self.made);
        entries.clear();
        entries.extend(self.by_key.iter().map(|place| {
            let origin = &self.origins[usize::from(place.origin)];
            let process = &origin.reading(parts).processes[place.process as usize];
            (place.key, process_record(process, origin, now, made))
        }));
        if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            fold_instances(entries);
        }
    }

    /// When this tick's data was taken: before its first read, or at its newest sample where a source took that later; never before the
    /// stamp of the tick before, and never in the future.
    fn stamp(&self, parts: &[Part<'_>], frame: &Frame) -> u64 {
        let newest_device = self.records.devices.iter().map(|record| record.timestamp_ns).max().unwrap_or(0);
        let newest = Stamp { realtime_ns: newest_device.max(self.made.newest_sample_ns), clock_offset_ns: frame.now.clock_offset_ns };
        let started = parts.iter().filter(|part| part.news == News::InTime).map(|part| part.round.started_boottime_ns).min().unwrap_or(0);
        started.max(newest.boottime_ns()).max(frame.last_stamp_ns).min(frame.now.boottime_ns)
    }

    /// Per-process sums and maxima, of the processes that there is room for.
    fn aggregate(&mut self) {
        let entries = &mut self.records.process_devices;
        self.by_memory.clear();
        let mut first = 0;
        for group in entries.chunk_by(|(a, _), (b, _)| pid_of(*a) == pid_of(*b)) {
            let memory = group.iter().map(|(_, record)| record.used_gpu_memory).fold(0, u64::saturating_add);
            self.by_memory.push(Holder { pid: pid_of(group[0].0), memory, first, count: group.len() });
            first += group.len();
        }
        self.left_out = 0;
        if entries.len() > ROOM {
            self.by_memory.sort_unstable_by_key(|holder| (std::cmp::Reverse(holder.memory), holder.pid));
            let mut room = ROOM;
            let fitting = self.by_memory.iter().take_while(|holder| match room.checked_sub(holder.count) {
                Some(left) => {
                    room = left;
                    true
                }
                None => false,
            });
            let fitting = fitting.count();
            self.left_out = self.by_memory.len() - fitting;
            self.by_memory.truncate(fitting);
            self.by_memory.sort_unstable_by_key(|holder| holder.pid);
            // Both are in PID order, so entries only move towards the front.
            let mut kept = 0;
            for holder in &mut self.by_memory {
                entries.copy_within(holder.first..holder.first + holder.count, kept);
                holder.first = kept;
                kept += holder.count;
            }
            entries.truncate(kept);
        }
        self.records.processes.clear();
        let processes = self.by_memory.iter().map(|holder| (holder.pid, aggregate(&entries[holder.first..holder.first + holder.count])));
        self.records.processes.extend(processes);
    }
}

/// Whether a device's last record still counts.
pub(crate) fn is_held(device: &DeviceReading, now: Now, hold: Duration) -> bool {
    device.answered_boottime_ns > 0 && now.boottime_ns.saturating_sub(device.answered_boottime_ns) <= hold.as_nanos() as u64
}

/// A sample's wall-clock time for consumers: as its source gave it, moved along when the wall clock was set since, and never in the future.
fn publish_time(stamp: Stamp, now: Now) -> u64 {
    let is_step = stamp.clock_offset_ns.abs_diff(now.clock_offset_ns) > CLOCK_STEP_NS;
    let realtime_ns = if is_step { stamp.boottime_ns().saturating_add_signed(now.clock_offset_ns) } else { stamp.realtime_ns };
    // 0 means "empty" to consumers.
    realtime_ns.min(now.realtime_ns()).max(1)
}

fn device_record(metrics: &Metrics, timestamp_ns: u64) -> GpuDeviceMetrics {
    let memory = metrics.memory.unwrap_or_default();
    GpuDeviceMetrics {
        timestamp_ns,
        sm_util_pct: percent(metrics.sm_util_pct),
        mem_util_pct: percent(metrics.mem_util_pct),
        mem_total: memory.total_bytes,
        mem_used: memory.used_bytes,
        mem_reserved: memory.reserved_bytes,
        temp_c: metrics.temp_c.unwrap_or(0),
        power_mw: metrics.power_mw.unwrap_or(0),
        sm_clock_mhz: metrics.sm_clock_mhz.unwrap_or(0),
        mem_clock_mhz: metrics.mem_clock_mhz.unwrap_or(0),
        throttle_reasons: metrics.throttle_reasons.unwrap_or(0),
        pcie_tx_kbps: metrics.pcie_tx_kbps.unwrap_or(0),
        pcie_rx_kbps: metrics.pcie_rx_kbps.unwrap_or(0),
        enc_util_pct: percent(metrics.enc_util_pct),
        dec_util_pct: percent(metrics.dec_util_pct),
        nvlink_tx_kbps: metrics.nvlink_tx_kbps.unwrap_or(0),
        nvlink_rx_kbps: metrics.nvlink_rx_kbps.unwrap_or(0),
        ecc_corrected_total: metrics.ecc_corrected_total.unwrap_or(0),
        ecc_uncorrected_total: metrics.ecc_uncorrected_total.unwrap_or(0),
        fan_speed_pct: percent(metrics.fan_speed_pct),
        compute_mode: metrics.compute_mode.unwrap_or(0),
    }
}

/// Which fields of [`GpuDeviceMetrics`] a device reports: bit n for the n-th field.
pub(crate) fn metrics_present(metrics: &Metrics) -> u64 {
    let memory = metrics.memory.is_some();
    let present = [
        true,
        metrics.sm_util_pct.is_some(),
        metrics.mem_util_pct.is_some(),
        memory,
        memory,
        memory,
        metrics.temp_c.is_some(),
        metrics.power_mw.is_some(),
        metrics.sm_clock_mhz.is_some(),
        metrics.mem_clock_mhz.is_some(),
        metrics.throttle_reasons.is_some(),
        metrics.pcie_tx_kbps.is_some(),
        metrics.pcie_rx_kbps.is_some(),
        metrics.enc_util_pct.is_some(),
        metrics.dec_util_pct.is_some(),
        metrics.nvlink_tx_kbps.is_some(),
        metrics.nvlink_rx_kbps.is_some(),
        metrics.ecc_corrected_total.is_some(),
        metrics.ecc_uncorrected_total.is_some(),
        metrics.fan_speed_pct.is_some(),
        metrics.compute_mode.is_some(),
    ];
    present.iter().enumerate().map(|(bit, &present)| u64::from(present) << bit).sum()
}

fn percent(value: Option<u32>) -> u32 {
    value.unwrap_or(0).min(100)
}

fn add_processes(by_key: &mut Vec<Place>, index: u32, origin: u16, reading: &Reading) {
    for (number, process) in (0..).zip(&reading.processes) {
        // NVML's pid 0 is "unattributed", all ones "unknown".
        if !matches!(process.pid, 0 | u32::MAX) {
            let key = u64::from(PidDeviceKey::new(process.pid, index));
            by_key.push(Place { key, process: number, origin });
        }
    }
}

/// How long a process's utilization counts after its sample.
fn sample_hold_ns(reading: &Reading) -> u64 {
    let periods = reading.process_sample_period.map_or(Duration::ZERO, |period| period.mul_f64(SAMPLE_PERIODS_HELD));
    SHORTEST_SAMPLE_HOLD.max(periods).as_nanos() as u64
}

fn process_record(process: &Process, origin: &Origin, now: Now, made: &mut Made) -> GpuPidMetrics {
    let mut record = GpuPidMetrics {
        // All ones is NVML's "not available".
        used_gpu_memory: process.used_memory_bytes.filter(|&bytes| bytes != u64::MAX).unwrap_or(0),
        // The slots are few: an index that has one fits.
        gpu_device: origin.index as u8,
        mig_instance: process.mig_instance.unwrap_or(0),
        ..GpuPidMetrics::default()
    };
    if let Some(sample) = process.utilization {
        record.timestamp_ns = publish_time(sample.sampled, now);
        let until_boottime_ns = sample.sampled.boottime_ns().saturating_add(origin.hold_ns);
        made.add(sample.sampled, until_boottime_ns, now);
        if now.boottime_ns <= until_boottime_ns {
            record.sm_util_pct = sample.sm_pct.min(100);
            record.mem_util_pct = sample.mem_pct.min(100);
            record.enc_util_pct = sample.enc_pct.min(100);
            record.dec_util_pct = sample.dec_pct.min(100);
        }
    }
    record
}

/// Sorts the entries by key and folds those of one process on one device (its MIG instances) into one: memory is their sum, the instance that of
/// the larger, utilization the maximum, the time the newest.
fn fold_instances(entries: &mut Vec<(u64, GpuPidMetrics)>) {
    entries.sort_unstable_by_key(|(key, record)| (*key, std::cmp::Reverse(record.used_gpu_memory), record.mig_instance));
    entries.dedup_by(|(key, record), (kept_key, kept)| {
        if key != kept_key {
            return false;
        }
        kept.used_gpu_memory = kept.used_gpu_memory.saturating_add(record.used_gpu_memory);
        kept.timestamp_ns = kept.timestamp_ns.max(record.timestamp_ns);
        kept.sm_util_pct = kept.sm_util_pct.max(record.sm_util_pct);
        kept.mem_util_pct = kept.mem_util_pct.max(record.mem_util_pct);
        kept.enc_util_pct = kept.enc_util_pct.max(record.enc_util_pct);
        kept.dec_util_pct = kept.dec_util_pct.max(record.dec_util_pct);
        true
    });
}

/// One process over its devices.
fn aggregate(entries: &[(u64, GpuPidMetrics)]) -> GpuPidMetricsAggregated {
    let mut sum = GpuPidMetricsAggregated { device_count: entries.len() as u8, ..GpuPidMetricsAggregated::default() };
    sum.gpu_device_primary = match entries {
        [(_, only)] => only.gpu_device,
        _ => gpu_types::GPU_DEVICE_PRIMARY_MULTI,
    };
    for (_, record) in entries {
        sum.timestamp_ns = sum.timestamp_ns.max(record.timestamp_ns);
        sum.used_gpu_memory_total = sum.used_gpu_memory_total.saturating_add(record.used_gpu_memory);
        sum.sm_util_pct_max = sum.sm_util_pct_max.max(record.sm_util_pct);
        sum.mem_util_pct_max = sum.mem_util_pct_max.max(record.mem_util_pct);
    }
    sum
}

fn pid_of(key: u64) -> u32 {
    PidDeviceKey::from(key).pid()
}

#[cfg(test)]
mod tests;
