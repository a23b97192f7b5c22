//! `gpu_bridge_state` in Rust's terms.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use gpu_types as abi;
use gpu_types::{GpuBridgeDevice, GpuBridgeState};

/// What the bridge says of itself. Texts and numbers come from a map that another program writes: unknown values are kept as such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeState {
    record: Box<GpuBridgeState>,
    consistent: bool,
}

impl BridgeState {
    pub(crate) fn new(record: GpuBridgeState, consistent: bool) -> Self {
        Self { record: Box::new(record), consistent }
    }

    /// The record itself: counters, times and what has no method here.
    #[must_use]
    pub fn record(&self) -> &GpuBridgeState {
        &self.record
    }

    /// Whether the record was read as a whole, between two rounds. Otherwise its fields may be of two rounds.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.consistent
    }

    /// What the bridge is doing, as of its last word: a bridge that was killed cannot say so, see [`Freshness`](crate::Freshness).
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::from(self.record.phase)
    }

    /// Where the published data comes from.
    #[must_use]
    pub fn source(&self) -> Source {
        Source::from(self.record.source)
    }

    /// The time between two rounds; `None` when the bridge does not say.
    #[must_use]
    pub fn poll_interval(&self) -> Option<Duration> {
        (self.record.poll_interval_ns != 0).then(|| Duration::from_nanos(self.record.poll_interval_ns))
    }

    /// The version of the GPU's driver, empty when unknown.
    #[must_use]
    pub fn driver_version(&self) -> Cow<'_, str> {
        text(&self.record.driver_version)
    }

    /// The version of the bridge.
    #[must_use]
    pub fn bridge_version(&self) -> Cow<'_, str> {
        text(&self.record.bridge_version)
    }

    /// The devices by index: which GPU is index 3?
    pub fn devices(&self) -> impl Iterator<Item = DeviceState<'_>> {
        let described = usize::try_from(self.record.n_devices).unwrap_or(usize::MAX);
        (0..).zip(&self.record.devices).take(described).map(|(index, record)| DeviceState { index, record })
    }

    /// The device with this index, if the bridge describes one.
    #[must_use]
    pub fn device(&self, index: u32) -> Option<DeviceState<'_>> {
        self.devices().find(|device| device.index() == index)
    }
}

/// What the bridge says of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceState<'a> {
    index: u32,
    record: &'a GpuBridgeDevice,
}

impl<'a> DeviceState<'a> {
    /// The device's index, the key of `gpu_device`.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The record itself.
    #[must_use]
    pub fn record(&self) -> &'a GpuBridgeDevice {
        self.record
    }

    /// The UUID, as the driver spells it.
    #[must_use]
    pub fn uuid(&self) -> Cow<'a, str> {
        text(&self.record.uuid)
    }

    /// The PCI bus id.
    #[must_use]
    pub fn pci_bus_id(&self) -> Cow<'a, str> {
        text(&self.record.pci_bus_id)
    }

    /// The product name.
    #[must_use]
    pub fn name(&self) -> Cow<'a, str> {
        text(&self.record.name)
    }

    /// How the device answers.
    #[must_use]
    pub fn phase(&self) -> DevicePhase {
        DevicePhase::from(self.record.phase)
    }
}

/// NUL-terminated text in an array; drivers are known to give broken UTF-8.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// An enum of the record, with its numbers, the word that is printed, and room for numbers that this version does not know.
macro_rules! record_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:ident, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A number that this version does not know.
            Unknown(u32),
        }

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                match number {
                    $(abi::$number => Self::$variant,)*
                    unknown => Self::Unknown(unknown),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.pad($word),)*
                    Self::Unknown(number) => write!(f, "unknown ({number})"),
                }
            }
        }
    };
}

record_enum! {
    /// What the bridge is doing.
    Phase {
        /// It has not published yet.
        Starting = GPU_BRIDGE_STARTING, "starting";
        /// It publishes rounds.
        Publishing = GPU_BRIDGE_PUBLISHING, "publishing";
        /// It waits for a driver that was there or must come; the maps are stale meanwhile.
        Waiting = GPU_BRIDGE_WAITING, "waiting for a driver";
        /// It has no GPU, as its user expects.
        Idle = GPU_BRIDGE_IDLE, "idle";
        /// It is about to end.
        Stopping = GPU_BRIDGE_STOPPING, "stopping";
    }
}

