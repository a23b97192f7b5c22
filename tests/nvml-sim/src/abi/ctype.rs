//! How a Rust type is written in C, so that prototypes for the check against nvml.h come from the very types that are exported.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong, c_ushort};

/// A type with a name in C.
pub trait CType {
    /// The type as C writes it, as in `unsigned int *`.
    fn c_type() -> String;
}

macro_rules! named {
    ($($rust:ty => $c:literal),* $(,)?) => {
        $(impl CType for $rust {
            fn c_type() -> String {
                $c.to_owned()
            }
        })*
    };
}

named! {
    c_char => "char",
    c_ushort => "unsigned short",
    c_int => "int",
    c_uint => "unsigned int",
    c_longlong => "long long",
    c_ulonglong => "unsigned long long",
    f64 => "double",
}

impl<T: CType> CType for *mut T {
    fn c_type() -> String {
        format!("{} *", T::c_type())
    }
}

impl<T: CType> CType for *const T {
    fn c_type() -> String {
        format!("const {} *", T::c_type())
    }
}

impl<T: CType, const N: usize> CType for [T; N] {
    fn c_type() -> String {
        format!("{}[{N}]", T::c_type())
    }
}
