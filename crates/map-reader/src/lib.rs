//! The read side of the pinned gpu_* BPF maps.