record_enum! {
    /// Where the published data comes from.
    Source {
        /// No source is open.
        None = GPU_BRIDGE_SOURCE_NONE, "none";
        /// A driver.
        Real = GPU_BRIDGE_SOURCE_REAL, "real";
        /// Invented, as the user asked for.
        Mock = GPU_BRIDGE_SOURCE_MOCK, "mock";
        /// Invented, since the real source could not be opened.
        MockFallback = GPU_BRIDGE_SOURCE_MOCK_FALLBACK, "mock by fallback";
    }
}

impl Source {
    /// Whether the published data is invented.
    #[must_use]
    pub const fn is_invented(self) -> bool {
        matches!(self, Self::Mock | Self::MockFallback)
    }
}

record_enum! {
    /// How a device answers.
    DevicePhase {
        /// It is not published.
        Absent = GPU_BRIDGE_DEVICE_ABSENT, "absent";
        /// It answers in time.
        Answering = GPU_BRIDGE_DEVICE_ANSWERING, "answering";
        /// It is late, and its last record is held.
        Late = GPU_BRIDGE_DEVICE_LATE, "late";
        /// It does not answer, and its slot is empty.
        Lost = GPU_BRIDGE_DEVICE_LOST, "lost";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(change: impl FnOnce(&mut GpuBridgeState)) -> BridgeState {
        let mut record = GpuBridgeState::default();
        change(&mut record);
        BridgeState::new(record, true)
    }

    #[track_caller]
    fn check_text(bytes: &[u8], expected: &str) {
        assert_eq!(text(bytes), expected);
    }

    #[test]
    fn text_ends_at_the_first_nul_or_with_the_array() {
        check_text(b"GPU-1234\0\0\0", "GPU-1234");
        check_text(b"a\0b\0", "a");
        check_text(b"\0\0", "");
        check_text(b"", "");
        check_text(&[b'x'; 96], &"x".repeat(96));
        check_text(b"T\xe9sla\0", "T\u{fffd}sla");
    }

    #[test]
    fn numbers_become_words_and_unknown_ones_stay() {
        assert_eq!(state(|record| record.phase = 1).phase(), Phase::Publishing);
        assert_eq!(state(|record| record.phase = 99).phase(), Phase::Unknown(99));
        assert_eq!(state(|record| record.source = 3).source(), Source::MockFallback);
        assert_eq!(Phase::Waiting.to_string(), "waiting for a driver");
        assert_eq!(DevicePhase::from(u32::MAX).to_string(), "unknown (4294967295)");
    }

    #[test]
    fn only_mock_sources_are_invented() {
        let invented: Vec<bool> = (0..5).map(|number| Source::from(number).is_invented()).collect();
        assert_eq!(invented, [false, false, true, true, false]);
    }

    #[test]
    fn an_interval_of_zero_is_no_interval() {
        assert_eq!(state(|record| record.poll_interval_ns = 0).poll_interval(), None);
        assert_eq!(state(|record| record.poll_interval_ns = 100_000_000).poll_interval(), Some(Duration::from_millis(100)));
    }

    #[test]
    fn devices_are_as_many_as_described_and_never_more_than_there_is_room_for() {
        let two = state(|record| {
            record.n_devices = 2;
            record.devices[1].uuid[..5].copy_from_slice(b"GPU-b");
            record.devices[1].phase = abi::GPU_BRIDGE_DEVICE_LATE;
        });
        let devices: Vec<_> = two.devices().map(|device| (device.index(), device.uuid().into_owned(), device.phase())).collect();
        assert_eq!(devices, [(0, String::new(), DevicePhase::Absent), (1, "GPU-b".to_owned(), DevicePhase::Late)]);
        assert_eq!(state(|record| record.n_devices = u32::MAX).devices().count(), 16);
    }
}
