//! The real sources: what the command line knows of each, in a file of its own.

mod drm;
mod nvml;

use std::{ffi::CStr, path::Path};

use bridge::sampler::{ChildLauncher, Launch};
use caps::Capability;
use telemetry::TelemetrySource;

pub(crate) use self::nvml::link_devices;
use crate::args::{Args, SourceName};

/// What is said and done for a source, in the daemon and in the process that reads it.
pub(crate) trait Backend {
    /// Whether its sampler is lent what looking at other users' processes takes, which the daemon has to keep for that.
    fn borrows(&self) -> bool;

    /// Starts `child`, which reads it. `missing` is what cannot be lent: it does not look at processes then.
    fn launcher(&self, args: &Args, child: ChildLauncher, missing: &[Capability]) -> Box<dyn Launch>;

    /// Of the daemon's flags, those with paths that its sampler is given, too.
    fn paths<'args>(&self, args: &'args Args) -> Vec<(&'static str, &'args Path)>;

    /// The name of its sampler's process, of at most 15 bytes.
    fn process_name(&self) -> &'static CStr;

    /// Gives up in its sampler what need not be held, before anything of the source is touched.
    fn keep_what_it_needs(&self, looks_at_processes: bool);

    /// The source, to be read by its sampler.
    fn source(&self, args: &Args, looks_at_processes: bool) -> Box<dyn TelemetrySource>;
}

/// What is known of `source`.
pub(crate) const fn of(source: SourceName) -> &'static dyn Backend {
    match source {
        SourceName::Nvml => &nvml::Nvml,
        SourceName::Drm => &drm::Drm,
    }
}
