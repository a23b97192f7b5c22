//! The publisher against the real kernel. Needs root: each test mounts a BPF file system of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod access;
mod directory;
mod foreign;
mod lock;
mod open;
mod pins;
mod privileges;
mod publish;
mod read_back;
mod state;
mod world;
