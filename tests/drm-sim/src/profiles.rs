//! What the kernel shows of some GPUs that exist: the names, labels and units of the files, with figures of our own.
//!
//! Which files there are was taken from captures of real machines, where a profile says so; telemetry-drm's tests compare the two.

use crate::GpuMetrics;

/// A kind of GPU.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What it is called in tests.
    pub name: &'static str,
    /// The kernel's driver for it.
    pub driver: &'static str,
    /// Where it usually sits.
    pub pci: &'static str,
    /// Vendor and device, as in `1002:67df`.
    pub id: &'static str,
    /// Its files: see [`Card`](crate::Card) for their names.
    pub files: &'static [(&'static str, &'static str)],
    /// Its `gpu_metrics`.
    pub table: Option<GpuMetrics>,
    /// Files that its capture lacks, though the driver has them on this GPU.
    pub supplied: &'static [&'static str],
}

const POWER: [&str; 3] = ["power/runtime_status", "power/control", "power/autosuspend_delay_ms"];

/// A discrete GPU of 2017: PCIe counters, no table, no labels but the edge's.
pub const RX580: Profile = Profile {
    name: "rx580",
    driver: "amdgpu",
    pci: "0000:09:00.0",
    id: "1002:67df",
    files: &[
        ("gpu_busy_percent", "12"),
        ("mem_busy_percent", "4"),
        ("mem_info_vram_total", "4294967296"),
        ("mem_info_vram_used", "536870912"),
        ("mem_info_gtt_total", "8342712320"),
        ("mem_info_gtt_used", "92377088"),
        ("pcie_bw", "12000 2500 256"),
        ("product_name", "\n"),
        ("hwmon/hwmon4/name", "amdgpu"),
        ("hwmon/hwmon4/temp1_label", "edge"),
        ("hwmon/hwmon4/temp1_input", "44000"),
        ("hwmon/hwmon4/power1_label", "PPT"),
        ("hwmon/hwmon4/power1_average", "41045000"),
        ("hwmon/hwmon4/freq1_label", "sclk"),
        ("hwmon/hwmon4/freq1_input", "798080000"),
        ("hwmon/hwmon4/freq2_label", "mclk"),
        ("hwmon/hwmon4/freq2_input", "1750000000"),
        ("hwmon/hwmon4/pwm1", "51"),
        ("power/runtime_status", "active"),
        ("power/control", "on"),
    ],
    table: None,
    supplied: &POWER,
};

/// Vega: PCIe counters, three temperatures.
pub const VEGA56: Profile = Profile {
    name: "vega56",
    driver: "amdgpu",
    pci: "0000:0b:00.0",
    id: "1002:687f",
    files: &[
        ("gpu_busy_percent", "0"),
        ("mem_info_vram_total", "8573157376"),
        ("mem_info_vram_used", "16613376"),
        ("mem_info_gtt_total", "8342863872"),
        ("mem_info_gtt_used", "12337152"),
        ("pcie_bw", "85 0 256"),
        ("product_name", "\n"),
        ("hwmon/hwmon4/name", "amdgpu"),
        ("hwmon/hwmon4/temp1_label", "edge"),
        ("hwmon/hwmon4/temp1_input", "38000"),
        ("hwmon/hwmon4/temp2_label", "junction"),
        ("hwmon/hwmon4/temp2_input", "39000"),
        ("hwmon/hwmon4/temp3_label", "mem"),
        ("hwmon/hwmon4/temp3_input", "40000"),
        ("hwmon/hwmon4/power1_label", "PPT"),
        ("hwmon/hwmon4/power1_average", "8000000"),
        ("hwmon/hwmon4/freq1_label", "sclk"),
        ("hwmon/hwmon4/freq1_input", "26000000"),
        ("hwmon/hwmon4/freq2_label", "mclk"),
        ("hwmon/hwmon4/freq2_input", "167000000"),
        ("hwmon/hwmon4/pwm1", "0"),
        ("power/runtime_status", "active"),
        ("power/control", "on"),
    ],
    table: None,
    supplied: &[],
};

