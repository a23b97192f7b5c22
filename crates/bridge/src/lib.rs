//! The loop that carries GPU telemetry into BPF maps, as a library.
//!
//! [`run`] opens the maps, starts a [`sampler`] a source and publishes their rounds as one picture a tick until [`Control::stop`]. Time, paths and
//! sources are parameters; nothing here reads flags or the environment.

mod backoff;
pub mod cadence;
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
pub mod records;
pub mod sampler;
mod tally;
mod wait;

pub use control::Control;
pub use error::{BridgeError, SamplerError};
pub use life::{run, run_within};
pub use limits::Limits;
pub use map_publisher::{Options as MapOptions, PublishError};
pub use plan::{Observer, Phase, Plan, Source, Unobserved, WhenUnavailable};
