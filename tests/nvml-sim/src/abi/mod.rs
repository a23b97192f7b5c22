//! NVML's C ABI as the simulator declares it: types, constants, and the text of a C file that asserts all of it against nvml.h.
//!
//! Nothing here comes from a binding's crate. Each declaration is made once, by a macro that also yields its line of the C check.

mod check;
mod constants;
mod ctype;
mod types;

pub use check::{Prototype, c_check};
pub use constants::*;
pub use ctype::CType;
pub use types::*;
