//! What each call answers, from the scenario.

pub(crate) mod fields;
pub(crate) mod identity;
pub(crate) mod lists;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod mig;
pub(crate) mod nvlink;
pub(crate) mod pcie;
pub(crate) mod samples;
pub(crate) mod system;
pub(crate) mod utilization;
