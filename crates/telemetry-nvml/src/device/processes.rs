//! The device's processes: three lists, with MIG one of each for an instance, and the driver's samples of them.

use std::time::Duration;

use telemetry::{Answer, DeviceError, Now, Reading};

use super::{
    calls::{Call, Calls, Outcome},
    scratch::Scratch,
};
use crate::{
    pure::{
        clock::Cursor,
        processes::{ListKind, Processes},
        rhythm::Wait,
        samples::fold,
    },
    sys::{Code, Gpu, ListVersion, ProcessBuffer},
};

/// Assumed until the driver's rhythm is known: about once a second.
const ASSUMED_PERIOD: Duration = Duration::from_secs(1);
/// A list of graphics or MPS processes that was empty is asked for less often: most servers never have any.
const EMPTY_WAIT: Duration = Duration::from_millis(500);
/// Until somebody is listed: the wait is looked at anew at every opportunity.
const NOBODY_WAIT: Duration = Duration::from_secs(3_600);
/// MIG instances come and go by an administrator's hand.
const MIG_DEVICES_KEPT_NS: u64 = 5_000_000_000;

/// How a list is read.
#[derive(Clone, Copy, Debug)]
struct ListWay {
    version: ListVersion,
    /// The parent of MIG devices does not tell: each of them is asked.
    per_instance: bool,
}

/// A MIG device, with its GPU instance and the compute instance within it.
#[derive(Debug)]
struct MigDevice {
    gpu: Gpu,
    instance: Option<u8>,
    compute_instance: Option<u8>,
}

/// The MIG devices as they were last looked up.
#[derive(Debug, Default)]
struct MigDevices {
    devices: Vec<MigDevice>,
    looked_up_ns: Option<u64>,
}

/// What is remembered of the device's processes.
#[derive(Debug)]
pub(crate) struct ProcessProbes {
    processes: Processes,
    ways: [ListWay; 3],
    mig: MigDevices,
    cursor: Cursor,
    utilization_wait: Wait,
}

impl Default for ProcessProbes {
    fn default() -> Self {
        Self {
            processes: Processes::default(),
            ways: [ListWay { version: ListVersion::V3, per_instance: false }; 3],
            mig: MigDevices::default(),
            cursor: Cursor::default(),
            utilization_wait: Wait::NONE,
        }
    }
}

const fn call_of(kind: ListKind) -> Call {
    match kind {
        ListKind::Compute => Call::ComputeProcesses,
        ListKind::Graphics => Call::GraphicsProcesses,
        ListKind::Mps => Call::MpsProcesses,
    }
}

impl ProcessProbes {
    pub(crate) fn list_wait(&self, kind: ListKind) -> Duration {
        if kind != ListKind::Compute && self.processes.is_empty(kind) { EMPTY_WAIT } else { Duration::ZERO }
    }

    /// While the lists name nobody, the dear call would tell of nobody whom they know. When they do, it is due as ever.
    pub(crate) fn utilization_wait(&self) -> Duration {
        if self.processes.nobody_is_listed() { NOBODY_WAIT } else { self.utilization_wait.get() }
    }

    pub(crate) fn ask_list(
        &mut self,
        calls: &mut Calls,
        kind: ListKind,
        now: Now,
        reading: &mut Reading,
        scratch: &mut Scratch,
    ) -> Result<Answer, DeviceError> {
        scratch.rows.clear();
        let outcome = if self.ways[kind as usize].per_instance {
            self.read_instances(calls, kind, now, scratch)?
        } else {
            match self.read_device(calls, kind, scratch)? {
                Outcome::Never | Outcome::Failed(Code::NO_PERMISSION) if calls.gpu().mig_is_enabled() == Ok(true) => {
                    self.ways[kind as usize].per_instance = true;
                    self.read_instances(calls, kind, now, scratch)?
                }
                outcome => outcome,
            }
        };
        match outcome {
            Outcome::Value(()) => self.processes.read(kind, now, &scratch.rows),
            Outcome::Failed(_) => self.processes.failed(kind, now),
            Outcome::Never => self.processes.unsupported(kind),
        }
        self.processes.write(now, &mut reading.processes);
        Ok(if outcome.is_never() { Answer::NotSupported } else { Answer::Answered })
    }

    fn read_device(&mut self, calls: &mut Calls, kind: ListKind, scratch: &mut Scratch) -> Result<Outcome<()>, DeviceError> {
        let version = &mut self.ways[kind as usize].version;
        calls.ask(call_of(kind), |gpu| read_list(gpu, kind, version, scratch))
    }

