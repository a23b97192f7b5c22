//! Boards as they come: identity, sizes, clocks, links, and what each does not report, at idle.

use super::{Answer, Clocks, Device, Ecc, Mig, NvLinks, Pci, Pcie, ProcessUtilization};
use crate::abi;

const MIB: u64 = 1 << 20;
/// NVIDIA's PCI vendor id.
const VENDOR: u32 = 0x10de;

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// A100-SXM4-40GB.
    A100,
    /// H100 80GB HBM3.
    H100,
    /// B200.
    B200,
    /// GB200.
    Gb200,
    /// GB300.
    Gb300,
    /// L40S.
    L40s,
    /// Tesla T4, without NVLink and without PCIe byte counters.
    T4,
    /// GB10: integrated memory, which neither version of the memory call reports.
    Gb10,
    /// A laptop's board: no ECC, no NVLink, a slow graphics list.
    Laptop4090,
}

/// What is particular to a board that has been captured.
struct Facts {
    name: &'static str,
    device_id: u32,
    subsystem_id: u32,
    total_mib: u64,
    reserved_mib: u64,
    temperature_c: i32,
    power_mw: u32,
    average_power_mw: Option<u32>,
    /// SM, memory, video, in MHz.
    clocks: [u32; 3],
    /// Graphics and SM, memory, video, in MHz.
    max_clocks: [u32; 3],
    /// Generation, lanes in use.
    link: [u32; 2],
    /// TX, RX in kB/s.
    traffic: [u32; 2],
    mig: bool,
    /// `nvmlNvlinkVersion_t`, number of links.
    nvlinks: Option<(u32, usize)>,
}

impl Board {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::A100, Self::H100, Self::B200, Self::Gb200, Self::Gb300, Self::L40s, Self::T4, Self::Gb10, Self::Laptop4090];

    /// The driver with which the board was seen.
    pub const fn driver_version(self) -> &'static str {
        match self {
            Self::A100 => "570.148.08",
            Self::H100 | Self::B200 | Self::Gb10 => "580.105.08",
            Self::Gb200 | Self::Gb300 => "580.173.02",
            Self::L40s | Self::T4 | Self::Laptop4090 => "595.91.07",
        }
    }

    fn facts(self) -> Facts {
        match self {
            Self::A100 => Facts {
                name: "NVIDIA A100-SXM4-40GB",
                device_id: 0x20b0,
                subsystem_id: 0x134f,
                total_mib: 40_960,
                reserved_mib: 518,
                temperature_c: 33,
                power_mw: 49_680,
                average_power_mw: None,
                clocks: [210, 1_215, 585],
                max_clocks: [1_410, 1_215, 1_290],
                link: [4, 16],
                traffic: [350, 300],
                mig: true,
                nvlinks: Some((4, 12)),
            },
            Self::H100 => Facts {
                name: "NVIDIA H100 80GB HBM3",
                device_id: 0x2330,
                subsystem_id: 0x16c1,
                total_mib: 81_559,
                reserved_mib: 480,
                temperature_c: 29,
                power_mw: 68_920,
                average_power_mw: Some(68_570),
                clocks: [345, 2_619, 765],
                max_clocks: [1_980, 2_619, 1_545],
                link: [5, 16],
                traffic: [502, 578],
                mig: true,
                nvlinks: Some((6, 18)),
            },
            Self::B200 => Facts {
                name: "NVIDIA B200",
                device_id: 0x2901,
                subsystem_id: 0x1999,
                total_mib: 183_359,
                reserved_mib: 728,
                temperature_c: 39,
                power_mw: 195_790,
                average_power_mw: Some(195_680),
                clocks: [120, 3_996, 600],
                max_clocks: [1_965, 3_996, 1_965],
                link: [5, 16],
                traffic: [833, 869],
                mig: true,
                nvlinks: Some((7, 18)),
            },
            Self::Gb200 => Facts {
                name: "NVIDIA GB200",
                device_id: 0x2941,
                subsystem_id: 0x2046,
                total_mib: 189_471,
                reserved_mib: 742,
                temperature_c: 27,
                power_mw: 165_930,
                average_power_mw: Some(165_930),
                clocks: [120, 3_996, 600],
                max_clocks: [2_062, 3_996, 1_890],
                link: [5, 16],
                traffic: [0, 0],
                mig: true,
                nvlinks: Some((7, 18)),
            },
            Self::Gb300 => Facts {
                name: "NVIDIA GB300",
                device_id: 0x31c2,
                subsystem_id: 0x21f1,
                total_mib: 284_208,
                reserved_mib: 947,
                temperature_c: 38,
                power_mw: 180_290,
                average_power_mw: Some(180_360),
                clocks: [120, 3_996, 600],
                max_clocks: [2_070, 3_996, 1_912],
                link: [6, 16],
                traffic: [0, 0],
                mig: true,
                nvlinks: Some((7, 18)),
            },
            Self::L40s => Facts {
                name: "NVIDIA L40S",
                device_id: 0x26b9,
                subsystem_id: 0x1851,
                total_mib: 46_068,
                reserved_mib: 609,
                temperature_c: 29,
                power_mw: 66_160,
                average_power_mw: Some(65_640),
                clocks: [2_040, 9_001, 1_725],
                max_clocks: [2_520, 9_001, 1_965],
                link: [4, 8],
                traffic: [585, 292],
                mig: false,
                nvlinks: None,
            },
            Self::T4 => Facts {
                name: "Tesla T4",
                device_id: 0x1eb8,
                subsystem_id: 0x12a2,
                total_mib: 15_360,
                reserved_mib: 448,
                temperature_c: 33,
                power_mw: 33_510,
                average_power_mw: None,
                clocks: [1_590, 5_000, 1_470],
                max_clocks: [1_590, 5_001, 1_470],
                link: [3, 8],
                traffic: [439, 292],
                mig: false,
                nvlinks: None,
            },
            // No capture: what is known is which metrics these do not report.
            Self::Gb10 => Facts {
                name: "NVIDIA GB10",
                device_id: 0x2e12,
                subsystem_id: 0x0000,
                total_mib: 0,
                reserved_mib: 0,
                temperature_c: 41,
                power_mw: 11_200,
                average_power_mw: Some(11_000),
                clocks: [208, 0, 598],
                max_clocks: [3_003, 0, 3_003],
                link: [1, 1],
                traffic: [0, 0],
                mig: false,
                nvlinks: None,
            },
            Self::Laptop4090 => Facts {
                name: "NVIDIA GeForce RTX 4090 Laptop GPU",
                device_id: 0x2717,
                subsystem_id: 0x0b01,
                total_mib: 16_376,
                reserved_mib: 384,
                temperature_c: 45,
                power_mw: 14_300,
                average_power_mw: Some(14_000),
                clocks: [210, 405, 765],
                max_clocks: [3_105, 9_001, 2_415],
                link: [4, 8],
                traffic: [600, 350],
                mig: false,
                nvlinks: None,
            },
        }
    }
}

