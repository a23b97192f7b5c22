//! Whole-system tests: the built binaries against the real kernel.
