//! AMD's and Intel's GPUs, through the kernel's own files.

use std::{
    ffi::CStr,
    path::{Path, PathBuf},
};

use bridge::{
    SamplerError,
    sampler::{ChildLauncher, Launch, Sampler},
};
use caps::Capability;
use telemetry::TelemetrySource;
use telemetry_drm::{DrmOptions, DrmSource};

use super::Backend;
use crate::{args::Args, preflight, privileges};

#[derive(Debug)]
pub(super) struct Drm;

impl Backend for Drm {
    fn borrows(&self) -> bool {
        true
    }

    fn launcher(&self, args: &Args, child: ChildLauncher, missing: &[Capability]) -> Box<dyn Launch> {
        Box::new(Lending { child, root: args.drm_root.clone(), warning: preflight::processes_warning(missing) })
    }

    fn paths<'args>(&self, args: &'args Args) -> Vec<(&'static str, &'args Path)> {
        vec![("--drm-root", &args.drm_root)]
    }

    fn process_name(&self) -> &'static CStr {
        c"drm-sampler"
    }

    fn keep_what_it_needs(&self, looks_at_processes: bool) {
        privileges::keep_what_the_processes_need(looks_at_processes);
    }

    fn source(&self, args: &Args, looks_at_processes: bool) -> Box<dyn TelemetrySource> {
        Box::new(DrmSource::new(DrmOptions { root: args.drm_root.clone(), looks_at_processes }))
    }
}

/// Gives the sampler what looking at other users' processes takes. Where there is no card for it, none is started.
#[derive(Debug)]
struct Lending {
    child: ChildLauncher,
    root: PathBuf,
    /// What cannot be given and is lost for it, to be said when there is a card.
    warning: Option<String>,
}

impl Launch for Lending {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        if let Some(warning) = self.warning.take() {
            log::warn!("{warning}");
        }
        let _lent = privileges::lend();
        self.child.launch()
    }

    fn missing(&mut self) -> Option<String> {
        let missing = || format!("no GPU of the drivers amdgpu, i915 or xe in {}", self.root.join("sys/class/drm").display());
        (!telemetry_drm::is_present(&self.root)).then(missing)
    }

    /// It is gone when cards come or go, and opening it reads the names of links.
    fn is_reopened_at_once(&self) -> bool {
        true
    }
}
