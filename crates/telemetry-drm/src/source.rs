//! The source: which cards there are.

use std::path::PathBuf;

use telemetry::{OpenError, OpenSource, TelemetrySource};

/// Where the kernel's files are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrmOptions {
    /// `sys/` and `proc/` are looked for below it: `/` on a real machine.
    pub root: PathBuf,
}

impl Default for DrmOptions {
    fn default() -> Self {
        Self { root: PathBuf::from("/") }
    }
}

/// GPUs of the kernel drivers amdgpu, i915 and xe.
#[derive(Debug)]
pub struct DrmSource {
    options: DrmOptions,
}

impl DrmSource {
    /// A source that looks where `options` say, each time it is opened.
    pub fn new(options: DrmOptions) -> Self {
        Self { options }
    }
}

impl TelemetrySource for DrmSource {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        let drm = self.options.root.join("sys/class/drm");
        Err(OpenError::NotAvailable(format!("no GPU of amdgpu, i915 or xe in {}", drm.display())))
    }
}
