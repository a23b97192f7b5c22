//! GPU telemetry read through NVIDIA's NVML.
