//! Simulated trees of AMD and Intel GPUs below a directory of a test's own: what the kernel shows of them in sysfs ([`Tree`]), of their
//! clients in /proc ([`proc`]) and of compute in kfd ([`kfd`]).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "support for tests: it fails the test that uses it, with the reason")]

pub mod kfd;
pub mod proc;
mod tree;

pub use tree::Tree;
