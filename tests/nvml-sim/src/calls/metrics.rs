//! A device's own figures.

use crate::{
    abi::{
        self, nvmlClockId_t, nvmlClockType_t, nvmlComputeMode_t, nvmlDevice_t, nvmlEccCounterType_t, nvmlEnableState_t,
        nvmlMemoryErrorType_t, nvmlTemperature_v1_t, nvmlTemperatureSensors_t, nvmlUtilization_t,
    },
    runtime::{Call, Done, Out},
    scenario::{Clocks, Code},
};

/// How long the video engines' utilization is averaged, as NVML says it.
const ENGINE_PERIOD_US: u32 = 167_000;

pub(crate) fn utilization(call: &Call<'_>, device: nvmlDevice_t, rates: Out<nvmlUtilization_t>) -> Done {
    let utilization = call.gpu(device)?.device.utilization.get()?;
    rates.put(nvmlUtilization_t { gpu: utilization.gpu, memory: utilization.memory })
}

pub(crate) fn temperature(call: &Call<'_>, device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t, celsius: Out<u32>) -> Done {
    celsius.put(celsius_of(call, device, sensor)?.cast_unsigned())
}

pub(crate) fn temperature_v1(call: &Call<'_>, device: nvmlDevice_t, temperature: Out<nvmlTemperature_v1_t>) -> Done {
    let asked = temperature.get()?;
    if asked.version != abi::nvmlTemperature_v1 {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    temperature.put(nvmlTemperature_v1_t { temperature: celsius_of(call, device, asked.sensorType)?, ..asked })
}

fn celsius_of(call: &Call<'_>, device: nvmlDevice_t, sensor: nvmlTemperatureSensors_t) -> Result<i32, Code> {
    let gpu = call.gpu(device)?;
    match sensor.0 {
        abi::NVML_TEMPERATURE_GPU => gpu.device.temperature_c.get().copied(),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

pub(crate) fn power(call: &Call<'_>, device: nvmlDevice_t, power_mw: Out<u32>) -> Done {
    power_mw.put(*call.gpu(device)?.device.power_mw.get()?)
}

pub(crate) fn energy(call: &Call<'_>, device: nvmlDevice_t, energy_mj: Out<u64>) -> Done {
    energy_mj.put(*call.gpu(device)?.device.energy_mj.get()?)
}

pub(crate) fn clock(call: &Call<'_>, device: nvmlDevice_t, kind: nvmlClockType_t, mhz: Out<u32>) -> Done {
    mhz.put(mhz_of(&call.gpu(device)?.device.clocks, kind)?)
}

pub(crate) fn max_clock(call: &Call<'_>, device: nvmlDevice_t, kind: nvmlClockType_t, mhz: Out<u32>) -> Done {
    mhz.put(mhz_of(&call.gpu(device)?.device.max_clocks, kind)?)
}

pub(crate) fn clock_by_id(call: &Call<'_>, device: nvmlDevice_t, kind: nvmlClockType_t, id: nvmlClockId_t, mhz: Out<u32>) -> Done {
    match id.0 {
        abi::NVML_CLOCK_ID_CURRENT => clock(call, device, kind, mhz),
        abi::NVML_CLOCK_ID_CUSTOMER_BOOST_MAX => max_clock(call, device, kind, mhz),
        _ => call.gpu(device).and(Err(Code::NOT_SUPPORTED)),
    }
}

fn mhz_of(clocks: &Clocks, kind: nvmlClockType_t) -> Result<u32, Code> {
    match kind.0 {
        abi::NVML_CLOCK_GRAPHICS => clocks.graphics.get().copied(),
        abi::NVML_CLOCK_SM => clocks.sm.get().copied(),
        abi::NVML_CLOCK_MEM => clocks.mem.get().copied(),
        abi::NVML_CLOCK_VIDEO => clocks.video.get().copied(),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

pub(crate) fn event_reasons(call: &Call<'_>, device: nvmlDevice_t, reasons: Out<u64>) -> Done {
    reasons.put(*call.gpu(device)?.device.event_reasons.get()?)
}

pub(crate) fn encoder(call: &Call<'_>, device: nvmlDevice_t, percent: Out<u32>, period_us: Out<u32>) -> Done {
    percent.put(*call.gpu(device)?.device.encoder.get()?)?;
    period_us.put(ENGINE_PERIOD_US)
}

pub(crate) fn decoder(call: &Call<'_>, device: nvmlDevice_t, percent: Out<u32>, period_us: Out<u32>) -> Done {
    percent.put(*call.gpu(device)?.device.decoder.get()?)?;
    period_us.put(ENGINE_PERIOD_US)
}

pub(crate) fn ecc_errors(
    call: &Call<'_>,
    device: nvmlDevice_t,
    kind: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    errors: Out<u64>,
) -> Done {
    let ecc = call.gpu(device)?.device.ecc.get()?;
    if !ecc.enabled {
        return Err(Code::NOT_SUPPORTED);
    }
    let volatile = match kind.0 {
        abi::NVML_MEMORY_ERROR_TYPE_CORRECTED => ecc.corrected,
        abi::NVML_MEMORY_ERROR_TYPE_UNCORRECTED => ecc.uncorrected,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    match counter.0 {
        abi::NVML_VOLATILE_ECC => errors.put(volatile),
        // Of the device's life, so never fewer than since boot.
        abi::NVML_AGGREGATE_ECC => errors.put(volatile + 1_000),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

pub(crate) fn ecc_mode(call: &Call<'_>, device: nvmlDevice_t, current: Out<nvmlEnableState_t>, pending: Out<nvmlEnableState_t>) -> Done {
    let enabled = enable_state(call.gpu(device)?.device.ecc.get()?.enabled);
    current.put(enabled)?;
    pending.put(enabled)
}

pub(crate) fn fans(call: &Call<'_>, device: nvmlDevice_t, fans: Out<u32>) -> Done {
    fans.put(call.gpu(device)?.device.fans.len() as u32)
}

pub(crate) fn fan_speed(call: &Call<'_>, device: nvmlDevice_t, percent: Out<u32>) -> Done {
    percent.put(*call.gpu(device)?.device.fans.first().ok_or(Code::NOT_SUPPORTED)?)
}

pub(crate) fn fan_speed_of(call: &Call<'_>, device: nvmlDevice_t, fan: u32, percent: Out<u32>) -> Done {
    let fans = &call.gpu(device)?.device.fans;
    if fans.is_empty() {
        return Err(Code::NOT_SUPPORTED);
    }
    percent.put(*fans.get(fan as usize).ok_or(Code::INVALID_ARGUMENT)?)
}

pub(crate) fn compute_mode(call: &Call<'_>, device: nvmlDevice_t, mode: Out<nvmlComputeMode_t>) -> Done {
    mode.put(nvmlComputeMode_t(*call.gpu(device)?.device.compute_mode.get()?))
}

pub(crate) fn persistence_mode(call: &Call<'_>, device: nvmlDevice_t, mode: Out<nvmlEnableState_t>) -> Done {
    mode.put(enable_state(*call.gpu(device)?.device.persistence_mode.get()?))
}

/// A flag as NVML says it.
pub(super) fn enable_state(on: bool) -> nvmlEnableState_t {
    nvmlEnableState_t(if on { abi::NVML_FEATURE_ENABLED } else { abi::NVML_FEATURE_DISABLED })
}
