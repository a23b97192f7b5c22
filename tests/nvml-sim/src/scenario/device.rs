//! A device and the ways to describe one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Answer, Clocks, Code, Ecc, Effect, Fault, Field, FieldValue, Growth, Memory, Mig, MigInstance, NvLinks, Pci, Pcie, Process,
    ProcessUtilization, SampleBuffer, Text, Utilization,
};
use crate::abi;

/// A GPU. What is not said is not supported; the builder methods return the device, so that they can be chained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// `GPU-…`; empty: one made from the index.
    pub uuid: Text,
    /// Product name.
    pub name: Text,
    /// PCI address and ids; absent: an address made from the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<Pci>,
    /// Device utilization.
    pub utilization: Answer<Utilization>,
    /// Memory, for both versions of the call.
    pub memory: Answer<Memory>,
    /// Core temperature in °C.
    pub temperature_c: Answer<i32>,
    /// Power in milliwatts.
    pub power_mw: Answer<u32>,
    /// Power averaged over a second, in milliwatts: field 185.
    pub average_power_mw: Answer<u32>,
    /// Energy in millijoules since the driver was loaded.
    pub energy_mj: Answer<u64>,
    /// Present clocks.
    pub clocks: Clocks,
    /// Highest clocks.
    pub max_clocks: Clocks,
    /// The clocks-event-reasons bit mask, for the older call too.
    pub event_reasons: Answer<u64>,
    /// PCIe link.
    pub pcie: Pcie,
    /// Encoder utilization in percent.
    pub encoder: Answer<u32>,
    /// Decoder utilization in percent.
    pub decoder: Answer<u32>,
    /// ECC.
    pub ecc: Answer<Ecc>,
    /// Each fan's speed in percent. None: fan calls are not supported.
    pub fans: Vec<u32>,
    /// `nvmlComputeMode_t`.
    pub compute_mode: Answer<u32>,
    /// Whether persistence mode is on.
    pub persistence_mode: Answer<bool>,
    /// NVLinks.
    pub nvlinks: Answer<NvLinks>,
    /// Field values that go before what follows from the rest.
    pub fields: Vec<Field>,
    /// Sample buffers by `nvmlSamplingType_t`.
    pub samples: BTreeMap<u32, SampleBuffer>,
    /// Processes.
    pub processes: Vec<Process>,
    /// What the device's own process lists answer instead of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists: Option<Code>,
    /// Lists that grow between two calls.
    pub list_growth: Growth,
    /// The `_v3` lists are written in rows of 32 bytes where the struct has 24, as early R535 drivers do.
    pub wide_rows: bool,
    /// Process utilization.
    pub process_utilization: Answer<ProcessUtilization>,
    /// Process utilization that grows between two calls.
    pub process_utilization_growth: Growth,
    /// Multi-Instance GPU.
    pub mig: Answer<Mig>,
    /// Calls on this device that go wrong.
    pub faults: Vec<Fault>,
    /// Costs of calls on this device that differ from the scenario's, in microseconds.
    pub costs: BTreeMap<String, u64>,
}

macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident: $type:ty),* $(,)?) => {
        $(
            $(#[$meta])*
            #[must_use]
            pub fn $name(mut self, value: impl Into<$type>) -> Self {
                self.$name = value.into();
                self
            }
        )*
    };
}

impl Device {
    setters! {
        /// Sets the UUID.
        uuid: Text,
        /// Sets the product name; give bytes for one in broken UTF-8.
        name: Text,
        /// Sets the PCI address and ids.
        pci: Option<Pci>,
        /// Sets the core temperature in °C.
        temperature_c: Answer<i32>,
        /// Sets the power in milliwatts.
        power_mw: Answer<u32>,
        /// Sets the energy in millijoules.
        energy_mj: Answer<u64>,
        /// Sets the present clocks.
        clocks: Clocks,
        /// Sets the highest clocks.
        max_clocks: Clocks,
        /// Sets the clocks-event-reasons bit mask.
        event_reasons: Answer<u64>,
        /// Sets the PCIe link.
        pcie: Pcie,
        /// Sets the encoder utilization in percent.
        encoder: Answer<u32>,
        /// Sets the decoder utilization in percent.
        decoder: Answer<u32>,
        /// Sets ECC.
        ecc: Answer<Ecc>,
        /// Sets the fans' speeds in percent.
        fans: Vec<u32>,
        /// Sets the compute mode.
        compute_mode: Answer<u32>,
        /// Sets the persistence mode.
        persistence_mode: Answer<bool>,
        /// Sets the NVLinks.
        nvlinks: Answer<NvLinks>,
        /// Sets all processes.
        processes: Vec<Process>,
        /// Sets how lists grow between two calls.
        list_growth: Growth,
        /// Sets how process utilization behaves.
        process_utilization: Answer<ProcessUtilization>,
        /// Sets how process utilization grows between two calls.
        process_utilization_growth: Growth,
    }

