//! The child process that reads NVML: the same binary, entered by a first argument of its own.

use std::{ffi::OsString, sync::Arc};

use bridge::{
    clock::SystemClock,
    sampler::{RelayOptions, relay},
};
use clap::ValueEnum;
use nix::sys::prctl;
use telemetry::{OpenError, OpenSource, TelemetrySource};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};

use crate::{
    Error,
    args::{Args, Request},
    logging,
    preflight::Driver,
    privileges,
};

/// What a command line begins with that is not a person's.
pub(crate) const ENTRY: &str = "sampler-child";

/// The child's command line: what of the parent's concerns it.
pub(crate) fn arguments(args: &Args) -> Vec<OsString> {
    let level = args.log_level.to_possible_value();
    let mut arguments = vec![
        OsString::from(ENTRY),
        format!("--poll-interval={}ns", args.poll_interval.effective().as_nanos()).into(),
        format!("--log-level={}", level.as_ref().map_or("info", |level| level.get_name())).into(),
    ];
    for (flag, path) in [("--host-path=", &args.host_path), ("--nvml-library-path=", &args.nvml_library_path)] {
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
    let Request::Run(args) = Args::parse_from_go(arguments)? else { return Ok(0) };
    logging::start(args.log_level.into())?;
    privileges::keep_what_the_library_needs();
    if let Err(errno) = prctl::set_name(c"gpu-sampler") {
        log::debug!("cannot name the sampler process: {errno}");
    }
    let mut source = Explaining { source: source(&args), driver: Driver::of(args.host_path.as_deref()) };
    let options = RelayOptions { poll_interval: args.poll_interval.effective(), clock: Arc::new(SystemClock) };
    relay(&mut source, &options).map_err(Error::Relay)?;
    Ok(0)
}

fn source(args: &Args) -> NvmlSource {
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

    use super::{ENTRY, arguments};
    use crate::args::{Args, Request};

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
            ],
        ] {
            let parent = read(&parent.iter().map(OsString::from).collect::<Vec<_>>());
            let arguments = arguments(&parent);
            assert_eq!(arguments[0], ENTRY);
            let child = read(&arguments[1..]);
            assert_eq!(child.poll_interval.effective(), parent.poll_interval.effective());
            assert_eq!(
                (child.log_level, &child.host_path, &child.nvml_library_path),
                (parent.log_level, &parent.host_path, &parent.nvml_library_path)
            );
        }
    }
}
