//! The library, loaded as NVML is loaded, does what its scenario says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::multiple_unsafe_ops_per_block, reason = "test code")]
#![expect(unsafe_code, reason = "a C library is loaded and called")]

mod accounting;
mod costs;
mod faults;
mod lists;
mod nvml;
mod running;
mod time;
