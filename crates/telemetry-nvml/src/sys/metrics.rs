//! The calls that read a metric of a device.

use std::{ffi::c_uint, fmt};

use nvml_wrapper_sys::bindings as ffi;

use super::{Code, Gpu, struct_version, symbol};
use crate::pure::{counter::Count, samples::Sample, value::decode};

/// Which ring of samples, in `nvmlSamplingType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleKind {
    Gpu = 1,
    Memory = 2,
}

/// Which clock, in `nvmlClockType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Sm = 1,
    Memory = 2,
}

/// Which way data goes on PCIe, in `nvmlPcieUtilCounter_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Tx = 0,
    Rx = 1,
}

/// Which ECC errors, in `nvmlMemoryErrorType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ecc {
    Corrected = 0,
    Uncorrected = 1,
}

/// Memory as the call gives it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawMemory {
    pub(crate) total: u64,
    pub(crate) used: u64,
    pub(crate) reserved: u64,
}

/// A field that is asked for, and what came back: NVML's own struct, so that a call needs no copy of it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Field(ffi::nvmlFieldValue_t);

impl Field {
    /// A field of a part of the device: a link, or `u32::MAX` for all of them.
    pub(crate) const fn new(id: u32, scope: u32) -> Self {
        Self(ffi::nvmlFieldValue_t {
            fieldId: id,
            scopeId: scope,
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            nvmlReturn: Code::NOT_SUPPORTED.0,
            value: ffi::nvmlValue_t { ullVal: 0 },
        })
    }

    pub(crate) const fn scope(&self) -> u32 {
        self.0.scopeId
    }

    /// `Ok(None)`: a value that is no count.
    pub(crate) fn answer(&self) -> Result<Option<Count>, Code> {
        // SAFETY: every bit pattern of the union's eight bytes is a u64, and they were all initialised.
        let bits = unsafe { self.0.value.ullVal };
        Code::check(self.0.nvmlReturn).map(|()| decode(self.0.valueType, bits))
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field({}, {:#x}: {:?})", self.0.fieldId, self.0.scopeId, self.answer())
    }
}

/// A buffer for a ring's samples, kept between calls.
#[derive(Default)]
pub(crate) struct RingBuffer {
    raw: Vec<ffi::nvmlSample_t>,
    /// How many came back, and the type of their values.
    count: usize,
    value_type: u32,
}

impl RingBuffer {
    /// What came back.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> + '_ {
        self.raw.iter().take(self.count).map(|sample| {
            // SAFETY: every bit pattern of the union's eight bytes is a u64, and they were all initialised.
            let bits = unsafe { sample.sampleValue.ullVal };
            Sample { stamp_us: sample.timeStamp, pct: decode(self.value_type, bits).and_then(|count| u32::try_from(count.value).ok()) }
        })
    }
}

impl fmt::Debug for RingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingBuffer({} of {})", self.count, self.raw.len())
    }
}

impl Gpu {
    /// The link's greatest generation and width.
    pub(crate) fn pcie_link(&self) -> (Result<u32, Code>, Result<u32, Code>) {
        (self.read_uint(&self.lib().nvmlDeviceGetMaxPcieLinkGeneration), self.read_uint(&self.lib().nvmlDeviceGetMaxPcieLinkWidth))
    }

    pub(crate) fn temperature(&self) -> Result<u32, Code> {
        const CORE: u32 = 0;
        match self.read_uint_of(&self.lib().nvmlDeviceGetTemperature, CORE) {
            // Deprecated since NVML 13.
            Err(Code::FUNCTION_NOT_FOUND | Code::DEPRECATED) => self.temperature_v1(CORE),
            answer => answer,
        }
    }

