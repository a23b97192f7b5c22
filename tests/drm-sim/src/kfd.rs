//! Simulated kfd: `/sys/class/kfd/kfd`, through which amdgpu tells of compute.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

/// One GPU in kfd's topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// kfd's name for it; 0 for a processor.
    pub gpu_id: u32,
    /// N of its renderDN, 0 if it has none.
    pub render_minor: u32,
    /// Bus, device and function.
    pub location: u16,
    /// Its compute units.
    pub compute_units: u32,
}

/// The `kfd` of a tree.
#[derive(Clone, Debug)]
pub struct Kfd {
    directory: PathBuf,
}

impl Kfd {
    /// Below what stands for `/`; made if need be, with the node that stands for the processor.
    pub fn new(root: &Path) -> Self {
        let kfd = Self { directory: root.join("sys/class/kfd/kfd") };
        fs::create_dir_all(kfd.directory.join("proc")).expect("a directory in one's own");
        kfd.node(0, Node { gpu_id: 0, render_minor: 0, location: 0, compute_units: 0 });
        kfd
    }

    /// Adds a node.
    pub fn node(&self, number: u32, node: Node) {
        let Node { gpu_id, render_minor, location, compute_units } = node;
        let directory = self.directory.join(format!("topology/nodes/{number}"));
        fs::create_dir_all(&directory).expect("a directory in one's own");
        let simds = compute_units * 2;
        let properties = format!(
            "cpu_cores_count 0\nsimd_count {simds}\nmem_banks_count 1\nmax_waves_per_simd 16\ncu_per_simd_array 6\nsimd_per_cu 2\n\
             location_id {location}\ndomain 0\ndrm_render_minor {render_minor}\nnum_xcc 1\n"
        );
        fs::write(directory.join("gpu_id"), format!("{gpu_id}\n")).expect("a file in one's own directory");
        fs::write(directory.join("properties"), properties).expect("a file in one's own directory");
    }

    /// A process with a queue on some GPU.
    pub fn process(&self, pid: u32) -> KfdProcess {
        let directory = self.directory.join("proc").join(pid.to_string());
        fs::create_dir_all(directory.join("queues")).expect("a directory in one's own");
        KfdProcess { directory }
    }
}

/// A process as kfd shows it.
#[derive(Clone, Debug)]
pub struct KfdProcess {
    directory: PathBuf,
}

impl KfdProcess {
    /// Says what it holds and occupies of a GPU. Beside it stands the file that must never be read: one who does hangs.
    pub fn set(&self, gpu_id: u32, vram_bytes: u64, occupied_compute_units: u32) {
        let stats = self.directory.join(format!("stats_{gpu_id}"));
        fs::create_dir_all(&stats).expect("a directory in one's own");
        fs::write(self.directory.join(format!("vram_{gpu_id}")), format!("{vram_bytes}\n")).expect("a file in one's own directory");
        fs::write(stats.join("cu_occupancy"), format!("{occupied_compute_units}\n")).expect("a file in one's own directory");
        let forbidden = self.directory.join(format!("sdma_{gpu_id}"));
        if !forbidden.exists() {
            mkfifo(&forbidden, Mode::S_IRUSR).expect("a FIFO in one's own directory");
        }
    }

    /// A further context of it, as newer kernels know them.
    pub fn context(&self, number: u32) -> Self {
        let directory = self.directory.join(format!("context_{number}"));
        fs::create_dir_all(&directory).expect("a directory in one's own");
        Self { directory }
    }

    /// Ends.
    pub fn exit(self) {
        fs::remove_dir_all(&self.directory).expect("a directory in one's own");
    }
}
