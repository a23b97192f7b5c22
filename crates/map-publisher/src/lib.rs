//! The write side of the pinned gpu_* BPF maps.
