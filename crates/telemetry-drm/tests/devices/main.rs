//! The source on simulated machines: what is published of which card, when a card is read at all, and what becomes of failures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

mod fields;
mod hotplug;
mod identity;
mod machine;
mod profiles;
mod real_machine;
mod reports;
mod wake;
