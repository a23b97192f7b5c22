//! What a scenario's entries are made of: answers, return codes, texts, counters.

use serde::{Deserialize, Serialize};

use crate::{abi, abi::nvmlReturn_t, clock};

/// A return code of NVML.
pub type Code = nvmlReturn_t;

macro_rules! codes {
    ($($name:ident = $constant:ident),* $(,)?) => {
        impl nvmlReturn_t {
            $(
                #[doc = concat!("`", stringify!($constant), "`.")]
                pub const $name: Self = Self(abi::$constant);
            )*
        }
    };
}

codes! {
    SUCCESS = NVML_SUCCESS,
    UNINITIALIZED = NVML_ERROR_UNINITIALIZED,
    INVALID_ARGUMENT = NVML_ERROR_INVALID_ARGUMENT,
    NOT_SUPPORTED = NVML_ERROR_NOT_SUPPORTED,
    NO_PERMISSION = NVML_ERROR_NO_PERMISSION,
    NOT_FOUND = NVML_ERROR_NOT_FOUND,
    INSUFFICIENT_SIZE = NVML_ERROR_INSUFFICIENT_SIZE,
    INSUFFICIENT_POWER = NVML_ERROR_INSUFFICIENT_POWER,
    DRIVER_NOT_LOADED = NVML_ERROR_DRIVER_NOT_LOADED,
    TIMEOUT = NVML_ERROR_TIMEOUT,
    LIBRARY_NOT_FOUND = NVML_ERROR_LIBRARY_NOT_FOUND,
    FUNCTION_NOT_FOUND = NVML_ERROR_FUNCTION_NOT_FOUND,
    GPU_IS_LOST = NVML_ERROR_GPU_IS_LOST,
    RESET_REQUIRED = NVML_ERROR_RESET_REQUIRED,
    LIB_RM_VERSION_MISMATCH = NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    NO_DATA = NVML_ERROR_NO_DATA,
    INSUFFICIENT_RESOURCES = NVML_ERROR_INSUFFICIENT_RESOURCES,
    ARGUMENT_VERSION_MISMATCH = NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    DEPRECATED = NVML_ERROR_DEPRECATED,
    NOT_READY = NVML_ERROR_NOT_READY,
    GPU_NOT_FOUND = NVML_ERROR_GPU_NOT_FOUND,
    INVALID_STATE = NVML_ERROR_INVALID_STATE,
    RESET_TYPE_NOT_SUPPORTED = NVML_ERROR_RESET_TYPE_NOT_SUPPORTED,
    UNKNOWN = NVML_ERROR_UNKNOWN,
}

/// What a question is answered with: in JSON the value itself, or `{"error": code}`. Nothing said: not supported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// A return code instead of a value.
    Error {
        /// The code.
        error: Code,
    },
    /// A value.
    Value(T),
}

impl<T> Answer<T> {
    /// The device does not report it.
    pub const NOT_SUPPORTED: Self = Self::Error { error: Code::NOT_SUPPORTED };

    /// A return code instead of a value.
    pub const fn error(error: Code) -> Self {
        Self::Error { error }
    }

    /// The value, or the return code that stands for it.
    ///
    /// # Errors
    /// The code of [`Answer::Error`].
    pub const fn get(&self) -> Result<&T, Code> {
        match self {
            Self::Error { error } => Err(*error),
            Self::Value(value) => Ok(value),
        }
    }
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self::NOT_SUPPORTED
    }
}

impl<T> From<T> for Answer<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

/// A string as the driver would hand it out: in JSON a text, or an array of bytes where they are not UTF-8. Bytes from the first 0 on are
/// not seen by C.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// Good UTF-8.
    Utf8(String),
    /// Any bytes.
    Bytes(Vec<u8>),
}

