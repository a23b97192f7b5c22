//! What is delivered: its manuals, made from the definitions of the flags, and a harness for its tests.
//!
//! The tests use what `cargo xtask deploy test` builds before (`make test-deploy`), and fail with the reason where that or root is lacking.

#![allow(clippy::panic, reason = "a harness for tests: it fails the test that uses it, with the reason")]

pub mod artifacts;
pub mod container;
pub mod docker;
pub mod help;
pub mod machine;
pub mod manual;
pub mod page;
pub mod root;

/// The flags of `bridge-dump`: the program keeps their definition to itself, and one definition there must be.
#[allow(dead_code, unreachable_pub, reason = "only the definition is used here")]
#[path = "../../../crates/bridge-dump/src/args.rs"]
mod bridge_dump_args;
