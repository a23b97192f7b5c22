//! What a GPU reports and who can report it: readings, sources, devices; the mock source.
//!
//! A [`TelemetrySource`] opens and hands out [`Device`]s. Each device lists its [`Probe`]s, named questions with the shortest period at
//! which their answers can change; who asks, and when, is not the device's business. Answers are written into a [`Reading`].

pub mod mock;
mod reading;
mod source;
mod time;

pub use reading::{Failures, Memory, Metrics, Process, ProcessUtilization, Reading};
pub use source::{Answer, Device, DeviceError, Identity, OpenError, OpenSource, Probe, SourceInfo, TelemetrySource};
pub use time::{Now, Stamp};
