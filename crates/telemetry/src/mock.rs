//! A source of invented data, for trying things out on machines without a GPU.
