//! GPU telemetry of AMD and Intel GPUs, read from the kernel's own files.
//!
//! [`DrmSource`] looks below `/sys/class/drm` for cards of the drivers amdgpu, i915 and xe and hands out one device a card. It loads no vendor
//! library, opens nothing below `/dev/dri`, and leaves a GPU that sleeps asleep. What is published for which driver, and what is absent,
//! docs/vendors.md tells to users.

mod card;
mod clients;
mod cost;
mod gpu_metrics;
mod parse;
mod pci;
mod present;
mod source;
mod sysfs;

pub use present::is_present;
pub use source::{DrmOptions, DrmSource};
