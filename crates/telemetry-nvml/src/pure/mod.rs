//! What the source decides, without NVML's types, clocks or threads: plain values in, plain values out.

pub(crate) mod clock;
pub(crate) mod counter;
#[cfg(test)]
mod invariants;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod processes;
pub(crate) mod rhythm;
pub(crate) mod samples;
pub(crate) mod stride;
pub(crate) mod value;
