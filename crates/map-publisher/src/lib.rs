//! The write side of the pinned `gpu_*` BPF maps.
//!
//! [`Publisher::open`] takes the pin directory for itself and adopts or creates the maps; [`Publisher::publish`] makes the maps equal one round
//! of [`Records`], in the order that consumers rely on; [`Publisher::close`] leaves nothing behind that looks alive. Where the records come from
//! is the caller's affair.
//!
//! The thread that publishes must stay on one CPU, see [`cpu`].
//!
//! ```no_run
//! use gpu_types::{GpuDeviceMetrics, GpuMeta};
//! use map_publisher::{Options, Publisher, Records, cpu};
//!
//! # fn boottime_ns() -> u64 { 0 }
//! cpu::bind_to_lowest()?;
//! let mut publisher = Publisher::open(&Options::new("/sys/fs/bpf", std::process::id(), boottime_ns()))?;
//! let mut records = Records {
//!     meta: GpuMeta { schema_version: 1, n_devices: 1, helper_pid: std::process::id(), ..GpuMeta::default() },
//!     ..Records::default()
//! };
//! for _ in 0..10 {
//!     records.meta.last_update_boottime_ns = boottime_ns();
//!     records.devices[0] = GpuDeviceMetrics { timestamp_ns: 1_700_000_000_000_000_000, sm_util_pct: 71, ..Default::default() };
//!     publisher.publish(&records)?;
//! }
//! publisher.close(false)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cpu;
mod create;
mod directory;
mod error;
mod ledger;
mod map;
mod open;
mod pin;
mod publisher;
mod read;
mod records;
mod state;
mod watch;
mod write;
mod writer;

pub use error::{PublishError, chain};
pub use open::Options;
pub use publisher::Publisher;
pub use records::{Published, Records};
pub use watch::PinEvent;