impl From<Board> for Device {
    fn from(board: Board) -> Self {
        let facts = board.facts();
        let [sm, mem, video] = facts.clocks;
        let [max_sm, max_mem, max_video] = facts.max_clocks;
        let [generation, width] = facts.link;
        let [tx_kbps, rx_kbps] = facts.traffic;
        let mut pcie = Pcie::link(generation, width).traffic(tx_kbps, rx_kbps);
        pcie.max_width = 16.into();
        let idle = Self { average_power_mw: facts.average_power_mw.map_or(Answer::NOT_SUPPORTED, Answer::Value), ..Self::default() }
            .name(facts.name)
            .pci(Pci { device_id: facts.device_id << 16 | VENDOR, subsystem_id: facts.subsystem_id << 16 | VENDOR, ..Pci::default() })
            .utilization(0, 0)
            .memory(facts.total_mib * MIB, 0, facts.reserved_mib * MIB)
            .temperature_c(facts.temperature_c)
            .power_mw(facts.power_mw)
            .energy_mj(81_000_000)
            .clocks(Clocks::new(sm, mem, video))
            .max_clocks(Clocks::new(max_sm, max_mem, max_video))
            .event_reasons(u64::from(abi::nvmlClocksEventReasonGpuIdle))
            .pcie(pcie)
            .encoder(0)
            .decoder(0)
            .ecc(Ecc { enabled: true, ..Ecc::default() })
            .compute_mode(abi::NVML_COMPUTEMODE_DEFAULT)
            .persistence_mode(true)
            .nvlinks(facts.nvlinks.map_or(Answer::NOT_SUPPORTED, |(version, links)| NvLinks::new(version, links).into()))
            .process_utilization(ProcessUtilization::default());
        let mig = if facts.mig { Mig { max_devices: 7, ..Mig::default() }.into() } else { Answer::NOT_SUPPORTED };
        let idle = Self { mig, ..idle };
        match board {
            Board::T4 => {
                let pcie = idle.pcie.clone().without_counters();
                idle.pcie(pcie)
            }
            Board::Gb10 => {
                let mut idle = idle.without_memory().ecc(Answer::NOT_SUPPORTED);
                idle.clocks.mem = Answer::NOT_SUPPORTED;
                idle.max_clocks.mem = Answer::NOT_SUPPORTED;
                idle
            }
            Board::Laptop4090 => idle.ecc(Answer::NOT_SUPPORTED).costs("nvmlDeviceGetGraphicsRunningProcesses*", 4_500),
            _ => idle,
        }
    }
}

impl Device {
    /// An idle A100-SXM4-40GB.
    pub fn a100() -> Self {
        Board::A100.into()
    }

    /// An idle H100 80GB HBM3.
    pub fn h100() -> Self {
        Board::H100.into()
    }

    /// An idle T4.
    pub fn t4() -> Self {
        Board::T4.into()
    }

    /// The same board at work: every figure that it reports is different from 0 and from the others.
    #[must_use]
    pub fn at_work(mut self) -> Self {
        const REASONS: u64 = 0x8000_0000_0000_0004;
        if self.utilization != Answer::NOT_SUPPORTED {
            self = self.utilization(71, 53);
        }
        if let Answer::Value(memory) = &mut self.memory {
            memory.used = memory.total / 3;
        }
        if let Answer::Value(ecc) = &mut self.ecc {
            (ecc.corrected, ecc.uncorrected) = (12_345, 6);
        }
        if let Answer::Value(nvlinks) = &mut self.nvlinks {
            *nvlinks = nvlinks.clone().traffic(2_000_000_000, 1_000_000_000);
        }
        if self.encoder != Answer::NOT_SUPPORTED {
            (self.encoder, self.decoder) = (21.into(), 17.into());
        }
        self.clocks = self.max_clocks.clone();
        let pcie = self.pcie.clone();
        let counted = pcie.tx_bytes != Answer::NOT_SUPPORTED;
        // No more than half of what its link carries.
        let lanes = pcie.max_width.get().map_or(16, |width| *width);
        let half = pcie.max_generation.get().map_or(u32::MAX, |generation| (125_000 << (generation - 1)) * lanes);
        let pcie = pcie.traffic(half.min(4_500_000), half.min(2_500_000));
        let pcie = if counted { pcie } else { pcie.without_counters() };
        // The top bit is one that no header names.
        self.pcie(pcie).temperature_c(66).power_mw(287_654).event_reasons(REASONS)
    }
}
