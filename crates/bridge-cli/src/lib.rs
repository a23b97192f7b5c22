//! The command line of `gpu-ebpf-bridge`: flags, log, signals, the host's device files, and the wiring of source, loop and maps.

pub mod args;
pub mod duration;
pub mod exit;
pub mod host_devices;
mod interval;
pub mod logging;
mod normalise;
pub mod signals;
mod usage;

pub use interval::{IntervalError, PollInterval};
pub use usage::UsageError;
