//! What tests of several crates share: a BPF file system of their own ([`Bpffs`]), bounded waits ([`eventually`]).

#![allow(clippy::expect_used, clippy::panic, reason = "support for tests: it fails the test that uses it, with the reason")]

mod bpffs;
mod wait;

pub use bpffs::{Bpffs, names};
pub use wait::{WAIT, eventually, until};
