//! NVML's return codes.

use std::fmt;

use nvml_wrapper::error::NvmlError;

/// An `nvmlReturn_t` other than success. A number, not an enum: drivers newer than this program have codes that it does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const INSUFFICIENT_POWER: Self = Self(8);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    /// Also what a call gets whose symbol the library lacks.
    pub(crate) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const RESET_REQUIRED: Self = Self(16);
    pub(crate) const LIB_RM_VERSION_MISMATCH: Self = Self(18);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const DEPRECATED: Self = Self(26);
    pub(crate) const GPU_NOT_FOUND: Self = Self(28);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// Success, or the code.
    pub(crate) const fn check(returned: u32) -> Result<(), Self> {
        match returned {
            0 => Ok(()),
            code => Err(Self(code)),
        }
    }

    /// The code behind the wrapper's error; `None` when it is none of NVML's, as when a library cannot be loaded.
    pub(crate) fn of(error: &NvmlError) -> Option<Self> {
        Some(Self(match error {
            NvmlError::Uninitialized => 1,
            NvmlError::InvalidArg => 2,
            NvmlError::NotSupported => 3,
            NvmlError::NoPermission => 4,
            NvmlError::NotFound => 6,
            NvmlError::InsufficientSize(_) => 7,
            NvmlError::InsufficientPower => 8,
            NvmlError::DriverNotLoaded => 9,
            NvmlError::Timeout => 10,
            NvmlError::IrqIssue => 11,
            NvmlError::LibraryNotFound => 12,
            NvmlError::FunctionNotFound => 13,
            NvmlError::CorruptedInfoROM => 14,
            NvmlError::GpuLost => 15,
            NvmlError::ResetRequired => 16,
            NvmlError::OperatingSystem => 17,
            NvmlError::LibRmVersionMismatch => 18,
            NvmlError::InUse => 19,
            NvmlError::InsufficientMemory => 20,
            NvmlError::NoData => 21,
            NvmlError::VgpuEccNotSupported => 22,
            NvmlError::Unknown => 999,
            // How the wrapper hands on the codes that it does not know.
            NvmlError::UnexpectedVariant(code) => *code,
            _ => return None,
        }))
    }

    /// The call will not be answered as long as the library is open.
    pub(crate) fn is_never(self) -> bool {
        matches!(self, Self::NOT_SUPPORTED | Self::FUNCTION_NOT_FOUND | Self::ARGUMENT_VERSION_MISMATCH | Self::DEPRECATED)
    }

    /// The device is gone, or in a state in which it tells nothing.
    pub(crate) fn is_device_lost(self) -> bool {
        matches!(self, Self::GPU_IS_LOST | Self::RESET_REQUIRED | Self::INSUFFICIENT_POWER | Self::GPU_NOT_FOUND)
    }

    /// The driver under the library is gone or another one.
    pub(crate) fn is_source_gone(self) -> bool {
        matches!(self, Self::UNINITIALIZED | Self::DRIVER_NOT_LOADED | Self::LIB_RM_VERSION_MISMATCH)
    }

    const fn text(self) -> &'static str {
        match self.0 {
            1 => "NVML is not initialised",
            2 => "invalid argument",
            3 => "not supported",
            4 => "no permission",
            5 => "already initialised",
            6 => "not found",
            7 => "insufficient size",
            8 => "insufficient external power",
            9 => "driver not loaded",
            10 => "timeout",
            11 => "interrupt issue",
            12 => "library not found",
            13 => "function not found",
            14 => "corrupted infoROM",
            15 => "GPU is lost",
            16 => "GPU requires a reset",
            17 => "operating system error",
            18 => "driver/library version mismatch",
            19 => "GPU in use",
            20 => "insufficient memory",
            21 => "no data",
            22 => "ECC not supported under vGPU",
            23 => "insufficient resources",
            24 => "frequency not supported",
            25 => "argument version mismatch",
            26 => "deprecated",
            27 => "not ready",
            28 => "GPU not found",
            29 => "invalid state",
            30 => "reset type not supported",
            999 => "unknown error",
            _ => "unlisted error",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_number_and_words() {
        for code in (1..=30).chain([999]) {
            assert_ne!(Code(code).text(), "unlisted error", "{code}");
        }
        assert_eq!(Code(23).to_string(), "insufficient resources (23)");
        assert_eq!(Code(77).to_string(), "unlisted error (77)");
    }

    #[test]
    fn the_wrappers_errors_keep_their_code() {
        assert_eq!(Code::of(&NvmlError::DriverNotLoaded), Some(Code::DRIVER_NOT_LOADED));
        assert_eq!(Code::of(&NvmlError::UnexpectedVariant(28)), Some(Code::GPU_NOT_FOUND));
        assert_eq!(Code::of(&NvmlError::FailedToLoadSymbol("nvmlInit_v2".into())), None);
    }
}
