//! The whole bridge on a simulated driver: what it costs the driver, and what it tells of each board.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod boards;
mod budget;
mod machine;
