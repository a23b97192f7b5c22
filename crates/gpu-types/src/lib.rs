//! The ABI of the gpu_* BPF maps as Rust types.
