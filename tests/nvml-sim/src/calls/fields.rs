//! Field values: what the scenario says of a field, else what follows from the device's other figures.

use crate::{
    abi::{self, nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t, nvmlValueType_t},
    clock,
    runtime::{Call, Done, Gpu, Out},
    scenario::{Answer, Code, Counter, Device, FieldValue, Link, NvLinks, Pcie},
};

pub(crate) fn values(call: &Call<'_>, device: nvmlDevice_t, count: i32, values: Out<nvmlFieldValue_t>) -> Done {
    let gpu = call.gpu(device)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0 && !values.is_null()).ok_or(Code::INVALID_ARGUMENT)?;
    for at in 0..count {
        let asked = values.get_at(at)?;
        values.put_at(at, answer(call, gpu, asked))?;
    }
    Ok(())
}

fn answer(call: &Call<'_>, gpu: &Gpu, asked: nvmlFieldValue_t) -> nvmlFieldValue_t {
    let costs = &call.loaded.scenario.costs;
    let known = value_of(&gpu.device, asked.fieldId, asked.scopeId);
    let unsupported = matches!(known, Err(Code::NOT_SUPPORTED));
    call.spend(costs.of_field(asked.fieldId, !unsupported));
    call.count_field(asked.fieldId, known.is_ok());
    // Again, because time went by: a counter is read when it is handed out.
    let (code, value_type, value) = match value_of(&gpu.device, asked.fieldId, asked.scopeId) {
        Ok(value) => {
            let (value_type, value) = value.encode();
            (Code::SUCCESS, nvmlValueType_t(value_type), value)
        }
        Err(code) => (code, nvmlValueType_t::default(), nvmlValue_t::default()),
    };
    nvmlFieldValue_t {
        timestamp: clock::realtime_us().cast_signed(),
        latencyUsec: 0,
        valueType: value_type,
        nvmlReturn: nvmlReturn_t(code.0),
        value,
        ..asked
    }
}

