//! Simulated machines with AMD and Intel GPUs, below a directory of a test's own: what the kernel shows of GPUs in sysfs ([`Tree`],
//! [`profiles`]), of their clients in /proc ([`proc`]) and of compute in kfd ([`kfd`]).
//!
//! Plain files cannot fail as the kernel's do. What can be had honestly: a file that is not there, one that opens and fails
//! ([`Card::fail_on_read`]), one that does not open ([`Card::fail_on_open`]), and one whose opening never ends ([`Card::trap`]).

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "support for tests: it fails the test that uses it, with the reason"
)]

mod card;
pub mod kfd;
pub mod proc;
pub mod profiles;
mod table;
mod tree;

pub use card::{Card, Fifo};
pub use profiles::Profile;
pub use table::GpuMetrics;
pub use tree::Tree;