/// RDNA 2: a table with reasons for throttling, a unique id.
pub const RX6900XT: Profile = Profile {
    name: "rx6900xt",
    driver: "amdgpu",
    pci: "0000:2d:00.0",
    id: "1002:73bf",
    files: &[
        ("gpu_busy_percent", "3"),
        ("mem_busy_percent", "1"),
        ("mem_info_vram_total", "17163091968"),
        ("mem_info_vram_used", "668274688"),
        ("mem_info_gtt_total", "16786171904"),
        ("mem_info_gtt_used", "62369792"),
        ("product_name", "\n"),
        ("unique_id", "0123456789abcdef"),
        ("hwmon/hwmon5/name", "amdgpu"),
        ("hwmon/hwmon5/temp1_label", "edge"),
        ("hwmon/hwmon5/temp1_input", "56000"),
        ("hwmon/hwmon5/temp2_label", "junction"),
        ("hwmon/hwmon5/temp2_input", "59000"),
        ("hwmon/hwmon5/temp3_label", "mem"),
        ("hwmon/hwmon5/temp3_input", "54000"),
        ("hwmon/hwmon5/power1_label", "PPT"),
        ("hwmon/hwmon5/power1_average", "36000000"),
        ("hwmon/hwmon5/freq1_label", "sclk"),
        ("hwmon/hwmon5/freq1_input", "500000000"),
        ("hwmon/hwmon5/freq2_label", "mclk"),
        ("hwmon/hwmon5/freq2_input", "1000000000"),
        ("hwmon/hwmon5/pwm1", "0"),
        ("power/runtime_status", "active"),
        ("power/control", "auto"),
        ("power/autosuspend_delay_ms", "5000"),
    ],
    table: Some(GpuMetrics {
        version: (1, 3),
        size: 120,
        words: &[(4, 56), (6, 59), (16, 3), (18, 1), (22, 36)],
        throttle: Some((112, 0)),
    }),
    supplied: &[],
};

/// An APU of 2023: a carve-out of 4 GiB and system memory, no memory clock, no fan, a table without reasons.
pub const PHOENIX: Profile = Profile {
    name: "phoenix",
    driver: "amdgpu",
    pci: "0000:64:00.0",
    id: "1002:15bf",
    files: &[
        ("gpu_busy_percent", "7"),
        ("vcn_busy_percent", "0"),
        ("mem_info_vram_total", "4294967296"),
        ("mem_info_vram_used", "1272893440"),
        ("mem_info_gtt_total", "31433977856"),
        ("mem_info_gtt_used", "211398656"),
        ("unique_id", "\n"),
        ("hwmon/hwmon6/name", "amdgpu"),
        ("hwmon/hwmon6/temp1_label", "edge"),
        ("hwmon/hwmon6/temp1_input", "25000"),
        ("hwmon/hwmon6/power1_label", "PPT"),
        ("hwmon/hwmon6/power1_average", "3103000"),
        ("hwmon/hwmon6/power1_input", "3142000"),
        ("hwmon/hwmon6/freq1_label", "sclk"),
        ("hwmon/hwmon6/freq1_input", "800000000"),
        ("hwmon/hwmon6/in0_label", "vddgfx"),
        ("hwmon/hwmon6/in1_label", "vddnb"),
        ("power/runtime_status", "active"),
        ("power/control", "on"),
    ],
    table: Some(GpuMetrics { version: (2, 1), size: 120, words: &[(4, 2_500), (28, 79), (40, 3_401)], throttle: None }),
    supplied: &[],
};

/// An APU of 2024: a table of the third format.
pub const STRIXPOINT: Profile = Profile {
    name: "strixpoint",
    driver: "amdgpu",
    pci: "0000:c1:00.0",
    id: "1002:150e",
    files: &[
        ("gpu_busy_percent", "3"),
        ("vcn_busy_percent", "0"),
        ("mem_info_vram_total", "536870912"),
        ("mem_info_vram_used", "514580480"),
        ("mem_info_gtt_total", "16441004032"),
        ("mem_info_gtt_used", "3946811392"),
        ("hwmon/hwmon6/name", "amdgpu"),
        ("hwmon/hwmon6/temp1_label", "edge"),
        ("hwmon/hwmon6/temp1_input", "38000"),
        ("hwmon/hwmon6/power1_label", "PPT"),
        ("hwmon/hwmon6/power1_average", "9087000"),
        ("hwmon/hwmon6/power1_input", "9087000"),
        ("hwmon/hwmon6/freq1_label", "sclk"),
        ("hwmon/hwmon6/freq1_input", "848000000"),
        ("hwmon/hwmon6/in0_label", "vddgfx"),
        ("hwmon/hwmon6/in1_label", "vddnb"),
        ("power/runtime_status", "active"),
        ("power/control", "on"),
    ],
    table: Some(GpuMetrics { version: (3, 0), size: 264, words: &[(4, 3_812), (42, 3)], throttle: None }),
    supplied: &[],
};

