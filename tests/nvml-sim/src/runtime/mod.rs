//! What happens between a call's entry and its answer: account, scenario, lock, fault, cost.

mod argument;
mod call;
mod handle;
mod library;
mod loaded;
mod spend;

pub(crate) use argument::{Argument, DeviceIndex, Out, Target};
pub(crate) use call::{Call, Done, enter};
pub(crate) use handle::{Place, encode as handle_of};
pub(crate) use loaded::Gpu;
