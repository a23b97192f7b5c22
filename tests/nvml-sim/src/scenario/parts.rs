//! What a device consists of.

use serde::{Deserialize, Serialize};

use super::{Answer, Counter, Text};

/// A PCI address and ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pci {
    /// PCI domain.
    pub domain: u32,
    /// Bus in the domain.
    pub bus: u32,
    /// Device on the bus.
    pub device: u32,
    /// Device id in the upper, vendor id in the lower 16 bits, as in 0x20b010de.
    pub device_id: u32,
    /// The same for the subsystem.
    pub subsystem_id: u32,
}

impl Pci {
    /// The address as in `00000000:3B:00.0`.
    pub fn bus_id(&self) -> String {
        format!("{:08X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }

    /// The address with a domain of four digits.
    pub fn legacy_bus_id(&self) -> String {
        format!("{:04X}:{:02X}:{:02X}.0", self.domain & 0xffff, self.bus, self.device)
    }
}

/// Device utilization in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Utilization {
    /// Time in which a kernel ran.
    pub gpu: u32,
    /// Time in which memory was read or written.
    pub memory: u32,
}

/// Device memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Allocated, without what is reserved.
    pub used: u64,
    /// Held by driver and firmware. The older call counts it among what is used.
    pub reserved: u64,
}

impl Memory {
    /// What is neither used nor reserved.
    pub const fn free(&self) -> u64 {
        self.total.saturating_sub(self.used.saturating_add(self.reserved))
    }
}

/// Clocks in MHz.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clocks {
    /// Graphics clock.
    pub graphics: Answer<u32>,
    /// SM clock.
    pub sm: Answer<u32>,
    /// Memory clock.
    pub mem: Answer<u32>,
    /// Clock of the video engines.
    pub video: Answer<u32>,
}

impl Clocks {
    /// Graphics and SM clock alike, memory clock, video clock.
    pub fn new(sm: u32, mem: u32, video: u32) -> Self {
        Self { graphics: sm.into(), sm: sm.into(), mem: mem.into(), video: video.into() }
    }
}

/// The PCIe link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    /// Generation in use.
    pub generation: Answer<u32>,
    /// Lanes in use.
    pub width: Answer<u32>,
    /// Highest generation.
    pub max_generation: Answer<u32>,
    /// Most lanes.
    pub max_width: Answer<u32>,
    /// What `nvmlDeviceGetPcieThroughput` says for TX, in kB/s.
    pub tx_kbps: Answer<u32>,
    /// The same for RX.
    pub rx_kbps: Answer<u32>,
    /// The byte counter of field 197.
    pub tx_bytes: Answer<Counter>,
    /// The byte counter of field 198.
    pub rx_bytes: Answer<Counter>,
    /// Width of the byte counters in bits. 32 also makes their value type a 32-bit one.
    pub counter_bits: u32,
}

impl Default for Pcie {
    fn default() -> Self {
        Self {
            generation: Answer::NOT_SUPPORTED,
            width: Answer::NOT_SUPPORTED,
            max_generation: Answer::NOT_SUPPORTED,
            max_width: Answer::NOT_SUPPORTED,
            tx_kbps: Answer::NOT_SUPPORTED,
            rx_kbps: Answer::NOT_SUPPORTED,
            tx_bytes: Answer::NOT_SUPPORTED,
            rx_bytes: Answer::NOT_SUPPORTED,
            counter_bits: 64,
        }
    }
}

impl Pcie {
    /// A link with all its lanes in use and nothing moving.
    pub fn link(generation: u32, width: u32) -> Self {
        Self {
            generation: generation.into(),
            width: width.into(),
            max_generation: generation.into(),
            max_width: width.into(),
            ..Self::default()
        }
    }

    /// The same link with traffic at so many kB/s each way, in the throughput call and in the byte counters.
    #[must_use]
    pub fn traffic(mut self, tx_kbps: u32, rx_kbps: u32) -> Self {
        self.tx_kbps = tx_kbps.into();
        self.rx_kbps = rx_kbps.into();
        self.tx_bytes = Counter::growing(u64::from(tx_kbps) * 1_000).into();
        self.rx_bytes = Counter::growing(u64::from(rx_kbps) * 1_000).into();
        self
    }

    /// The same link without byte counters, as drivers before 555 have it.
    #[must_use]
    pub fn without_counters(mut self) -> Self {
        self.tx_bytes = Answer::NOT_SUPPORTED;
        self.rx_bytes = Answer::NOT_SUPPORTED;
        self
    }
}

/// One NVLink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// Whether it is up.
    pub active: bool,
    /// Bytes sent.
    pub tx: Counter,
    /// Bytes received.
    pub rx: Counter,
}

/// All NVLinks of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvLinks {
    /// `nvmlNvlinkVersion_t`: 4 is NVLink 3.0, 6 is 4.0, 7 is 5.0.
    pub version: u32,
    /// The links.
    pub links: Vec<Link>,
    /// Whether fields 138/139 (KiB) are answered.
    pub kib_counters: bool,
    /// Whether fields 202/204 (bytes) are answered.
    pub byte_counters: bool,
    /// Whether the scope id of all links together is answered.
    pub all_links: bool,
    /// Width of the counters in bits.
    pub counter_bits: u32,
}

impl Default for NvLinks {
    fn default() -> Self {
        Self { version: 4, links: Vec::new(), kib_counters: true, byte_counters: false, all_links: true, counter_bits: 64 }
    }
}

impl NvLinks {
    /// So many active links that stand still.
    pub fn new(version: u32, links: usize) -> Self {
        let byte_counters = version >= 7;
        Self { version, links: vec![Link { active: true, ..Link::default() }; links], byte_counters, ..Self::default() }
    }

    /// The same links, each with so many bytes a second each way.
    #[must_use]
    pub fn traffic(mut self, tx_bytes_per_s: u64, rx_bytes_per_s: u64) -> Self {
        for link in &mut self.links {
            link.tx = Counter::growing(tx_bytes_per_s);
            link.rx = Counter::growing(rx_bytes_per_s);
        }
        self
    }
}

/// ECC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ecc {
    /// Whether it is on. Off: the totals answer `NOT_SUPPORTED`.
    pub enabled: bool,
    /// Volatile corrected errors.
    pub corrected: u64,
    /// Volatile uncorrected errors.
    pub uncorrected: u64,
}

/// Multi-Instance GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mig {
    /// Whether it is on.
    pub enabled: bool,
    /// Whether it will be on after a reset; as a rule the same.
    pub pending: bool,
    /// How many MIG devices there can be.
    pub max_devices: u32,
    /// The MIG devices that exist.
    pub instances: Vec<MigInstance>,
}

/// A MIG device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MigInstance {
    /// The index under which it is found; indexes between instances answer `NOT_FOUND`.
    pub index: u32,
    /// Its GPU instance id.
    pub gpu_instance: u32,
    /// Its compute instance id.
    pub compute_instance: u32,
    /// `MIG-…`.
    pub uuid: Text,
    /// As in `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    pub name: Text,
    /// Its memory.
    pub memory: Answer<Memory>,
    /// What its process lists answer instead of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists: Option<super::Code>,
}
