//! The loop that carries GPU telemetry into BPF maps, as a library.
//!
//! [`run`] opens the maps, starts a [`sampler`] a source and publishes their rounds as one picture a tick until [`Control::stop`]. Time, paths and
//! sources are parameters; nothing here reads flags or the environment.
//!
//! The mock source, published from another program until something there calls [`Control::stop`]:
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bridge::clock::{Clock, SystemClock};
//! use bridge::sampler::LaneLauncher;
//! use bridge::{Control, MapOptions, Plan, Source, Unobserved, WhenUnavailable};
//! use telemetry::mock::MockSource;
//!
//! let clock = Arc::new(SystemClock);
//! let poll_interval = Duration::from_millis(100);
//! let launcher = LaneLauncher::new(|| Box::new(MockSource::default()), poll_interval, clock.clone());
//! let plan = Plan {
//!     maps: MapOptions::new("/sys/fs/bpf/example", std::process::id(), clock.boottime_ns()),
//!     keep_pins: false,
//!     poll_interval,
//!     version: "1.0".to_owned(),
//!     clock,
//!     sources: vec![Source { name: "mock", is_mock: true, launcher: Box::new(launcher) }],
//!     when_unavailable: WhenUnavailable::Wait,
//!     observer: Box::new(Unobserved),
//! };
//! bridge::run(plan, &Control::new()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backoff;
mod cadence;
pub mod clock;
mod control;
mod describe;
mod error;
mod feed;
mod gather;
mod grid;
mod lane;
mod life;
mod limits;
mod outlet;
mod picture;
mod plan;
#[doc(hidden)] // For the benches alone.
pub mod records;
pub mod sampler;
mod tally;
mod trouble;
mod wait;

pub use control::Control;
pub use error::{BridgeError, SamplerError};
pub use life::{run, run_within};
pub use limits::Limits;
pub use map_publisher::{Options as MapOptions, PublishError};
pub use plan::{Observer, Phase, Plan, Source, Unobserved, WhenUnavailable};
