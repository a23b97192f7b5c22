//! Simulated kfd.
