//! The write side of the pinned `gpu_*` BPF maps.
//!
//! [`Publisher::open`] takes the pin directory for itself and adopts or creates the maps; [`Publisher::publish`] makes the maps equal one round
//! of [`Records`], in the order that consumers rely on; [`Publisher::close`] leaves nothing behind that looks alive. Where the records come from
//! is the caller's affair.
//!
//! The thread that publishes must stay on one CPU, see [`cpu`].

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

pub use error::{Attribute, PublishError};
pub use open::Options;
pub use publisher::Publisher;
pub use records::{Published, Records};
pub use watch::PinEvent;