/// An accelerator without an edge sensor, display or fan; RAS counters, figures of our own reading of the driver.
pub const MI300X: Profile = Profile {
    name: "mi300x",
    driver: "amdgpu",
    pci: "0001:65:00.0",
    id: "1002:74a1",
    files: &[
        ("gpu_busy_percent", "88"),
        ("mem_busy_percent", "41"),
        ("mem_info_vram_total", "206141652992"),
        ("mem_info_vram_used", "103079215104"),
        ("mem_info_gtt_total", "540000000000"),
        ("mem_info_gtt_used", "40000000"),
        ("product_name", "AMD Instinct MI300X OAM"),
        ("unique_id", "fedcba9876543210"),
        ("ras/umc_err_count", "ue: 1\nce: 23"),
        ("hwmon/hwmon9/name", "amdgpu"),
        ("hwmon/hwmon9/temp2_label", "junction"),
        ("hwmon/hwmon9/temp2_input", "61000"),
        ("hwmon/hwmon9/temp3_label", "mem"),
        ("hwmon/hwmon9/temp3_input", "55000"),
        ("hwmon/hwmon9/power1_label", "PPT"),
        ("hwmon/hwmon9/power1_input", "512000000"),
        ("hwmon/hwmon9/freq1_label", "sclk"),
        ("hwmon/hwmon9/freq1_input", "2100000000"),
        ("hwmon/hwmon9/freq2_label", "mclk"),
        ("hwmon/hwmon9/freq2_input", "1300000000"),
        ("power/runtime_status", "active"),
        ("power/control", "on"),
    ],
    table: Some(GpuMetrics { version: (1, 4), size: 328, words: &[(4, 61), (12, 88), (14, 41)], throttle: None }),
    supplied: &[],
};

/// Intel's first discrete GPU of a desktop under i915.
pub const A380_I915: Profile = Profile {
    name: "a380-i915",
    driver: "i915",
    pci: "0000:0b:00.0",
    id: "8086:56a5",
    files: &[
        ("card/gt_act_freq_mhz", "600"),
        ("card/gt_cur_freq_mhz", "650"),
        ("card/gt/gt0/rps_act_freq_mhz", "600"),
        ("card/gt/gt0/rps_cur_freq_mhz", "650"),
        ("card/gt/gt0/throttle_reason_status", "0"),
        ("card/gt/gt0/throttle_reason_pl1", "0"),
        ("card/gt/gt0/throttle_reason_pl2", "0"),
        ("card/gt/gt0/throttle_reason_pl4", "0"),
        ("card/gt/gt0/throttle_reason_thermal", "0"),
        ("card/gt/gt0/throttle_reason_prochot", "0"),
        ("card/gt/gt0/throttle_reason_ratl", "0"),
        ("card/gt/gt0/throttle_reason_vr_thermalert", "0"),
        ("card/gt/gt0/throttle_reason_vr_tdc", "0"),
        ("hwmon/hwmon1/name", "i915"),
        ("hwmon/hwmon1/energy1_input", "25637161804"),
        ("hwmon/hwmon1/temp1_input", "55000"),
        ("hwmon/hwmon2/name", "i915_gt0"),
        ("hwmon/hwmon2/energy1_input", "1"),
        ("power/runtime_status", "active"),
        ("power/control", "on"),
    ],
    table: None,
    supplied: &["power/runtime_status", "power/control", "hwmon/hwmon2/name", "hwmon/hwmon2/energy1_input"],
};

