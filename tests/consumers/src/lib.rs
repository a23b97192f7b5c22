//! BPF programs that read the pinned maps, as their users write them.
