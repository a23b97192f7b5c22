//! The publishing end of the loop: rounds in, maps written, `gpu_bridge_state` kept.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use gpu_types::{GpuBridgeDevice, GpuBridgeState};
use map_publisher::{PublishError, Publisher};
use telemetry::Now;

use crate::{
    clock::Clock,
    error::chain,
    plan::{Observer, Phase, Plan},
    records::{CLOCK_STEP_NS, Frame, RecordBuilder, is_held, metrics_present},
    sampler::{Opened, Round},
};

/// A device that does not answer keeps its last record for this long, or for 3 intervals.
const SHORTEST_HOLD: Duration = Duration::from_millis(500);
/// A failure that goes on is said again this often, with its count.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// What became of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The maps are equal to it.
    Published,
    /// It could not be written.
    Failed,
    /// No device has answered, or its answers are from before its hold: there is nothing to publish.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    Real,
    Mock,
    MockFallback,
}

#[derive(Debug)]
pub(crate) struct Outlet {
    publisher: Publisher,
    builder: RecordBuilder,
    clock: Arc<dyn Clock>,
    helper_pid: u32,
    pin_dir: PathBuf,
    version: String,
    poll_interval: Duration,
    hold: Duration,
    last_stamp_ns: u64,
    /// The offset in `gpu_meta`, an earlier bridge's until we wrote ours.
    published_offset_ns: Option<i64>,
    /// Devices, a bit each, that were said not to answer.
    silent: u32,
    left_out_warned: bool,
    failure: Option<Failure>,
    observer: Box<dyn Observer>,
    phase: Phase,
    /// What is published, in words.
    publishing: String,
    tally: Tally,
    /// Failed calls at the last summary.
    failures_before: BTreeMap<String, u64>,
}

/// A publishing failure that goes on.
#[derive(Debug)]
struct Failure {
    count: u64,
    said_at: Instant,
}

/// What happened since the last summary.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rounds: u64,
    late: u64,
    /// Since the source was opened.
    skipped: u64,
    skipped_before: u64,
    processes: usize,
    /// Over all devices, since the source was opened.
    time_in_source: Duration,
    time_in_source_before: Duration,
}

