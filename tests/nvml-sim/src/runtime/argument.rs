//! NVML's raw arguments, wrapped at the border so that the calls' bodies need no pointers.
#![expect(unsafe_code, reason = "the caller's pointers are read and written here and nowhere else")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

use super::call::Done;
use crate::{
    abi::{self, CType, nvmlDevice_t},
    scenario::Code,
};

/// Which device a call is about, as far as its arguments say.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    None,
    Handle(nvmlDevice_t),
    Index(u32),
}

impl Target {
    /// The first of the two that names a device.
    pub(crate) const fn or(self, other: Self) -> Self {
        match self {
            Self::None => other,
            _ => self,
        }
    }
}

/// An argument as C passes it.
pub(crate) trait Argument: CType + Sized {
    /// What the call's body gets.
    type Checked;

    /// Which device it names.
    fn target(&self) -> Target {
        Target::None
    }

    /// Wraps it.
    ///
    /// # Safety
    /// A pointer must be null, or valid as nvml.h says of the parameter, for as long as the call lasts.
    unsafe fn checked(self) -> Self::Checked;
}

macro_rules! plain_arguments {
    ($($type:ty),* $(,)?) => {
        $(impl Argument for $type {
            type Checked = Self;

            unsafe fn checked(self) -> Self {
                self
            }
        })*
    };
}

plain_arguments! {
    c_uint, c_int, c_ulonglong, abi::nvmlReturn_t, abi::nvmlTemperatureSensors_t, abi::nvmlClockType_t, abi::nvmlClockId_t,
    abi::nvmlPcieUtilCounter_t, abi::nvmlMemoryErrorType_t, abi::nvmlEccCounterType_t, abi::nvmlSamplingType_t,
}

impl Argument for nvmlDevice_t {
    type Checked = Self;

    fn target(&self) -> Target {
        Target::Handle(*self)
    }

    unsafe fn checked(self) -> Self {
        self
    }
}

/// An `unsigned int` that is a device's index.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceIndex(pub(crate) c_uint);

impl CType for DeviceIndex {
    fn c_type() -> String {
        c_uint::c_type()
    }
}

impl Argument for DeviceIndex {
    type Checked = usize;

    fn target(&self) -> Target {
        Target::Index(self.0)
    }

    unsafe fn checked(self) -> usize {
        self.0 as usize
    }
}

impl Argument for *const c_char {
    type Checked = Option<String>;

    unsafe fn checked(self) -> Option<String> {
        // SAFETY: not null, and then a C string by the trait's contract.
        (!self.is_null()).then(|| unsafe { CStr::from_ptr(self) }.to_string_lossy().into_owned())
    }
}

/// Where a call writes: one `T`, or as many as the caller said that there is room for.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: CType> Argument for *mut T {
    type Checked = Out<T>;

    unsafe fn checked(self) -> Out<T> {
        Out(self)
    }
}

impl<T> Out<T> {
    /// Whether the caller gave null.
    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes one value.
    pub(crate) fn put(self, value: T) -> Done {
        self.put_at(0, value)
    }

    /// Writes one of several values; the caller has room for more than `at`, or the scenario wants it to be overrun.
    pub(crate) fn put_at(self, at: usize, value: T) -> Done {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for the elements that nvml.h asks for (the wrapping's contract).
        let place = unsafe { self.0.add(at) };
        // SAFETY: as above; what is overwritten needs no drop, it is plain data of C.
        unsafe { place.write(value) };
        Ok(())
    }

    /// Another view of the same memory.
    pub(crate) const fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl<T: Copy> Out<T> {
    /// Reads the value that the caller put there.
    pub(crate) fn get(self) -> Result<T, Code> {
        self.get_at(0)
    }

    /// Reads one of several values.
    pub(crate) fn get_at(self, at: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so valid for the elements that nvml.h asks for (the wrapping's contract).
        let place = unsafe { self.0.add(at) };
        // SAFETY: as above; every bit pattern is a value of these types.
        Ok(unsafe { place.read() })
    }
}

impl<T> Out<T> {
    /// The array that a member of the caller's struct points to: null, or valid as nvml.h says, like a pointer that is passed itself.
    pub(crate) const fn member(pointer: *mut T) -> Self {
        Self(pointer)
    }
}

impl Out<c_char> {
    /// Writes a string with its terminating 0, when `room` allows.
    pub(crate) fn put_text(self, text: &[u8], room: u32) -> Done {
        if self.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if text.len() >= room as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let bytes = self.cast::<u8>();
        text.iter().chain(&[0]).enumerate().try_for_each(|(at, byte)| bytes.put_at(at, *byte))
    }
}
