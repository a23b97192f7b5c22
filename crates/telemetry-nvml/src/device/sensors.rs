//! Metrics of one value each.

use telemetry::{Answer, DeviceError, Metrics};

use super::calls::{Call, Calls};
use crate::{
    pure::memory,
    sys::{Clock, Ecc, Gpu},
};

/// NVML's "not available" among the 32-bit values.
fn available(value: u32) -> Option<u32> {
    (value != u32::MAX).then_some(value)
}

fn percentage(value: u32) -> Option<u32> {
    (value <= 100).then_some(value)
}

/// What a group of calls of which all are missing is answered with.
fn answer_of(calls: &Calls, group: &[Call]) -> Answer {
    if group.iter().all(|call| calls.is_never(*call)) { Answer::NotSupported } else { Answer::Answered }
}

pub(crate) fn sensors(calls: &mut Calls, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
    metrics.temp_c = calls.ask(Call::Temperature, Gpu::temperature)?.value().and_then(available);
    metrics.power_mw = calls.ask(Call::Power, Gpu::power_usage)?.value().and_then(available);
    metrics.sm_clock_mhz = calls.ask(Call::SmClock, |gpu| gpu.clock(Clock::Sm))?.value().and_then(available);
    metrics.mem_clock_mhz = calls.ask(Call::MemoryClock, |gpu| gpu.clock(Clock::Memory))?.value().and_then(available);
    metrics.throttle_reasons = throttle_reasons(calls)?;
    metrics.enc_util_pct = calls.ask(Call::Encoder, Gpu::encoder_pct)?.value().and_then(percentage);
    metrics.dec_util_pct = calls.ask(Call::Decoder, Gpu::decoder_pct)?.value().and_then(percentage);
    const GROUP: [Call; 7] =
        [Call::Temperature, Call::Power, Call::SmClock, Call::MemoryClock, Call::ThrottleReasons, Call::Encoder, Call::Decoder];
    Ok(answer_of(calls, &GROUP))
}

/// Through the call of driver 535 and later, else through the one that it replaced.
fn throttle_reasons(calls: &mut Calls) -> Result<Option<u64>, DeviceError> {
    let reasons = calls.ask(Call::EventReasons, Gpu::event_reasons)?;
    if reasons.is_never() {
        return Ok(calls.ask(Call::ThrottleReasons, Gpu::throttle_reasons)?.value());
    }
    Ok(reasons.value())
}

/// Version 2 tells used and reserved memory apart; before driver 510 there is version 1 only, where used includes what is reserved.
pub(crate) fn memory(calls: &mut Calls, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
    let mut raw = calls.ask(Call::MemoryV2, Gpu::memory_v2)?;
    if raw.is_never() {
        raw = calls.ask(Call::MemoryV1, Gpu::memory_v1)?;
    }
    metrics.memory = raw.value().and_then(|raw| memory::memory(raw.total, raw.used, raw.reserved));
    Ok(answer_of(calls, &[Call::MemoryV2, Call::MemoryV1]))
}

pub(crate) fn fan(calls: &mut Calls, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
    // A fan may turn faster than its nominal speed.
    metrics.fan_speed_pct = calls.ask(Call::Fan, Gpu::fan_pct)?.value().and_then(available).map(|pct| pct.min(100));
    Ok(answer_of(calls, &[Call::Fan]))
}

pub(crate) fn ecc(calls: &mut Calls, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
    let available = |errors: &u64| *errors != u64::MAX;
    metrics.ecc_corrected_total = calls.ask(Call::EccCorrected, |gpu| gpu.ecc_errors(Ecc::Corrected))?.value().filter(available);
    metrics.ecc_uncorrected_total = calls.ask(Call::EccUncorrected, |gpu| gpu.ecc_errors(Ecc::Uncorrected))?.value().filter(available);
    Ok(answer_of(calls, &[Call::EccCorrected, Call::EccUncorrected]))
}

pub(crate) fn compute_mode(calls: &mut Calls, metrics: &mut Metrics) -> Result<Answer, DeviceError> {
    metrics.compute_mode = calls.ask(Call::ComputeMode, Gpu::compute_mode)?.value().and_then(available);
    Ok(answer_of(calls, &[Call::ComputeMode]))
}
