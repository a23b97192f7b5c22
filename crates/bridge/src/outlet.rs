//! The publishing end of the loop: rounds in, maps written, `gpu_bridge_state` kept.

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use gpu_types::GpuBridgeState;
use map_publisher::{PublishError, Publisher};
use telemetry::{CLOCK_STEP_NS, Now};

use crate::{
    clock::Clock,
    describe::{self, Listed, text},
    plan::{Observer, Phase, Plan},
    records::{Frame, News, Part, RecordBuilder, is_held},
    tally::SourceSummary,
    trouble::Trouble,
};

/// A device that does not answer keeps its last record for this long, or for 3 intervals.
const SHORTEST_HOLD: Duration = Duration::from_millis(500);

/// What became of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The maps are equal to it.
    Published,
    /// It could not be written.
    Failed,
    /// No device has answered, or its answers are from before its hold: there is nothing to publish.
    Nothing,
}

/// What became of a tick, and of which of its parts devices have answered: a bit each, from the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) outcome: Outcome,
    pub(crate) answered: u32,
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
    publishing_trouble: Trouble,
    pins_trouble: Trouble,
    observer: Box<dyn Observer>,
    phase: Phase,
    /// What is published, in words.
    publishing: String,
    /// The observer has to hear of other words.
    publishing_changed: bool,
    /// Whose devices which are, where there are several sources: what they are called by in the log.
    owners: Vec<(Range<u32>, &'static str)>,
    skipped_ticks: u64,
    tally: Tally,
}

