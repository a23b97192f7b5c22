//! The ABI held together: the contract's numbers, written out once in `contract`, against the Rust types, the compiled BPF object, the user's
//! document, and programs that include the headers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "test code")]

mod consumer;
mod contract;
mod document;
mod helpers;
mod object;
mod support;
