//! NVIDIA's GPUs, through NVML.

use std::{
    ffi::CStr,
    path::{Path, PathBuf},
};

use bridge::{
    SamplerError,
    sampler::{ChildLauncher, Launch, Sampler},
};
use caps::Capability;
use telemetry::{OpenError, OpenSource, TelemetrySource};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};

use super::Backend;
use crate::{args::Args, host_devices, preflight::Driver, privileges};

/// Where NVML looks for its device files.
const DEV: &str = "/dev";

#[derive(Debug)]
pub(super) struct Nvml;

impl Backend for Nvml {
    fn borrows(&self) -> bool {
        false
    }

    fn launcher(&self, args: &Args, child: ChildLauncher, _missing: &[Capability]) -> Box<dyn Launch> {
        match devices_from(args) {
            Some(host_path) => Box::new(Linking { child, host_path: host_path.to_owned() }),
            None => Box::new(child),
        }
    }

    fn paths<'args>(&self, args: &'args Args) -> Vec<(&'static str, &'args Path)> {
        let flags = [("--host-path", &args.host_path), ("--nvml-library-path", &args.nvml_library_path)];
        flags.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?))).collect()
    }

    fn process_name(&self) -> &'static CStr {
        c"gpu-sampler"
    }

    fn keep_what_it_needs(&self, _looks_at_processes: bool) {
        privileges::keep_what_the_library_needs();
    }

    fn source(&self, args: &Args, _looks_at_processes: bool) -> Box<dyn TelemetrySource> {
        let library = match (&args.nvml_library_path, &args.host_path) {
            (Some(path), _) => LibraryChoice::Path(path.clone()),
            (None, Some(host)) => LibraryChoice::UnderHost(host.clone()),
            (None, None) => LibraryChoice::Search,
        };
        let source = NvmlSource::new(NvmlOptions { library });
        Box::new(Explaining { source, driver: Driver::of(args.host_path.as_deref()) })
    }
}

/// The host path, when its device files are to be linked.
fn devices_from(args: &Args) -> Option<&Path> {
    args.host_path.as_deref().filter(|_| args.symlink_nvidia_devs)
}

/// Links the host's device files, if that is asked for, and says so.
pub(crate) fn link_devices(args: &Args) {
    if let Some(host_path) = devices_from(args) {
        host_devices::link(host_path, Path::new(DEV)).log(host_path);
    }
}

/// Links the host's device files anew before each start of the sampler: a driver that comes later brings its files later.
#[derive(Debug)]
struct Linking {
    child: ChildLauncher,
    host_path: PathBuf,
}

impl Launch for Linking {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        let summary = host_devices::link(&self.host_path, Path::new(DEV));
        // What was refused has been said at the start.
        if summary.changed() > 0 {
            summary.log(&self.host_path);
        }
        self.child.launch()
    }
}

/// Says, when NVML does not open, what of the machine stands in its way.
struct Explaining {
    source: NvmlSource,
    driver: Driver,
}

impl TelemetrySource for Explaining {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        let explained = |text| match self.driver.obstacle() {
            Some(obstacle) => format!("{text}; {obstacle}"),
            None => text,
        };
        self.source.open().map_err(|error| match error {
            OpenError::NotAvailable(text) => OpenError::NotAvailable(explained(text)),
            OpenError::Failed(text) => OpenError::Failed(explained(text)),
        })
    }

    fn is_free(&self) -> bool {
        self.source.is_free()
    }
}