/// What happened since the last summary, whatever the sources.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rounds: u64,
    late: u64,
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
            publishing_trouble: Trouble::with("publish"),
            pins_trouble: Trouble::with("look after the pins"),
            observer,
            phase: Phase::Starting,
            publishing: String::new(),
            publishing_changed: false,
            owners: Vec::new(),
            skipped_ticks: 0,
            tally: Tally::default(),
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

    /// A source was opened: says so.
    pub(crate) fn announce(&self, source: &Listed<'_>) {
        let info = &source.opened.info;
        let library = info.library.as_ref().map(|library| format!(" from {library}")).unwrap_or_default();
        let described: Vec<_> = source.devices().map(|(index, device)| format!("{index} {}", describe::in_words(device))).collect();
        log::info!(
            "gpu-ebpf-bridge {}: source {}{}{library}, {} devices ({}), maps in {}, every {:?}",
            self.version,
            info.name,
            source.driver(),
            described.len(),
            described.join("; "),
            self.pin_dir.display(),
            self.poll_interval,
        );
    }

    /// Describes what is, and was, open.
    pub(crate) fn list(&mut self, sources: &[Listed<'_>], kind: SourceKind) {
        let source_number = match kind {
            SourceKind::Real => gpu_types::GPU_BRIDGE_SOURCE_REAL,
            SourceKind::Mock => gpu_types::GPU_BRIDGE_SOURCE_MOCK,
            SourceKind::MockFallback => gpu_types::GPU_BRIDGE_SOURCE_MOCK_FALLBACK,
        };
        self.publisher.set_state(|state| {
            state.source = source_number;
            describe::list(state, sources);
        });

        let open: Vec<String> = sources
            .iter()
            .filter(|source| source.is_open)
            .map(|source| format!("{} devices of {}{}", source.opened.devices.len(), source.opened.info.name, source.driver()))
            .collect();
        let invented = if kind == SourceKind::Real { "" } else { ", INVENTED DATA" };
        self.publishing = format!("publishing {}{invented}", open.join("; "));
        self.publishing_changed = true;

        let range =
            |source: &Listed<'_>| match (source.devices().map(|(index, _)| index).min(), source.devices().map(|(index, _)| index).max()) {
                (Some(first), Some(last)) => first..last + 1,
                _ => 0..0,
            };
        for index in sources.iter().filter(|source| source.is_new).flat_map(range) {
            self.silent &= !bit(index);
        }
        self.owners.clear();
        if sources.len() > 1 {
            self.owners.extend(sources.iter().map(|source| (range(source), source.name)));
        }
    }

    /// Makes the maps equal the parts, unless none of their devices' readings counts any more.
    ///
    /// Since the start, `skipped_ticks` ticks passed without a round.
    pub(crate) fn publish(&mut self, parts: &[Part<'_>], skipped_ticks: u64) -> Tick {
        self.skipped_ticks = skipped_ticks;
        let now = self.clock.now();
        let answers =
            |part: &Part<'_>| part.news != News::Nothing && part.round.devices.iter().any(|device| is_held(device, now, self.hold));
        let answered = (0..).zip(parts).map(|(number, part)| u32::from(answers(part)) << number).sum();
        let has_slot = |(index, device)| index < gpu_types::GPU_MAX_DEVICES && is_held(device, now, self.hold);
        if answered == 0 || !parts.iter().copied().flat_map(Part::devices).any(has_slot) {
            // Nothing is published, but the state says how the devices are.
            self.note_devices(parts, now);
            return Tick { outcome: Outcome::Nothing, answered };
        }
        let outcome = match self.try_publish(parts, now) {
            Ok(()) => {
                self.publishing_trouble.worked();
                Outcome::Published
            }
            Err(error) => {
                self.publishing_trouble.failed(&error);
                Outcome::Failed
            }
        };
        Tick { outcome, answered }
    }

    fn try_publish(&mut self, parts: &[Part<'_>], now: Now) -> Result<(), PublishError> {
        self.fill(parts, now);
        self.note_left_out();
        // State and maps are one picture. The state first: whoever sees a fresh `gpu_meta` finds its devices described.
        self.publisher.hold_readers();
        self.note_devices(parts, now);
        if self.phase != Phase::Publishing {
            self.publisher.set_state(|state| state.phase = gpu_types::GPU_BRIDGE_PUBLISHING);
        }
        let written = self.write(now);
        if written.is_err() {
            let phase = number(self.phase);
            self.publisher.set_state(|state| state.phase = phase);
        }
        self.publisher.release_readers();
        written?;
        self.note_silent(parts, now);
        if self.phase != Phase::Publishing || self.publishing_changed {
            let text = std::mem::take(&mut self.publishing);
            if self.phase == Phase::Waiting {
                log::info!("{text}");
            }
            self.enter(Phase::Publishing, &text);
            self.publishing = text;
            self.publishing_changed = false;
        }
        Ok(())
    }

    /// Makes records of the parts.
    fn fill(&mut self, parts: &[Part<'_>], now: Now) {
        let frame = Frame { now, hold: self.hold, last_stamp_ns: self.last_stamp_ns, helper_pid: self.helper_pid };
        self.builder.fill(parts, &frame);
    }

    /// Publishes the records. Where the wall clock was stepped, consumers are told of that first.
    fn write(&mut self, now: Now) -> Result<(), PublishError> {
        if let Some(offset) = self.published_offset_ns
            && offset.abs_diff(now.clock_offset_ns) > CLOCK_STEP_NS
        {
            log::info!("the wall clock was set by {:+.3} s", (now.clock_offset_ns - offset) as f64 / 1e9);
            self.publisher.step_clock(now.clock_offset_ns)?;
            self.published_offset_ns = Some(now.clock_offset_ns);
        }
        let published = self.publisher.publish(&self.builder.records)?;
        log::debug!("{published:?}");
        self.last_stamp_ns = self.builder.records.meta.last_update_boottime_ns;
        self.published_offset_ns = Some(now.clock_offset_ns);
        Ok(())
    }

    fn note_devices(&mut self, parts: &[Part<'_>], now: Now) {
        let (hold, left_out, skipped_ticks) = (self.hold, self.builder.left_out as u32, self.skipped_ticks);
        let tally = &mut self.tally;
        tally.rounds += 1;
        self.publisher.set_state(|state| {
            state.processes_left_out = left_out;
            state.skipped_ticks = skipped_ticks;
            let late = describe::note_devices(state, parts, now, hold);
            state.late_ticks += u64::from(late);
            tally.late += u64::from(late);
        });
    }

    /// Says which devices do not answer while others of their source do, once each. One that says itself that it is lost has been told of by its lane.
    fn note_silent(&mut self, parts: &[Part<'_>], now: Now) {
        for (index, device) in parts.iter().filter(|part| part.news != News::Nothing).flat_map(|part| part.devices()) {
            let bit = bit(index);
            let is_silent = !device.lost && !is_held(device, now, self.hold);
            if is_silent && self.silent & bit == 0 {
                log::warn!(
                    "device {index}{} has not answered for {:?}: its slot is empty until it does; the others go on",
                    self.owner(index),
                    self.hold
                );
                self.silent |= bit;
            } else if !is_silent && self.silent & bit != 0 {
                if !device.lost {
                    log::info!("device {index}{} answers again", self.owner(index));
                }
                self.silent &= !bit;
            }
        }
    }

    /// ` of drm`, where there are several sources.
    fn owner(&self, index: u32) -> String {
        let owner = self.owners.iter().find(|(indices, _)| indices.contains(&index));
        owner.map(|(_, name)| format!(" of {name}")).unwrap_or_default()
    }

    /// Takes everything but `rest` out of the maps at once, with the stamp that they have; the devices with an index in `lost` are lost.
    pub(crate) fn retract(&mut self, rest: &[Part<'_>], lost: Range<u32>) {
        self.publisher.hold_readers();
        self.publisher.set_state(|state| describe::lose(state, lost));
        if self.phase == Phase::Publishing {
            let now = self.clock.now();
            self.fill(rest, now);
            if let Err(error) = self.write(now) {
                self.publishing_trouble.failed(&error);
            }
        }
        self.publisher.release_readers();
    }

    /// Empties the maps, but for `gpu_meta`, which grows stale; the bridge is in `phase` from now on, for the reason in `text`.
    pub(crate) fn withdraw(&mut self, phase: Phase, text: &str) {
        self.publisher.hold_readers();
        self.publisher.set_state(|state| {
            state.phase = number(phase);
            describe::lose(state, 0..gpu_types::GPU_MAX_DEVICES);
        });
        if let Err(error) = self.publisher.withdraw() {
            self.publishing_trouble.failed(&error);
        }
        self.publisher.release_readers();
        self.enter(phase, text);
    }

    fn enter(&mut self, phase: Phase, text: &str) {
        self.phase = phase;
        self.publisher.set_state(|state| state.phase = number(phase));
        self.observer.phase(phase, text);
    }

    /// The loop goes round.
    pub(crate) fn alive(&mut self) {
        self.observer.alive();
    }

    /// One line on what happened since the last one, for the source that there is, or for each.
    pub(crate) fn summarise(&mut self, sources: &[(&'static str, SourceSummary)]) {
        let each = sources.iter().map(|(name, SourceSummary { skipped, time_in_source, failures })| match sources {
            [_] => format!(", {skipped} ticks skipped, {time_in_source:.1?} in the source's calls, {failures}"),
            _ => format!("; {name}: {skipped} ticks skipped, {time_in_source:.1?} in its calls, {failures}"),
        });
        let Tally { rounds, late } = std::mem::take(&mut self.tally);
        log::info!(
            "{rounds} rounds, {late} with a late device{}; now {} devices, {} processes, {} left out",
            each.collect::<String>(),
            self.builder.devices,
            self.builder.records.processes.len(),
            self.builder.left_out,
        );
    }

    /// Looks after the pins, and says in the state that the loop goes round: what is done about once a second, not at every tick.
    pub(crate) fn check_pins(&mut self) {
        let now = self.clock.boottime_ns();
        self.publisher.set_state(|state| state.alive_boottime_ns = now);
        match self.publisher.check_pins() {
            Ok(events) => {
                events.iter().for_each(|event| log::warn!("{event}"));
                self.pins_trouble.worked();
            }
            Err(error) => self.pins_trouble.failed(&error),
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
}

/// The device's bit in a mask of all that have a slot.
const fn bit(index: u32) -> u32 {
    match 1_u32.checked_shl(index) {
        Some(bit) => bit,
        None => 0,
    }
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
