//! The maps of one pin directory, and the one who may write them.

use gpu_types::{GPU_BRIDGE_STOPPING, GpuBridgeState, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

use crate::directory::PinDirectory;
use crate::map::{DeviceMap, MetaMap, ProcessMap, StateMap};
use crate::open::{Opened, open};
use crate::pin::{Access, Pin};
use crate::watch::Reports;
use crate::{Options, PublishError, Published, Records, create};

/// How many rounds are read back, each, after a map was taken over.
const READ_BACK_ROUNDS: u32 = 10;
/// How often the maps are read back after that.
const READ_BACK_PERIOD_NS: u64 = 1_000_000_000;

/// Holds the pin directory's lock and writes its maps.
///
/// Dropping it without [`close`](Self::close) releases the lock and leaves maps and pins as they are, as a crash would.
#[derive(Debug)]
pub struct Publisher {
    pub(crate) directory: PinDirectory,
    pub(crate) access: Access,
    pub(crate) meta: MetaMap,
    pub(crate) devices: DeviceMap,
    pub(crate) processes: ProcessMap<u32, GpuPidMetricsAggregated>,
    pub(crate) process_devices: ProcessMap<u64, GpuPidMetrics>,
    pub(crate) state: Option<StateMap>,
    pub(crate) reports: Reports,
    /// Rounds that are still to be read back, each.
    read_back_rounds: u32,
    /// When the maps were read back last.
    read_back_boottime_ns: u64,
}

/// It may be opened by one thread and used by another.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Publisher>();
};

impl Publisher {
    /// Takes the pin directory: its lock, the compatible maps that are pinned in it (their ids stay), and new ones for what is missing.
    ///
    /// What an earlier bridge left in the maps stays until the first [`publish`](Self::publish), which removes it before it writes `gpu_meta`.
    /// When anything stands in the way (no BPF file system, another bridge, a map of another make, want of privilege) nothing is changed.
    /// Without `gpu_bridge_state` (when something else is at its place) a warning is logged and the other four are published.
    ///
    /// From the first call on, libbpf's own messages go to `log` at debug level, in the whole process. When the kernel refuses a map for want of
    /// locked memory (before 5.11), the process's limit is raised.
    ///
    /// # Errors
    /// What stood in the way: [`PublishError::Held`] and [`PublishError::ForeignWriter`] name another who publishes there; the others tell what is
    /// wrong with the directory, a map or the privileges.
    pub fn open(options: &Options) -> Result<Self, PublishError> {
        create::route_libbpf_output();
        let Opened { directory, meta, devices, processes, process_devices, state } = open(options)?;
        Ok(Self {
            directory,
            access: options.access(),
            meta: MetaMap::new(meta),
            devices: DeviceMap::new(devices),
            processes: ProcessMap::new(processes),
            process_devices: ProcessMap::new(process_devices),
            state,
            reports: Reports::default(),
            read_back_rounds: READ_BACK_ROUNDS,
            read_back_boottime_ns: 0,
        })
    }

    /// Makes the maps equal `records`: processes written, departed ones deleted, then the devices, then `gpu_meta`.
    ///
    /// Takes no heap memory once its buffers have grown, and at most six system calls, apart from the rounds that are read back, with two more: the
    /// first ten after maps were taken over, and then one a second.
    ///
    /// # Errors
    /// [`PublishError::Records`]: they are not as they must be, and nothing was written. [`PublishError::Entries`]: the kernel refused some; `gpu_meta`
    /// was not touched, nor the devices when it came from the processes, and everything that could be deleted was. The next call takes up what is amiss.
    pub fn publish(&mut self, records: &Records) -> Result<Published, PublishError> {
        records.check()?;
        self.hold_readers();
        let result = self.publish_round(records);
        if let Some(state) = self.state.as_mut().filter(|_| result.is_ok()) {
            state.shared.count_round();
        }
        self.release_readers();
        result
    }

    /// Readers of snapshots see nothing of what is done from here to [`release_readers`](Self::release_readers), and then all of it: for changes of
    /// maps and state that belong together. Nests.
    pub fn hold_readers(&mut self) {
        if let Some(state) = &mut self.state {
            state.shared.hold();
        }
    }

    /// The counterpart of [`hold_readers`](Self::hold_readers).
    pub fn release_readers(&mut self) {
        if let Some(state) = &mut self.state {
            state.shared.release();
        }
    }

    fn publish_round(&mut self, records: &Records) -> Result<Published, PublishError> {
        let (upserted, deleted) = self.publish_processes(records)?;
        let mut published = Published { upserted, deleted, ..Published::default() };

        let now = records.meta.last_update_boottime_ns;
        if self.read_back_rounds > 0 || now.wrapping_sub(self.read_back_boottime_ns) >= READ_BACK_PERIOD_NS {
            self.processes.read();
            self.process_devices.read();
            (published.rewritten, published.strangers_removed) = self.publish_processes(records)?;
            published.read_back = true;
            self.read_back_rounds = self.read_back_rounds.saturating_sub(1);
            self.read_back_boottime_ns = now;
            // The devices are not read back, but written whether they changed or not.
            self.devices.forget();
        }

        self.devices.write(&records.devices)?;
        self.meta.write(&records.meta)?;
        Ok(published)
    }

