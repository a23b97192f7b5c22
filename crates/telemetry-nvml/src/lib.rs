//! GPU telemetry read through NVIDIA's NVML.
//!
//! [`NvmlSource`] opens the driver's library and hands out one device a GPU. What is asked, how often its answer can change and what an
//! absent answer means stands with each probe; docs/nvml.md tells it to users.
//!
//! ```no_run
//! use telemetry::TelemetrySource;
//! use telemetry_nvml::{NvmlOptions, NvmlSource};
//!
//! let opened = NvmlSource::new(NvmlOptions::default()).open()?;
//! for device in &opened.devices {
//!     println!("{}: {} questions", device.identity().name, device.probes().len());
//! }
//! # Ok::<(), telemetry::OpenError>(())
//! ```

mod device;
mod library;
mod pure;
mod source;
mod sys;

pub use library::LibraryChoice;
pub use source::{NvmlOptions, NvmlSource};
