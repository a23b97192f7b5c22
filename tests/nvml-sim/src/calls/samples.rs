//! Sample buffers.

use crate::{
    abi::{self, nvmlDevice_t, nvmlSample_t, nvmlSamplingType_t, nvmlValue_t, nvmlValueType_t},
    clock,
    runtime::{Call, Done, Out},
    scenario::Code,
};

/// A count query (no array) answers the buffer's capacity; a fill, the oldest samples after the cursor for which there is room.
pub(crate) fn samples(
    call: &Call<'_>,
    device: nvmlDevice_t,
    kind: nvmlSamplingType_t,
    last_seen_us: u64,
    value_type: Out<nvmlValueType_t>,
    count: Out<u32>,
    samples: Out<nvmlSample_t>,
) -> Done {
    let gpu = call.gpu(device)?;
    let room = count.get()?;
    if kind.0 >= abi::NVML_SAMPLINGTYPE_COUNT || (room == 0 && !samples.is_null()) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let buffer = gpu.device.samples.get(&kind.0).ok_or(Code::NOT_SUPPORTED)?;
    value_type.put(nvmlValueType_t(abi::NVML_VALUE_TYPE_UNSIGNED_INT))?;
    if samples.is_null() {
        return count.put(buffer.capacity);
    }
    let newer = buffer.newer_than(last_seen_us, clock::realtime_us());
    if newer.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    let given = newer.len().min(room as usize);
    for (at, (time_us, value)) in newer[..given].iter().enumerate() {
        let sample = nvmlSample_t { timeStamp: *time_us, sampleValue: nvmlValue_t::from_first_bytes(&value.to_ne_bytes()) };
        samples.put_at(at, sample)?;
    }
    count.put(given as u32)
}
