//! The source against a simulated library: what it reads, what it asks, and whose trouble is whose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod behaviours;
mod boards;
mod machine;
mod metrics;
mod opening;
mod process_utilization;
mod processes;
mod traffic;
mod trouble;
mod utilization;
