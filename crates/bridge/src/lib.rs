//! The loop that carries GPU telemetry into BPF maps, as a library.
//!
//! [`run`] opens the maps, starts a [`sampler`] and publishes each of its rounds until [`Control::stop`]. Time, paths and sources are
//! parameters; nothing here reads flags or the environment.

mod backoff;
pub mod cadence;
pub mod clock;
mod control;
mod error;
mod grid;
mod lane;
mod life;
mod limits;
mod outlet;
mod plan;
pub mod records;
pub mod sampler;
mod wait;

pub use control::Control;
pub use error::{BridgeError, SamplerError};
pub use life::{run, run_within};
pub use limits::Limits;
pub use map_publisher::{Options as MapOptions, PublishError};
pub use plan::{Observer, Phase, Plan, Source, Unobserved, WhenUnavailable};