    /// Sets the device utilization, in the call and as a sample every 1/6 s.
    #[must_use]
    pub fn utilization(mut self, gpu: u32, memory: u32) -> Self {
        self.utilization = Utilization { gpu, memory }.into();
        self.samples.insert(abi::NVML_GPU_UTILIZATION_SAMPLES, SampleBuffer::periodic(166_667, vec![gpu]));
        self.samples.insert(abi::NVML_MEMORY_UTILIZATION_SAMPLES, SampleBuffer::periodic(166_667, vec![memory]));
        self
    }

    /// The device reports no utilization, neither in the call nor as samples.
    #[must_use]
    pub fn without_utilization(mut self) -> Self {
        self.utilization = Answer::NOT_SUPPORTED;
        self.samples.clear();
        self
    }

    /// Sets the samples of a kind, `nvmlSamplingType_t`.
    #[must_use]
    pub fn samples(mut self, kind: u32, buffer: SampleBuffer) -> Self {
        self.samples.insert(kind, buffer);
        self
    }

    /// Sets the memory in bytes.
    #[must_use]
    pub fn memory(mut self, total: u64, used: u64, reserved: u64) -> Self {
        self.memory = Memory { total, used, reserved }.into();
        self
    }

    /// The device reports no memory, in neither version.
    #[must_use]
    pub fn without_memory(mut self) -> Self {
        self.memory = Answer::NOT_SUPPORTED;
        self
    }

    /// Adds a process.
    #[must_use]
    pub fn process(mut self, process: Process) -> Self {
        self.processes.push(process);
        self
    }

    /// Sets a field's answer, whatever its scope.
    #[must_use]
    pub fn field(mut self, id: u32, answer: impl Into<Answer<FieldValue>>) -> Self {
        self.fields.push(Field { id, scope: None, answer: answer.into() });
        self
    }

    /// Adds a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Every call of `call` on this device returns `code`; see [`Fault::call`].
    #[must_use]
    pub fn fails(self, call: &str, code: Code) -> Self {
        self.fault(Fault::error(call, code))
    }

    /// Every call of `call` on this device hangs until the scenario changes.
    #[must_use]
    pub fn hangs(self, call: &str) -> Self {
        self.fault(Fault::hang(call))
    }

    /// Every call of `call` on this device crashes the process.
    #[must_use]
    pub fn crashes(self, call: &str) -> Self {
        self.fault(Fault::new(call, Effect::Crash))
    }

    /// The device is lost: every call on it returns `code`, the one for its handle included.
    #[must_use]
    pub fn lost(self, code: Code) -> Self {
        self.fails("nvmlDevice*", code)
    }

    /// A call on this device costs so much.
    #[must_use]
    pub fn costs(mut self, call: &str, us: u64) -> Self {
        self.costs.insert(call.to_owned(), us);
        self
    }

    /// The `_v3` lists are written in rows of 32 bytes, as early R535 drivers do.
    #[must_use]
    pub const fn wide_rows(mut self) -> Self {
        self.wide_rows = true;
        self
    }

    /// The device's own process lists answer this code; lists of its MIG devices are not concerned.
    #[must_use]
    pub const fn lists_answer(mut self, code: Code) -> Self {
        self.lists = Some(code);
        self
    }

    /// MIG is on, with these instances; utilization, its samples, encoder, decoder and process utilization are not supported then.
    #[must_use]
    pub fn with_mig(self, instances: Vec<MigInstance>) -> Self {
        let mig = Mig { enabled: true, pending: true, max_devices: 7, instances };
        Self { mig: mig.into(), encoder: Answer::NOT_SUPPORTED, decoder: Answer::NOT_SUPPORTED, ..self.without_utilization() }
            .process_utilization(Answer::NOT_SUPPORTED)
    }
}