    fn temperature_v1(&self, sensor: u32) -> Result<u32, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetTemperatureV)?;
        let version = struct_version::<ffi::nvmlTemperature_t>(1);
        let mut temperature = ffi::nvmlTemperature_t { version, sensorType: sensor, temperature: 0 };
        // SAFETY: the handle is this library's; the struct is of the version that it says.
        Code::check(unsafe { call(self.handle, &raw mut temperature) })?;
        // Below zero there is nothing that a record could hold.
        Ok(u32::try_from(temperature.temperature).unwrap_or(0))
    }

    /// In milliwatts.
    pub(crate) fn power_usage(&self) -> Result<u32, Code> {
        self.read_uint(&self.lib().nvmlDeviceGetPowerUsage)
    }

    /// In MHz.
    pub(crate) fn clock(&self, clock: Clock) -> Result<u32, Code> {
        self.read_uint_of(&self.lib().nvmlDeviceGetClockInfo, clock as u32)
    }

    pub(crate) fn event_reasons(&self) -> Result<u64, Code> {
        self.read_ulong(&self.lib().nvmlDeviceGetCurrentClocksEventReasons)
    }

    pub(crate) fn throttle_reasons(&self) -> Result<u64, Code> {
        self.read_ulong(&self.lib().nvmlDeviceGetCurrentClocksThrottleReasons)
    }

    pub(crate) fn encoder_pct(&self) -> Result<u32, Code> {
        Ok(self.read_two_uints(&self.lib().nvmlDeviceGetEncoderUtilization)?.0)
    }

    pub(crate) fn decoder_pct(&self) -> Result<u32, Code> {
        Ok(self.read_two_uints(&self.lib().nvmlDeviceGetDecoderUtilization)?.0)
    }

    pub(crate) fn fan_pct(&self) -> Result<u32, Code> {
        self.read_uint(&self.lib().nvmlDeviceGetFanSpeed)
    }

    pub(crate) fn compute_mode(&self) -> Result<u32, Code> {
        self.read_uint(&self.lib().nvmlDeviceGetComputeMode)
    }

    /// In kB/s. Samples for 20 ms and blocks as long.
    pub(crate) fn pcie_throughput(&self, direction: Direction) -> Result<u32, Code> {
        self.read_uint_of(&self.lib().nvmlDeviceGetPcieThroughput, direction as u32)
    }

    /// Since the driver was loaded.
    pub(crate) fn ecc_errors(&self, errors: Ecc) -> Result<u64, Code> {
        const VOLATILE: u32 = 0;
        let call = symbol(&self.lib().nvmlDeviceGetTotalEccErrors)?;
        let mut count = 0;
        // SAFETY: the handle is this library's; the call writes one `unsigned long long`.
        Code::check(unsafe { call(self.handle, errors as u32, VOLATILE, &raw mut count) })?;
        Ok(count)
    }

    pub(crate) fn memory_v2(&self) -> Result<RawMemory, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetMemoryInfo_v2)?;
        let version = struct_version::<ffi::nvmlMemory_v2_t>(2);
        let mut memory = ffi::nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
        // SAFETY: the handle is this library's; the struct is of the version that it says.
        Code::check(unsafe { call(self.handle, &raw mut memory) })?;
        Ok(RawMemory { total: memory.total, used: memory.used, reserved: memory.reserved })
    }

    /// Here `used` includes what is reserved, which the call does not tell.
    pub(crate) fn memory_v1(&self) -> Result<RawMemory, Code> {
        let call = symbol(&self.lib().nvmlDeviceGetMemoryInfo)?;
        let mut memory = ffi::nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the handle is this library's; the struct is the one that this call fills.
        Code::check(unsafe { call(self.handle, &raw mut memory) })?;
        Ok(RawMemory { total: memory.total, used: memory.used, reserved: 0 })
    }

    /// GPU and memory, in per cent.
    pub(crate) fn utilization_rates(&self) -> Result<(u32, u32), Code> {
        let call = symbol(&self.lib().nvmlDeviceGetUtilizationRates)?;
        let mut rates = ffi::nvmlUtilization_t { gpu: 0, memory: 0 };
        // SAFETY: the handle is this library's; the struct is the one that this call fills.
        Code::check(unsafe { call(self.handle, &raw mut rates) })?;
        Ok((rates.gpu, rates.memory))
    }

    /// The samples after `since_us`, into `buffer`. [`Code::NOT_FOUND`]: none.
    pub(crate) fn samples(&self, kind: SampleKind, since_us: u64, buffer: &mut RingBuffer) -> Result<(), Code> {
        /// No driver's ring has been seen to hold more than 120.
        const FIRST: usize = 128;
        const MOST: usize = FIRST * 32;
        const EMPTY: ffi::nvmlSample_t = ffi::nvmlSample_t { timeStamp: 0, sampleValue: ffi::nvmlValue_t { ullVal: 0 } };
        buffer.count = 0;
        let call = symbol(&self.lib().nvmlDeviceGetSamples)?;
        loop {
            let capacity = buffer.raw.len().max(FIRST);
            buffer.raw.clear();
            buffer.raw.resize(capacity, EMPTY);
            let mut count = capacity as c_uint;
            let (value_type, samples) = (&raw mut buffer.value_type, buffer.raw.as_mut_ptr());
            // SAFETY: the handle is this library's; the buffer holds as many samples as the call is told.
            Code::check(unsafe { call(self.handle, kind as u32, since_us, value_type, &raw mut count, samples) })?;
            // A full buffer may lack the newest.
            if count as usize >= capacity && capacity < MOST {
                buffer.raw.resize(capacity * 2, EMPTY);
                continue;
            }
            buffer.count = count as usize;
            return Ok(());
        }
    }

    /// Asks for several fields in one call; each has its own answer.
    pub(crate) fn fields(&self, fields: &mut [Field]) -> Result<(), Code> {
        let call = symbol(&self.lib().nvmlDeviceGetFieldValues)?;
        // SAFETY: the handle is this library's; there are as many values as the call is told, and a field is such a value.
        Code::check(unsafe { call(self.handle, fields.len() as i32, fields.as_mut_ptr().cast()) })
    }
}
