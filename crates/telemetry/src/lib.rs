//! What a GPU reports and who can report it: readings, sources, devices; the mock source.
//!
//! A [`TelemetrySource`] opens and hands out [`Device`]s. Each device lists its [`Probe`]s, named questions with the shortest period at
//! which their answers can change; who asks, and when, is not the device's business. Answers are written into a [`Reading`].
//!
//! A device that knows its temperature and nothing else:
//!
//! ```
//! use std::time::Duration;
//!
//! use telemetry::{Answer, Device, DeviceError, Identity, Now, Probe, Reading};
//!
//! const PROBES: [Probe; 1] = [Probe { name: "temperature", period: Duration::from_millis(500) }];
//!
//! #[derive(Debug)]
//! struct Thermometer(Identity);
//!
//! impl Device for Thermometer {
//!     fn identity(&self) -> &Identity {
//!         &self.0
//!     }
//!
//!     fn probes(&self) -> &[Probe] {
//!         &PROBES
//!     }
//!
//!     fn ask(&mut self, _probe: usize, _now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
//!         reading.metrics.temp_c = Some(64);
//!         Ok(Answer::Answered)
//!     }
//! }
//!
//! let mut reading = Reading::default();
//! let mut device = Thermometer(Identity { name: "Example".to_owned(), ..Identity::default() });
//! device.ask(0, Now::default(), &mut reading)?;
//! assert_eq!(reading.metrics.temp_c, Some(64));
//! assert_eq!(reading.metrics.power_mw, None, "absent, which is not 0");
//! # Ok::<(), DeviceError>(())
//! ```

mod aside;
pub mod mock;
mod reading;
mod source;
mod time;

pub use aside::Aside;
pub use reading::{Failures, Memory, Metrics, Process, ProcessUtilization, Reading};
pub use source::{Answer, Device, DeviceError, Identity, OpenError, OpenSource, Probe, SourceInfo, TelemetrySource};
pub use time::{CLOCK_STEP_NS, Now, Stamp};
