//! GPU telemetry read through NVIDIA's NVML.
//!
//! [`NvmlSource`] opens the driver's library and hands out one device a GPU. What is asked, how often its answer can change and what an
//! absent answer means stands with each probe; docs/nvml.md tells it to users.

mod device;
mod library;
mod pure;
mod source;
mod sys;

pub use library::LibraryChoice;
pub use source::{NvmlOptions, NvmlSource};
