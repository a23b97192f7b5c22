//! Sample buffers of a device, and values of its fields.

use serde::{Deserialize, Serialize};

use super::{Answer, process::last_multiple};
use crate::abi;

/// The buffer behind `nvmlDeviceGetSamples` for one kind of sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleBuffer {
    /// How many samples it holds; what a count query answers.
    pub capacity: u32,
    /// Where its samples come from.
    pub samples: BufferedSamples,
}

impl Default for SampleBuffer {
    fn default() -> Self {
        Self { capacity: 120, samples: BufferedSamples::Given(Vec::new()) }
    }
}

/// Where a buffer's samples come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferedSamples {
    /// Just these: `CLOCK_REALTIME` in microseconds, value. Ascending.
    Given(Vec<(u64, u32)>),
    /// One at every multiple of the period since 1970, values in turn.
    Periodic {
        /// Time between samples, in microseconds.
        period_us: u64,
        /// The values, in turn.
        values: Vec<u32>,
    },
}

impl SampleBuffer {
    /// A new sample every so many microseconds.
    pub fn periodic(period_us: u64, values: Vec<u32>) -> Self {
        Self { samples: BufferedSamples::Periodic { period_us, values }, ..Self::default() }
    }

    /// These samples and no others.
    pub fn given(samples: Vec<(u64, u32)>) -> Self {
        Self { samples: BufferedSamples::Given(samples), ..Self::default() }
    }

    /// The samples in the buffer that are later than `after_us`, oldest first.
    pub fn newer_than(&self, after_us: u64, now_us: u64) -> Vec<(u64, u32)> {
        let capacity = self.capacity as usize;
        match &self.samples {
            BufferedSamples::Given(samples) => {
                let kept = &samples[samples.len().saturating_sub(capacity)..];
                kept.iter().filter(|sample| sample.0 > after_us).copied().collect()
            }
            BufferedSamples::Periodic { period_us, values } => {
                let Some((last, _)) = last_multiple(*period_us, 0, now_us) else { return Vec::new() };
                if values.is_empty() {
                    return Vec::new();
                }
                let oldest = (last + 1).saturating_sub(u64::from(self.capacity)).max(after_us / period_us);
                let value = |number: u64| values[usize::try_from(number % values.len() as u64).unwrap_or_default()];
                (oldest..=last).map(|number| (number * period_us, value(number))).filter(|sample| sample.0 > after_us).collect()
            }
        }
    }
}

/// A field's value with its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldValue {
    /// Type 0.
    Double(f64),
    /// Type 1.
    UnsignedInt(u32),
    /// Type 2.
    UnsignedLong(u64),
    /// Type 3.
    UnsignedLongLong(u64),
    /// Type 4.
    SignedLongLong(i64),
    /// Type 5.
    SignedInt(i32),
    /// Type 6.
    UnsignedShort(u16),
    /// Any type, known or not, with the union's eight bytes.
    Raw {
        /// The type.
        value_type: u32,
        /// The bytes.
        bits: u64,
    },
}

impl FieldValue {
    /// `nvmlValueType_t` and the union's contents.
    pub fn encode(&self) -> (u32, abi::nvmlValue_t) {
        let value = abi::nvmlValue_t::from_first_bytes;
        match self {
            Self::Double(it) => (abi::NVML_VALUE_TYPE_DOUBLE, value(&it.to_ne_bytes())),
            Self::UnsignedInt(it) => (abi::NVML_VALUE_TYPE_UNSIGNED_INT, value(&it.to_ne_bytes())),
            Self::UnsignedLong(it) => (abi::NVML_VALUE_TYPE_UNSIGNED_LONG, value(&it.to_ne_bytes())),
            Self::UnsignedLongLong(it) => (abi::NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, value(&it.to_ne_bytes())),
            Self::SignedLongLong(it) => (abi::NVML_VALUE_TYPE_SIGNED_LONG_LONG, value(&it.to_ne_bytes())),
            Self::SignedInt(it) => (abi::NVML_VALUE_TYPE_SIGNED_INT, value(&it.to_ne_bytes())),
            Self::UnsignedShort(it) => (abi::NVML_VALUE_TYPE_UNSIGNED_SHORT, value(&it.to_ne_bytes())),
            Self::Raw { value_type, bits } => (*value_type, value(&bits.to_ne_bytes())),
        }
    }
}

/// An answer to a field id, before what follows from the device's other figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The field id.
    pub id: u32,
    /// The scope id; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u32>,
    /// The answer.
    pub answer: Answer<FieldValue>,
}

#[cfg(test)]
mod tests {
    use super::{FieldValue, SampleBuffer};
    use crate::abi::nvmlValue_t;

    #[test]
    fn a_periodic_buffer_holds_its_capacity_and_honours_the_cursor() {
        let buffer = SampleBuffer { capacity: 3, ..SampleBuffer::periodic(100, vec![10, 20]) };
        assert_eq!(buffer.newer_than(0, 1_050), [(800, 10), (900, 20), (1_000, 10)]);
        assert_eq!(buffer.newer_than(900, 1_050), [(1_000, 10)]);
        assert_eq!(buffer.newer_than(950, 1_050), [(1_000, 10)]);
        assert_eq!(buffer.newer_than(1_000, 1_099), []);
    }

    #[test]
    fn a_given_buffer_drops_its_oldest_samples_beyond_the_capacity() {
        let buffer = SampleBuffer { capacity: 2, ..SampleBuffer::given(vec![(1, 5), (2, 6), (3, 7)]) };
        assert_eq!(buffer.newer_than(0, 0), [(2, 6), (3, 7)]);
        assert_eq!(buffer.newer_than(2, 0), [(3, 7)]);
    }

    #[test]
    fn a_field_value_takes_the_unions_first_bytes() {
        assert_eq!(FieldValue::UnsignedShort(0x1234).encode(), (6, nvmlValue_t::from_first_bytes(&0x1234_u16.to_ne_bytes())));
        assert_eq!(FieldValue::SignedInt(-1).encode(), (5, nvmlValue_t::from_first_bytes(&[0xff; 4])));
        assert_eq!(FieldValue::Raw { value_type: 77, bits: 5 }.encode(), (77, nvmlValue_t(5)));
    }
}