    /// Both maps are written before anything is deleted, and whatever fails, everything else is done. Returns how many entries were written and
    /// deleted.
    fn publish_processes(&mut self, records: &Records) -> Result<(usize, usize), PublishError> {
        let (written, written_by_device) =
            (self.processes.upsert(&records.processes), self.process_devices.upsert(&records.process_devices));
        let processes = written.and(self.processes.delete());
        let process_devices = written_by_device.and(self.process_devices.delete());
        let a = self.processes.conclude(&records.processes, processes.is_ok());
        let b = self.process_devices.conclude(&records.process_devices, process_devices.is_ok());
        processes.and(process_devices)?;
        Ok((a.0 + b.0, a.1 + b.1))
    }

    /// There is nothing to publish for now: empties the device slots and the per-process maps. `gpu_meta` is left to grow stale. Costs nothing when
    /// they are empty already.
    ///
    /// # Errors
    /// [`PublishError::Entries`]: the kernel refused some. All maps were attempted; this is the first error.
    pub fn withdraw(&mut self) -> Result<(), PublishError> {
        self.guarded(|publisher| {
            let devices = publisher.devices.clear();
            let processes = publisher.processes.clear();
            let process_devices = publisher.process_devices.clear();
            devices.and(processes).and(process_devices)
        })
    }

    /// What `gpu_meta` holds: what this publisher wrote last, until then what an earlier bridge left. None: nothing was ever published there.
    pub fn meta(&self) -> Option<GpuMeta> {
        self.meta.held()
    }

    /// The wall clock was stepped: takes what is of the old offset's time out of the maps, and then puts the new offset (REALTIME less BOOTTIME)
    /// into `gpu_meta`, with the stamp that it has. The device slots are emptied; the processes keep their memory and lose their sample. To be called
    /// before the first round after the step, also when that is the first of this publisher in adopted maps.
    ///
    /// # Errors
    /// [`PublishError::Entries`]: the kernel refused some. What comes after them was not done: `gpu_meta` has the old offset.
    pub fn step_clock(&mut self, clock_offset_ns: i64) -> Result<(), PublishError> {
        let Some(held) = self.meta.held() else { return Ok(()) };
        self.guarded(|publisher| {
            publisher.devices.clear()?;
            publisher.processes.rewrite(without_sample)?;
            publisher.process_devices.rewrite(without_sample_on_device)?;
            publisher.meta.write(&GpuMeta { clock_offset_ns, ..held })
        })
    }

    /// A change of several maps that is no round: readers of snapshots see all of it or nothing.
    fn guarded(&mut self, change: impl FnOnce(&mut Self) -> Result<(), PublishError>) -> Result<(), PublishError> {
        self.hold_readers();
        let result = change(self);
        self.release_readers();
        result
    }

    /// Changes `gpu_bridge_state` in one step, as readers see it, without a system call. `sequence` and `version` are set here, `rounds` is counted
    /// by [`publish`](Self::publish). Does nothing when that map could not be had.
    pub fn set_state(&mut self, update: impl FnOnce(&mut GpuBridgeState)) {
        if let Some(state) = &mut self.state {
            state.shared.update(update);
        }
    }

    /// Ends publishing. Without `keep_pins` the device slots and the per-process maps are emptied, for those who hold the maps open, and the pins
    /// removed that still lead to our maps; `gpu_meta` is left as it is. With `keep_pins` the data stays. In both cases `gpu_bridge_state` says
    /// stopping, and the lock is free.
    ///
    /// # Errors
    /// Something could not be emptied, unpinned or unlocked. All of it is attempted; this is the first error.
    pub fn close(mut self, keep_pins: bool) -> Result<(), PublishError> {
        self.set_state(|state| state.phase = GPU_BRIDGE_STOPPING);
        let mut result = Ok(());
        if !keep_pins {
            // Others may have written there.
            self.processes.read();
            self.process_devices.read();
            self.devices.forget();
            result = self.withdraw();
            for pin in self.pins() {
                result = result.and(pin.unpin());
            }
            if matches!(self.directory.look(), Ok(Some(_))) {
                self.directory.remove_created();
            }
        }
        result.and(self.directory.unlock())
    }

    fn pins(&self) -> impl Iterator<Item = &Pin> {
        let four = [&self.meta.pin, &self.devices.pin, &self.processes.pin, &self.process_devices.pin];
        four.into_iter().chain(self.state.as_ref().map(|state| &state.pin))
    }

    /// A map was taken over: the next rounds are read back.
    pub(crate) fn read_back_next_rounds(&mut self) {
        self.read_back_rounds = READ_BACK_ROUNDS;
    }
}

fn without_sample(process: GpuPidMetricsAggregated) -> GpuPidMetricsAggregated {
    GpuPidMetricsAggregated { timestamp_ns: 0, sm_util_pct_max: 0, mem_util_pct_max: 0, ..process }
}

fn without_sample_on_device(process: GpuPidMetrics) -> GpuPidMetrics {
    GpuPidMetrics { timestamp_ns: 0, sm_util_pct: 0, mem_util_pct: 0, enc_util_pct: 0, dec_util_pct: 0, ..process }
}