impl Outlet {
    pub(crate) fn new(publisher: Publisher, plan: &Plan, observer: Box<dyn Observer>) -> Self {
        let published_offset_ns = publisher.meta().map(|meta| meta.clock_offset_ns);
        let mut outlet = Self {
            publisher,
            builder: RecordBuilder::default(),
            clock: Arc::clone(&plan.clock),
            helper_pid: plan.maps.helper_pid,
            pin_dir: plan.maps.pin_dir.clone(),
            version: plan.version.clone(),
            poll_interval: plan.poll_interval,
            hold: SHORTEST_HOLD.max(plan.poll_interval.saturating_mul(3)),
            last_stamp_ns: 0,
            published_offset_ns,
            silent: 0,
            left_out_warned: false,
            failure: None,
            observer,
            phase: Phase::Starting,
            publishing: String::new(),
            tally: Tally::default(),
            failures_before: BTreeMap::new(),
        };
        let started_boottime_ns = outlet.clock.boottime_ns();
        let state = GpuBridgeState {
            version: gpu_types::GPU_BRIDGE_STATE_VERSION,
            phase: gpu_types::GPU_BRIDGE_STARTING,
            helper_pid: outlet.helper_pid,
            poll_interval_ns: outlet.poll_interval.as_nanos() as u64,
            started_boottime_ns,
            alive_boottime_ns: started_boottime_ns,
            bridge_version: text(&outlet.version),
            ..GpuBridgeState::default()
        };
        // The sequence is the publisher's.
        outlet.publisher.set_state(|current| *current = GpuBridgeState { sequence: current.sequence, ..state });
        outlet
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// How long a device that does not answer keeps its last record.
    pub(crate) fn hold(&self) -> Duration {
        self.hold
    }

    /// A number that differs between machines.
    pub(crate) fn noise(&self) -> u64 {
        self.clock.now().realtime_ns() / 1_000
    }

    /// A source was opened: says so, and describes its devices.
    pub(crate) fn opened(&mut self, opened: &Opened, kind: SourceKind) {
        let Opened { info, devices } = opened;
        let driver = info.driver_version.as_ref().map(|version| format!(", driver {version}")).unwrap_or_default();
        let library = info.library.as_ref().map(|library| format!(" from {library}")).unwrap_or_default();
        let described: Vec<_> = devices
            .iter()
            .map(|device| {
                let parts = [device.name.as_str(), device.uuid.as_str(), device.pci_bus_id.as_str()];
                let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                format!("{} {}", device.index, parts.join(" "))
            })
            .collect();
        log::info!(
            "gpu-ebpf-bridge {}: source {}{driver}{library}, {} devices ({}), maps in {}, every {:?}",
            self.version,
            info.name,
            devices.len(),
            described.join("; "),
            self.pin_dir.display(),
            self.poll_interval,
        );
        let source = match kind {
            SourceKind::Real => gpu_types::GPU_BRIDGE_SOURCE_REAL,
            SourceKind::Mock => gpu_types::GPU_BRIDGE_SOURCE_MOCK,
            SourceKind::MockFallback => gpu_types::GPU_BRIDGE_SOURCE_MOCK_FALLBACK,
        };
        let invented = if kind == SourceKind::Real { "" } else { ", INVENTED DATA" };
        self.publishing = format!("publishing {} devices of {}{driver}{invented}", devices.len(), info.name);
        self.silent = 0;
        // A newly opened source counts from 0.
        self.tally = Tally { skipped_before: 0, time_in_source_before: Duration::ZERO, ..self.tally };
        self.failures_before.clear();
        self.publisher.set_state(|state| {
            state.source = source;
            state.driver_version = text(info.driver_version.as_deref().unwrap_or_default());
            state.devices = [GpuBridgeDevice::default(); gpu_types::GPU_MAX_DEVICES as usize];
            for device in devices {
                let Some(slot) = state.devices.get_mut(device.index as usize) else { continue };
                slot.uuid = text(&device.uuid);
                slot.pci_bus_id = text(&device.pci_bus_id);
                slot.name = text(&device.name);
                slot.vendor_id = device.vendor_id;
            }
            state.n_devices = devices.len() as u32;
        });
    }

    /// Makes the maps equal `round`, unless none of its devices' readings counts any more.
    pub(crate) fn publish(&mut self, round: &Round) -> Outcome {
        let now = self.clock.now();
        if !round.has_news || !round.devices.iter().any(|device| is_held(device, now, self.hold)) {
            // Nothing is published, but the state says how the devices are.
            self.describe(round, now);
            return Outcome::Nothing;
        }
        match self.try_publish(round, now) {
            Ok(()) => {
                if let Some(failure) = self.failure.take() {
                    log::info!("publishing works again after {} failures", failure.count);
                }
                Outcome::Published
            }
            Err(error) => {
                self.note_failure(&error);
                Outcome::Failed
            }
        }
    }

    fn try_publish(&mut self, round: &Round, now: Now) -> Result<(), PublishError> {
        if let Some(offset) = self.published_offset_ns
            && offset.abs_diff(now.clock_offset_ns) > CLOCK_STEP_NS
        {
            log::info!("the wall clock was set by {:+.3} s", (now.clock_offset_ns - offset) as f64 / 1e9);
            self.publisher.step_clock(now.clock_offset_ns)?;
        }
        let frame = Frame { now, hold: self.hold, last_stamp_ns: self.last_stamp_ns, helper_pid: self.helper_pid };
        self.builder.fill(round, &frame);
        self.note_left_out();
        // The state first: whoever sees a fresh `gpu_meta` finds its devices described.
        self.describe(round, now);
        if self.phase != Phase::Publishing {
            self.publisher.set_state(|state| state.phase = gpu_types::GPU_BRIDGE_PUBLISHING);
        }
        match self.publisher.publish(&self.builder.records) {
            Ok(published) => log::debug!("{published:?}"),
            Err(error) => {
                let phase = number(self.phase);
                self.publisher.set_state(|state| state.phase = phase);
                return Err(error);
            }
        }
        self.last_stamp_ns = self.builder.records.meta.last_update_boottime_ns;
        self.published_offset_ns = Some(now.clock_offset_ns);
        self.note_silent(round, now);
        if self.phase != Phase::Publishing {
            let text = std::mem::take(&mut self.publishing);
            if self.phase == Phase::Waiting {
                log::info!("{text}");
            }
            self.enter(Phase::Publishing, &text);
            self.publishing = text;
        }
        Ok(())
    }

    fn describe(&mut self, round: &Round, now: Now) {
        let (hold, left_out) = (self.hold, self.builder.left_out as u32);
        let tally = &mut self.tally;
        tally.rounds += 1;
        tally.skipped = round.skipped_ticks;
        tally.time_in_source = Duration::from_nanos(round.devices.iter().map(|device| device.time_in_source_ns).sum());
        tally.processes = self.builder.records.processes.len();
        self.publisher.set_state(|state| {
            state.processes_left_out = left_out;
            state.skipped_ticks = round.skipped_ticks;
            let mut late = false;
            for device in &round.devices {
                let Some(slot) = state.devices.get_mut(device.index as usize) else { continue };
                slot.phase = if round.has_news && device.answered_boottime_ns >= round.started_boottime_ns {
                    gpu_types::GPU_BRIDGE_DEVICE_ANSWERING
                } else if is_held(device, now, hold) {
                    late = true;
                    gpu_types::GPU_BRIDGE_DEVICE_LATE
                } else {
                    gpu_types::GPU_BRIDGE_DEVICE_LOST
                };
                slot.metrics_present = metrics_present(&device.reading.metrics);
            }
            state.late_ticks += u64::from(late);
            tally.late += u64::from(late);
        });
    }

    /// Says which devices do not answer while others do, once each. One that says itself that it is lost has been told of by its lane.
    fn note_silent(&mut self, round: &Round, now: Now) {
        for device in &round.devices {
            let bit = 1_u32.checked_shl(device.index).unwrap_or(0);
            let is_silent = !device.lost && !is_held(device, now, self.hold);
            if is_silent && self.silent & bit == 0 {
                log::warn!(
                    "device {} has not answered for {:?}: its slot is empty until it does; the others go on",
                    device.index,
                    self.hold
                );
                self.silent |= bit;
            } else if !is_silent && self.silent & bit != 0 {
                if !device.lost {
                    log::info!("device {} answers again", device.index);
                }
                self.silent &= !bit;
            }
        }
    }

    /// Empties the maps, but for `gpu_meta`, which grows stale; the bridge is in `phase` from now on, for the reason in `text`.
    pub(crate) fn withdraw(&mut self, phase: Phase, text: &str) {
        if let Err(error) = self.publisher.withdraw() {
            self.note_failure(&error);
        }
        self.publisher.set_state(|state| {
            for device in &mut state.devices {
                if device.phase != gpu_types::GPU_BRIDGE_DEVICE_ABSENT {
                    device.phase = gpu_types::GPU_BRIDGE_DEVICE_LOST;
                }
            }
        });
        self.enter(phase, text);
    }

    fn enter(&mut self, phase: Phase, text: &str) {
        self.phase = phase;
        self.publisher.set_state(|state| state.phase = number(phase));
        self.observer.phase(phase, text);
    }

    /// The loop goes round.
    pub(crate) fn alive(&mut self) {
        let now = self.clock.boottime_ns();
        self.publisher.set_state(|state| state.alive_boottime_ns = now);
        self.observer.alive();
    }

    /// One line on what happened since the last one.
    pub(crate) fn summarise(&mut self, round: Option<&Round>) {
        let failures = failures_by_call(round);
        let Tally { rounds, late, skipped, time_in_source, processes, .. } = self.tally;
        log::info!(
            "{rounds} rounds, {late} with a late device, {} ticks skipped, {:.1?} in the source's calls, {}; now {} devices, {processes} processes, {} left out",
            skipped.saturating_sub(self.tally.skipped_before),
            time_in_source.saturating_sub(self.tally.time_in_source_before),
            describe_failures(&failures, &self.failures_before),
            self.builder.devices,
            self.builder.left_out,
        );
        self.failures_before = failures;
        self.tally = Tally {
            skipped,
            skipped_before: skipped,
            processes,
            time_in_source,
            time_in_source_before: time_in_source,
            ..Tally::default()
        };
    }

    pub(crate) fn check_pins(&mut self) {
        match self.publisher.check_pins() {
            Ok(events) => events.iter().for_each(|event| log::warn!("{event}")),
            Err(error) => self.note_failure(&error),
        }
    }

    pub(crate) fn close(mut self, keep_pins: bool) -> Result<(), PublishError> {
        self.observer.phase(Phase::Stopping, "stopping");
        self.publisher.close(keep_pins)
    }

    fn note_left_out(&mut self) {
        let left_out = self.builder.left_out;
        if left_out > 0 && !self.left_out_warned {
            log::warn!("{left_out} processes do not fit into the maps and are left out: those with the least GPU memory");
        }
        self.left_out_warned = left_out > 0;
    }

    /// One line, then a count a minute.
    fn note_failure(&mut self, error: &PublishError) {
        let now = Instant::now();
        let Some(failure) = &mut self.failure else {
            log::error!("cannot publish: {}", chain(error));
            self.failure = Some(Failure { count: 1, said_at: now });
            return;
        };
        failure.count += 1;
        if now - failure.said_at >= REPEAT_INTERVAL {
            failure.said_at = now;
            log::error!("cannot publish, {} times so far: {}", failure.count, chain(error));
        }
    }
}

/// The failed calls of all devices, since the source was opened.
fn failures_by_call(round: Option<&Round>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for failures in round.into_iter().flat_map(|round| &round.devices).flat_map(|device| &device.reading.failures) {
        *counts.entry(failures.call.clone()).or_default() += failures.count;
    }
    counts
}

fn describe_failures(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> String {
    let new = now.iter().map(|(call, count)| (call, count.saturating_sub(before.get(call).copied().unwrap_or(0))));
    let new: Vec<String> = new.filter(|(_, count)| *count > 0).map(|(call, count)| format!("{call} {count}")).collect();
    if new.is_empty() { "none failed".to_owned() } else { format!("failed: {}", new.join(", ")) }
}

/// The phase as `gpu_bridge_state` has it.
const fn number(phase: Phase) -> u32 {
    match phase {
        Phase::Starting => gpu_types::GPU_BRIDGE_STARTING,
        Phase::Publishing => gpu_types::GPU_BRIDGE_PUBLISHING,
        Phase::Waiting => gpu_types::GPU_BRIDGE_WAITING,
        Phase::Idle => gpu_types::GPU_BRIDGE_IDLE,
        Phase::Stopping => gpu_types::GPU_BRIDGE_STOPPING,
    }
}

/// A NUL-terminated text for a C array, cut where it does not fit.
fn text<const N: usize>(value: &str) -> [u8; N] {
    let mut array = [0; N];
    let end = floor_char_boundary(value, N - 1);
    array[..end].copy_from_slice(&value.as_bytes()[..end]);
    array
}

fn floor_char_boundary(value: &str, limit: usize) -> usize {
    (0..=limit.min(value.len())).rev().find(|&end| value.is_char_boundary(end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use telemetry::{Failures, Reading};

    use super::{describe_failures, failures_by_call, text};
    use crate::sampler::{DeviceReading, Round};

    /// A round of devices whose calls have failed so often.
    fn round(devices: &[&[(&str, u64)]]) -> Round {
        let device = |failures: &&[(&str, u64)]| {
            let failures = failures.iter().map(|&(call, count)| Failures { call: call.to_owned(), count }).collect();
            DeviceReading { reading: Reading { failures, ..Reading::default() }, ..DeviceReading::default() }
        };
        Round { devices: devices.iter().map(device).collect(), ..Round::default() }
    }

    #[test]
    fn failed_calls_are_summed_over_devices_and_counted_since_the_last_summary() {
        let none = failures_by_call(None);
        assert_eq!(describe_failures(&none, &none), "none failed");
        let first = failures_by_call(Some(&round(&[&[("Power", 7), ("Fan", 1)], &[], &[("Power", 3)]])));
        assert_eq!(describe_failures(&first, &none), "failed: Fan 1, Power 10");
        let second = failures_by_call(Some(&round(&[&[("Power", 607), ("Fan", 1)], &[], &[("Power", 3)]])));
        assert_eq!(describe_failures(&second, &first), "failed: Power 600");
        assert_eq!(describe_failures(&second, &second), "none failed");
    }

    #[test]
    fn a_text_that_does_not_fit_is_cut_between_characters_and_terminated() {
        assert_eq!(text::<4>("ab"), *b"ab\0\0");
        assert_eq!(text::<4>("abcdef"), *b"abc\0");
        assert_eq!(text::<4>("abé"), *b"ab\0\0");
    }
}