fn value_of(device: &Device, id: u32, scope: u32) -> Result<FieldValue, Code> {
    if let Some(field) = device.fields.iter().find(|field| field.id == id && field.scope.is_none_or(|own| own == scope)) {
        return field.answer.get().cloned();
    }
    let milliwatts = |answer: &Answer<u32>| answer.get().map(|mw| FieldValue::UnsignedInt(*mw));
    match id {
        abi::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION => device.energy_mj.get().map(|mj| FieldValue::UnsignedLongLong(*mj)),
        abi::NVML_FI_DEV_POWER_AVERAGE => milliwatts(&device.average_power_mw),
        abi::NVML_FI_DEV_POWER_INSTANT => milliwatts(&device.power_mw),
        abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES => pcie_bytes(&device.pcie, &device.pcie.tx_bytes),
        abi::NVML_FI_DEV_PCIE_COUNT_RX_BYTES => pcie_bytes(&device.pcie, &device.pcie.rx_bytes),
        abi::NVML_FI_DEV_NVLINK_LINK_COUNT => device.nvlinks.get().map(|nvlinks| FieldValue::UnsignedInt(nvlinks.links.len() as u32)),
        abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX => nvlink_kib(device.nvlinks.get()?, scope, |link| &link.tx),
        abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX => nvlink_kib(device.nvlinks.get()?, scope, |link| &link.rx),
        abi::NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES => nvlink_bytes(device.nvlinks.get()?, scope, |link| &link.tx),
        abi::NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES => nvlink_bytes(device.nvlinks.get()?, scope, |link| &link.rx),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

fn pcie_bytes(pcie: &Pcie, counter: &Answer<Counter>) -> Result<FieldValue, Code> {
    Ok(counted(counter.get()?.bytes_at(clock::boottime_ns()), pcie.counter_bits))
}

fn nvlink_kib(nvlinks: &NvLinks, scope: u32, of: fn(&Link) -> &Counter) -> Result<FieldValue, Code> {
    if !nvlinks.kib_counters {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(counted(link_bytes(nvlinks, scope, of)? / 1_024, nvlinks.counter_bits))
}

fn nvlink_bytes(nvlinks: &NvLinks, scope: u32, of: fn(&Link) -> &Counter) -> Result<FieldValue, Code> {
    if !nvlinks.byte_counters {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(counted(link_bytes(nvlinks, scope, of)?, nvlinks.counter_bits))
}

fn link_bytes(nvlinks: &NvLinks, scope: u32, of: fn(&Link) -> &Counter) -> Result<u64, Code> {
    let now = clock::boottime_ns();
    if scope == abi::ALL_LINKS {
        let all = nvlinks.links.iter().map(|link| of(link).bytes_at(now)).fold(0, u64::wrapping_add);
        return if nvlinks.all_links { Ok(all) } else { Err(Code::INVALID_ARGUMENT) };
    }
    nvlinks.links.get(scope as usize).map(|link| of(link).bytes_at(now)).ok_or(Code::INVALID_ARGUMENT)
}

/// A count in a counter of so many bits.
fn counted(count: u64, bits: u32) -> FieldValue {
    match bits {
        // Truncation is the wrap.
        32 => FieldValue::UnsignedInt(count as u32),
        bits => FieldValue::UnsignedLongLong(1_u64.checked_shl(bits).map_or(count, |modulus| count % modulus)),
    }
}

#[cfg(test)]
mod tests {
    use super::value_of;
    use crate::{
        abi,
        scenario::{Answer, Code, Counter, Device, FieldValue, Link, NvLinks, Pcie},
    };

    fn linked(nvlinks: NvLinks) -> Device {
        let link = |bytes| Link { active: true, tx: Counter::fixed(bytes), rx: Counter::fixed(1) };
        Device::default().nvlinks(NvLinks { links: vec![link(10 << 10), link(5 << 10)], ..nvlinks })
    }

    #[test]
    fn nvlink_counters_are_in_kib_for_a_link_and_for_all() {
        let device = linked(NvLinks::default());
        let tx = |scope| value_of(&device, abi::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scope);
        assert_eq!(tx(0), Ok(FieldValue::UnsignedLongLong(10)));
        assert_eq!(tx(abi::ALL_LINKS), Ok(FieldValue::UnsignedLongLong(15)));
        assert_eq!(tx(2), Err(Code::INVALID_ARGUMENT));
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 0), Err(Code::NOT_SUPPORTED));
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_NVLINK_LINK_COUNT, 0), Ok(FieldValue::UnsignedInt(2)));
    }

    #[test]
    fn nvlink5_counters_are_in_bytes() {
        let device = linked(NvLinks { byte_counters: true, all_links: false, ..NvLinks::default() });
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 1), Ok(FieldValue::UnsignedLongLong(5 << 10)));
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, abi::ALL_LINKS), Err(Code::INVALID_ARGUMENT));
    }

    #[test]
    fn a_32_bit_counter_wraps_and_says_its_type() {
        let pcie = Pcie { tx_bytes: Counter::fixed((1 << 32) + 7).into(), counter_bits: 32, ..Pcie::default() };
        let device = Device::default().pcie(pcie);
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0), Ok(FieldValue::UnsignedInt(7)));
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0), Err(Code::NOT_SUPPORTED));
    }

    #[test]
    fn a_given_field_goes_before_what_follows() {
        let device = Device::default().power_mw(5).field(abi::NVML_FI_DEV_POWER_INSTANT, Answer::Value(FieldValue::SignedInt(-4)));
        assert_eq!(value_of(&device, abi::NVML_FI_DEV_POWER_INSTANT, 0), Ok(FieldValue::SignedInt(-4)));
        assert_eq!(value_of(&Device::default().power_mw(5), abi::NVML_FI_DEV_POWER_INSTANT, 0), Ok(FieldValue::UnsignedInt(5)));
    }
}
