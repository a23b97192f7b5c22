//! Simulated processes.
