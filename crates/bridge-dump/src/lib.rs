//! The pinned gpu_* BPF maps as text.