impl Text {
    /// The bytes without a terminating 0.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Utf8(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::Utf8(String::new())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Utf8(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Utf8(text)
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

/// A counter of bytes that grows with time, or stands still.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Counter {
    /// Its value at `since_ns`, in bytes.
    pub start_bytes: u64,
    /// How fast it grows, in bytes a second.
    pub bytes_per_s: u64,
    /// `CLOCK_BOOTTIME` in ns from which it grows; absent: the moment at which the library reads the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

impl Counter {
    /// A counter that stands still.
    pub fn fixed(bytes: u64) -> Self {
        Self { start_bytes: bytes, ..Self::default() }
    }

    /// A counter that grows from 0 at so many bytes a second, from now on.
    pub fn growing(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, since_ns: Some(clock::boottime_ns()), ..Self::default() }
    }

    /// The same counter with another value at its start.
    #[must_use]
    pub const fn starting_at(mut self, bytes: u64) -> Self {
        self.start_bytes = bytes;
        self
    }

    /// The same counter, at its present value, growing at another rate from now on.
    #[must_use]
    pub fn at_rate(&self, bytes_per_s: u64) -> Self {
        let now = clock::boottime_ns();
        Self { start_bytes: self.bytes_at(now), bytes_per_s, since_ns: Some(now) }
    }

    /// Its value in bytes at a `CLOCK_BOOTTIME`, modulo 2⁶⁴. Times before the start count backwards, so that differences stay right in a
    /// time namespace.
    pub fn bytes_at(&self, boottime_ns: u64) -> u64 {
        let elapsed = i128::from(boottime_ns) - i128::from(self.since_ns.unwrap_or(boottime_ns));
        let grown = i128::from(self.bytes_per_s) * elapsed / 1_000_000_000;
        // Truncation is the wrap of a 64-bit counter.
        self.start_bytes.wrapping_add(grown as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Code, Counter, Text};

    #[test]
    fn an_answer_is_its_value_or_a_code_in_json() {
        let read = |json: &str| serde_json::from_str::<Answer<u32>>(json).unwrap();
        assert_eq!(read("7"), Answer::Value(7));
        assert_eq!(read(r#"{"error": 3}"#), Answer::NOT_SUPPORTED);
        assert_eq!(serde_json::to_string(&Answer::<u32>::error(Code::GPU_IS_LOST)).unwrap(), r#"{"error":15}"#);
        assert!(serde_json::from_str::<Answer<u32>>(r#""seven""#).is_err());
    }

    #[test]
    fn a_text_keeps_bytes_that_are_not_utf8() {
        let text = Text::from(&b"\xf8RTX"[..]);
        let back: Text = serde_json::from_str(&serde_json::to_string(&text).unwrap()).unwrap();
        assert_eq!(back.as_bytes(), b"\xf8RTX");
    }

    #[test]
    fn a_counter_grows_by_its_rate_and_wraps_at_64_bits() {
        let counter = Counter { start_bytes: u64::MAX - 9, bytes_per_s: 1_000, since_ns: Some(5_000_000_000) };
        assert_eq!(counter.bytes_at(5_000_000_000), u64::MAX - 9);
        assert_eq!(counter.bytes_at(5_010_000_000), 0);
        assert_eq!(counter.bytes_at(6_000_000_000), 990);
    }

    #[test]
    fn a_counter_seen_before_its_start_still_has_the_right_differences() {
        let counter = Counter { start_bytes: 0, bytes_per_s: 1_000, since_ns: Some(9_000_000_000) };
        assert_eq!(counter.bytes_at(3_000_000_000).wrapping_sub(counter.bytes_at(1_000_000_000)), 2_000);
    }

    #[test]
    fn a_change_of_rate_keeps_the_count() {
        let counter = Counter::growing(1 << 30).starting_at(1 << 40);
        let changed = counter.at_rate(0);
        assert!(changed.start_bytes >= 1 << 40);
        assert_eq!(changed.bytes_at(changed.since_ns.unwrap() + 1), changed.start_bytes);
    }
}
