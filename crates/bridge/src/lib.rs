//! The loop that carries GPU telemetry into BPF maps, as a library.
