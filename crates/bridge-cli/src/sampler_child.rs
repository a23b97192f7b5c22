//! The child processes that read a source each: the same binary, entered by a first argument of its own.

use std::{ffi::OsString, sync::Arc};

use bridge::{
    clock::SystemClock,
    sampler::{RelayOptions, relay},
};
use clap::ValueEnum;
use nix::sys::prctl;
use telemetry::{OpenError, OpenSource, TelemetrySource};
use telemetry_drm::{DrmOptions, DrmSource};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};

use crate::{
    Error,
    args::{Args, Request, SourceName},
    logging,
    preflight::Driver,
    privileges,
};

/// What a command line begins with that is not a person's.
pub(crate) const ENTRY: &str = "sampler-child";

/// What its flags begin with when it is not to look at processes.
const WITHOUT_PROCESSES: &str = "without-processes";

/// The command line of the child that reads `source`: what of the parent's concerns it, and whether it is to look at processes.
pub(crate) fn arguments(source: SourceName, args: &Args, looks_at_processes: bool) -> Vec<OsString> {
    let level = args.log_level.to_possible_value();
    let mut arguments = vec![OsString::from(ENTRY)];
    if !looks_at_processes {
        arguments.push(WITHOUT_PROCESSES.into());
    }
    arguments.extend([
        OsString::from(format!("--source={}", source.name())),
        format!("--poll-interval={}ns", args.poll_interval.effective().as_nanos()).into(),
        format!("--log-level={}", level.as_ref().map_or("info", |level| level.get_name())).into(),
    ]);
    let paths = match source {
        SourceName::Nvml => [("--host-path=", args.host_path.as_ref()), ("--nvml-library-path=", args.nvml_library_path.as_ref())],
        SourceName::Drm => [("--host-path=", None), ("--drm-root=", Some(&args.drm_root))],
    };
    for (flag, path) in paths {
        if let Some(path) = path {
            let mut argument = OsString::from(flag);
            argument.push(path);
            arguments.push(argument);
        }
    }
    arguments
}

/// The child's whole life. `arguments` are those after [`ENTRY`].
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<i32, Error> {
    let mut arguments = arguments.into_iter().peekable();
    let looks_at_processes = arguments.next_if(|argument| argument == WITHOUT_PROCESSES).is_none();
    let Request::Run(args) = Args::parse_from_go(arguments)? else { return Ok(0) };
    logging::start(args.log_level.into())?;
    let is_drm = args.source == [SourceName::Drm];
    if is_drm {
        privileges::keep_what_the_processes_need(looks_at_processes);
    } else {
        privileges::keep_what_the_library_needs();
    }
    if let Err(errno) = prctl::set_name(if is_drm { c"drm-sampler" } else { c"gpu-sampler" }) {
        log::debug!("cannot name the sampler process: {errno}");
    }
    let mut source: Box<dyn TelemetrySource> = if is_drm {
        Box::new(DrmSource::new(DrmOptions { root: args.drm_root.clone(), looks_at_processes }))
    } else {
        Box::new(Explaining { source: nvml(&args), driver: Driver::of(args.host_path.as_deref()) })
    };
    let options = RelayOptions { poll_interval: args.poll_interval.effective(), clock: Arc::new(SystemClock) };
    relay(source.as_mut(), &options).map_err(Error::Relay)?;
    Ok(0)
}

fn nvml(args: &Args) -> NvmlSource {
    let library = match (&args.nvml_library_path, &args.host_path) {
        (Some(path), _) => LibraryChoice::Path(path.clone()),
        (None, Some(host)) => LibraryChoice::UnderHost(host.clone()),
        (None, None) => LibraryChoice::Search,
    };
    NvmlSource::new(NvmlOptions { library })
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{ENTRY, WITHOUT_PROCESSES, arguments};
    use crate::args::{Args, Request, SourceName};

    #[track_caller]
    fn read(arguments: &[OsString]) -> Args {
        match Args::parse_from_go(arguments.iter().cloned()) {
            Ok(Request::Run(args)) => *args,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[test]
    fn the_child_is_told_what_concerns_it() {
        for parent in [
            &[][..],
            &["--poll-interval=1.5s", "--log-level=Warning", "--keep-pins", "--mode=real"],
            &[
                "--poll-interval=1us",
                "--log-level=DEBUG",
                "--host-path=/a host/=",
                "--nvml-library-path=/lib/x y.so",
                "--symlink-nvidia-devs",
                "--drm-root=/other root",
                "--source=nvml,drm",
            ],
        ] {
            let parent = read(&parent.iter().map(OsString::from).collect::<Vec<_>>());
            for source in [SourceName::Nvml, SourceName::Drm] {
                let with_processes = arguments(source, &parent, true);
                assert_eq!(with_processes[0], ENTRY);
                let child = read(&with_processes[1..]);
                let without = arguments(source, &parent, false);
                assert_eq!((&without[..2], &without[2..]), (&[ENTRY, WITHOUT_PROCESSES].map(OsString::from)[..], &with_processes[1..]));
                assert_eq!(child.source, [source]);
                let common = |args: &Args| (args.poll_interval.effective(), args.log_level);
                assert_eq!(common(&child), common(&parent));
                let of_nvml = |args: &Args| (args.host_path.clone(), args.nvml_library_path.clone());
                match source {
                    SourceName::Nvml => assert_eq!(of_nvml(&child), of_nvml(&parent)),
                    SourceName::Drm => assert_eq!(child.drm_root, parent.drm_root),
                }
            }
        }
    }
}
