//! The gpu-ebpf-bridge daemon's command line.

fn main() {}