    /// Reads the list of each MIG device. `Never` only when each says so.
    fn read_instances(&mut self, calls: &mut Calls, kind: ListKind, now: Now, scratch: &mut Scratch) -> Result<Outcome<()>, DeviceError> {
        let Self { ways, mig, .. } = self;
        mig.refresh(calls.gpu(), now)?;
        let version = &mut ways[kind as usize].version;
        let (mut was_read, mut failure) = (mig.devices.is_empty(), None);
        for MigDevice { gpu, instance, compute_instance } in &mig.devices {
            let start = scratch.rows.len();
            match read_list(gpu, kind, version, scratch) {
                Ok(()) => {
                    was_read = true;
                    scratch.rows[start..].iter_mut().for_each(|row| {
                        row.mig_instance = row.mig_instance.or(*instance);
                        row.compute_instance = row.compute_instance.or(*compute_instance);
                    });
                }
                Err(code) if code.is_source_gone() => {
                    return Err(DeviceError::SourceGone(format!("{kind:?} list of a MIG device: {code}")));
                }
                Err(code) if code.is_never() => {}
                Err(code) => failure = Some(code),
            }
        }
        Ok(match failure {
            Some(code) => {
                // The instance may be gone.
                mig.looked_up_ns = None;
                Outcome::Failed(code)
            }
            None if was_read => Outcome::Value(()),
            None => Outcome::Never,
        })
    }

    pub(crate) fn ask_utilization(
        &mut self,
        calls: &mut Calls,
        now: Now,
        reading: &mut Reading,
        buffer: &mut ProcessBuffer,
    ) -> Result<Answer, DeviceError> {
        let is_new = self.read_samples(calls, now, buffer)?;
        if is_new {
            self.processes.sampled(&buffer.folded);
        }
        let period = self.processes.driver_period().unwrap_or(ASSUMED_PERIOD);
        let newest = buffer.folded.iter().map(|(_, sample)| sample.sampled.boottime_ns()).max();
        match newest.filter(|_| is_new) {
            Some(newest_ns) => self.utilization_wait.found(newest_ns, now.boottime_ns, period),
            None => self.utilization_wait.nothing(period),
        }
        reading.process_sample_period = self.processes.process_period();
        self.processes.write(now, &mut reading.processes);
        let is_never = calls.is_never(Call::ProcessUtilization) && calls.is_never(Call::ProcessesUtilizationInfo);
        Ok(if is_never { Answer::NotSupported } else { Answer::Answered })
    }

    /// Reads the samples that are new, folded; whether there are any.
    fn read_samples(&mut self, calls: &mut Calls, now: Now, buffer: &mut ProcessBuffer) -> Result<bool, DeviceError> {
        let since_us = self.cursor.since(now);
        let mut outcome = calls.ask(Call::ProcessUtilization, |gpu| gpu.process_utilization(since_us, buffer))?;
        if outcome.is_never() {
            outcome = calls.ask(Call::ProcessesUtilizationInfo, |gpu| gpu.processes_utilization_info(since_us, buffer))?;
        }
        if !matches!(outcome, Outcome::Value(())) {
            return Ok(false);
        }
        let ProcessBuffer { rows, folded, .. } = buffer;
        fold(rows, since_us, now, folded);
        // Rows that were not believed do not move the cursor.
        for (_, sample) in folded.iter() {
            self.cursor.note(sample.sampled, now);
        }
        Ok(!folded.is_empty())
    }
}

impl MigDevices {
    /// Looks the devices up where that was not done of late.
    fn refresh(&mut self, parent: &Gpu, now: Now) -> Result<(), DeviceError> {
        if self.looked_up_ns.is_some_and(|looked_up_ns| now.boottime_ns.saturating_sub(looked_up_ns) < MIG_DEVICES_KEPT_NS) {
            return Ok(());
        }
        self.looked_up_ns = Some(now.boottime_ns);
        self.devices.clear();
        let gone = |code: Code| DeviceError::SourceGone(format!("MIG devices: {code}"));
        let most = match parent.most_mig_devices() {
            Err(code) if code.is_source_gone() => return Err(gone(code)),
            answer => answer.unwrap_or(0),
        };
        for index in 0..most {
            match parent.mig_device(index) {
                Ok(gpu) => {
                    let narrow = |id: Result<u32, Code>| id.ok().and_then(|id| u8::try_from(id).ok());
                    let (instance, compute_instance) = (narrow(gpu.gpu_instance_id()), narrow(gpu.compute_instance_id()));
                    self.devices.push(MigDevice { gpu, instance, compute_instance });
                }
                Err(code) if code.is_source_gone() => return Err(gone(code)),
                // Indices are not all taken.
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Reads a list through the newest symbol that the library has, which `version` remembers.
fn read_list(gpu: &Gpu, kind: ListKind, version: &mut ListVersion, scratch: &mut Scratch) -> Result<(), Code> {
    loop {
        match (gpu.process_list(kind, *version, &mut scratch.list, &mut scratch.rows), version.older()) {
            (Err(Code::FUNCTION_NOT_FOUND | Code::ARGUMENT_VERSION_MISMATCH), Some(older)) => *version = older,
            (result, _) => return result,
        }
    }
}
