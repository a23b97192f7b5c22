//! Whole-system tests: the built binaries against the real kernel.
//!
//! The harness for them: a BPF file system of a test's own ([`Bpffs`]), the daemon ([`Bridge`]), a simulated driver ([`Sim`])
//! and the processes that "use" its GPUs ([`Workload`]). Everything that a test starts ends with it. What cannot be had (root, a binary that was not built) fails the
//! test with the reason.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness for tests: it fails the test that uses it, with the reason"
)]

mod binaries;
mod bridge;
pub mod checks;
mod embedded;
mod frozen;
mod maps;
pub mod processes;
mod sim;
mod workload;

pub use binaries::binary;
pub use bridge::{Bridge, BridgeBuilder, Exit};
pub use embedded::Embedded;
pub use frozen::Freezer;
pub use maps::{CONTRACT_MAPS, map_id, map_ids, write};
pub use sim::Sim;
pub use test_support::{Bpffs, WAIT, eventually, names, until};
pub use workload::Workload;
