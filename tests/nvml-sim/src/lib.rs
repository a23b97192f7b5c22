//! A scripted `libnvidia-ml.so.1`, so that what reads GPUs through NVML can be tested on machines without one.
//!
//! The crate is two things. As a `cdylib` it is the library: it exports NVML's symbols ([`symbols`]) with NVML's ABI ([`abi`]) and answers
//! as a scenario says. As an `rlib` it is what tests use: [`scenario`] to describe the machine, [`library`] to put the library into a
//! directory, [`stats`] to see which calls were made and what they cost.
//!
//! ```no_run
//! use nvml_sim::{library, scenario::{Device, Load, Process, Scenario}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = std::env::temp_dir().join("driver");
//! let nvml = library::install(&directory, &[])?;
//! let process = Process::compute(std::process::id(), 512 << 20).busy(Load::new(70, 30));
//! let mut scenario = Scenario::new().device(Device::a100().at_work().process(process)).device(Device::t4());
//! nvml.play(&scenario)?;
//! // … start what loads `nvml.path()` …
//! scenario.change(1, |device| device.lost(nvml_sim::scenario::Code::GPU_IS_LOST));
//! nvml.play(&scenario)?;
//! assert!(nvml.stats()?.calls("nvmlDeviceGetTemperature") > 0);
//! # Ok(())
//! # }
//! ```
//!
//! In the scenario's file only what differs is said; what is not said is not supported:
//!
//! ```json
//! {"devices": [{
//!     "name": "NVIDIA A100-SXM4-40GB", "temperature_c": 44, "power_mw": {"error": 999},
//!     "memory": {"total": 42949672960, "used": 1073741824, "reserved": 543162368},
//!     "processes": [{"pid": 4711, "lists": ["compute"], "used_memory": 1073741824,
//!                    "activity": {"periodic": {"period_ms": 1000, "loads": [{"sm": 70, "mem": 30}]}}}],
//!     "faults": [{"call": "nvmlDeviceGetFanSpeed", "effect": {"return": 15}, "after_calls": 10}]
//! }]}
//! ```
//!
//! The library looks for its scenario in [`SCENARIO_VARIABLE`], else beside the file that it was loaded from, and takes up changes within
//! 2 ms of the next call. It keeps its account in [`STATS_VARIABLE`], else beside itself.
//!
//! **How other crates get an up-to-date library.** A crate that has this one among its dependencies makes Cargo build both crate types with
//! one compiler run, so the `.so` in `target/<profile>/deps` is exactly as new as the `rlib` that the program is linked with;
//! [`library::built`] takes it from there. The one in `target/<profile>` is not used: Cargo renews it only for `cargo build -p nvml-sim`.
//! A `cdylib`'s file name has no hash, so selections of packages with other features of shared dependencies (`-p e2e`, `-p xtask`) rebuild
//! this crate in turn. Programs that run away from Cargo's directories say where the library is in [`LIBRARY_VARIABLE`].

pub mod abi;
mod calls;
mod clock;
pub mod library;
pub mod nvidia;
mod runtime;
pub mod scenario;
mod stamp;
pub mod stats;
pub mod symbols;

pub use clock::{boottime_ns, realtime_us};

/// The environment variable with the path of the library to install, for programs that were moved away from it.
pub const LIBRARY_VARIABLE: &str = "NVML_SIM_LIBRARY";
/// The environment variable with the scenario file's path.
pub const SCENARIO_VARIABLE: &str = "NVML_SIM_SCENARIO";
/// The scenario file's name beside the library.
pub const SCENARIO_FILE: &str = "scenario.json";
/// The environment variable with the account's path.
pub const STATS_VARIABLE: &str = "NVML_SIM_STATS";
/// The account's name beside the library.
pub const STATS_FILE: &str = "nvml-sim.stats";