/// The same board under xe.
pub const A380_XE: Profile = Profile {
    name: "a380-xe",
    driver: "xe",
    pci: "0000:08:00.0",
    id: "8086:56a5",
    files: &[
        ("tile0/gt0/freq0/act_freq", "0"),
        ("tile0/gt0/freq0/cur_freq", "300"),
        ("tile0/gt0/freq0/throttle/status", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl1", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl2", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl4", "0"),
        ("tile0/gt0/freq0/throttle/reason_thermal", "0"),
        ("tile0/gt0/freq0/throttle/reason_prochot", "0"),
        ("tile0/gt0/freq0/throttle/reason_ratl", "0"),
        ("tile0/gt0/freq0/throttle/reason_vr_thermalert", "0"),
        ("tile0/gt0/freq0/throttle/reason_vr_tdc", "0"),
        ("hwmon/hwmon0/name", "xe"),
        ("hwmon/hwmon0/energy2_label", "pkg"),
        ("hwmon/hwmon0/energy2_input", "59540970520"),
        ("hwmon/hwmon0/in1_label", "pkg"),
        ("hwmon/hwmon0/temp2_label", "pkg"),
        ("hwmon/hwmon0/temp2_input", "56000"),
        ("hwmon/hwmon0/temp3_label", "vram"),
        ("hwmon/hwmon0/temp3_input", "54000"),
        ("power/runtime_status", "active"),
        ("power/control", "auto"),
    ],
    table: None,
    supplied: &[],
};

/// Battlemage: the card's energy counter stands at 0, the package's counts.
pub const B580: Profile = Profile {
    name: "b580-6.16",
    driver: "xe",
    pci: "0000:0c:00.0",
    id: "8086:e20b",
    files: &[
        ("tile0/gt0/freq0/act_freq", "400"),
        ("tile0/gt0/freq0/cur_freq", "450"),
        ("tile0/gt0/freq0/throttle/status", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl1", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl2", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl4", "0"),
        ("tile0/gt0/freq0/throttle/reason_thermal", "0"),
        ("tile0/gt0/freq0/throttle/reason_prochot", "0"),
        ("tile0/gt0/freq0/throttle/reason_ratl", "0"),
        ("tile0/gt0/freq0/throttle/reason_vr_thermalert", "0"),
        ("tile0/gt0/freq0/throttle/reason_vr_tdc", "0"),
        ("hwmon/hwmon4/name", "xe"),
        ("hwmon/hwmon4/energy1_label", "card"),
        ("hwmon/hwmon4/energy1_input", "0"),
        ("hwmon/hwmon4/energy2_label", "pkg"),
        ("hwmon/hwmon4/energy2_input", "29523753173"),
        ("hwmon/hwmon4/temp2_label", "pkg"),
        ("hwmon/hwmon4/temp2_input", "46000"),
        ("hwmon/hwmon4/temp3_label", "vram"),
        ("hwmon/hwmon4/temp3_input", "48000"),
        ("power/runtime_status", "active"),
        ("power/control", "auto"),
    ],
    table: None,
    supplied: &[],
};

/// An integrated GPU under i915, of a kernel without a `gt` directory.
pub const COMETLAKE: Profile = Profile {
    name: "cometlake",
    driver: "i915",
    pci: "0000:00:02.0",
    id: "8086:9b41",
    files: &[("card/gt_act_freq_mhz", "350"), ("card/gt_cur_freq_mhz", "400"), ("power/runtime_status", "active"), ("power/control", "on")],
    table: None,
    supplied: &["power/runtime_status", "power/control"],
};

/// An integrated GPU under xe.
pub const TIGERLAKE: Profile = Profile {
    name: "tigerlake",
    driver: "xe",
    pci: "0000:00:02.0",
    id: "8086:9a49",
    files: &[
        ("tile0/gt0/freq0/act_freq", "0"),
        ("tile0/gt0/freq0/cur_freq", "1100"),
        ("tile0/gt0/freq0/throttle/status", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl1", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl2", "0"),
        ("tile0/gt0/freq0/throttle/reason_pl4", "0"),
        ("tile0/gt0/freq0/throttle/reason_thermal", "0"),
        ("tile0/gt0/freq0/throttle/reason_prochot", "0"),
        ("tile0/gt0/freq0/throttle/reason_ratl", "0"),
        ("tile0/gt0/freq0/throttle/reason_vr_thermalert", "0"),
        ("tile0/gt0/freq0/throttle/reason_vr_tdc", "0"),
        ("power/runtime_status", "active"),
        ("power/control", "auto"),
    ],
    table: None,
    supplied: &["power/runtime_status", "power/control"],
};

/// All of them.
pub const ALL: [Profile; 11] = [RX580, VEGA56, RX6900XT, PHOENIX, STRIXPOINT, MI300X, A380_I915, A380_XE, B580, COMETLAKE, TIGERLAKE];
