//! The child processes that read a source each: the same binary, entered by a first argument of its own.

use std::{ffi::OsString, sync::Arc};

use bridge::{
    clock::SystemClock,
    sampler::{RelayOptions, relay},
};
use clap::ValueEnum;
use nix::sys::prctl;

use crate::{
    Error, UsageError,
    args::{Args, Request, SourceName},
    backends, logging,
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
    for (flag, path) in backends::of(source).paths(args) {
        let mut argument = OsString::from(flag);
        argument.push("=");
        argument.push(path);
        arguments.push(argument);
    }
    arguments
}

/// The child's whole life. `arguments` are those after [`ENTRY`].
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<i32, Error> {
    let mut arguments = arguments.into_iter().peekable();
    let looks_at_processes = arguments.next_if(|argument| argument == WITHOUT_PROCESSES).is_none();
    let Request::Run(args) = Args::parse_from_go(arguments)? else { return Ok(0) };
    logging::start(args.log_level.into())?;
    let backend = backends::of(source_of(&args)?);
    backend.keep_what_it_needs(looks_at_processes);
    if let Err(errno) = prctl::set_name(backend.process_name()) {
        log::debug!("cannot name the sampler process: {errno}");
    }
    let mut source = backend.source(&args, looks_at_processes);
    let options = RelayOptions { poll_interval: args.poll_interval.effective(), clock: Arc::new(SystemClock) };
    relay(source.as_mut(), &options).map_err(Error::Relay)?;
    Ok(0)
}

/// A child reads one source.
fn source_of(args: &Args) -> Result<SourceName, UsageError> {
    match args.source[..] {
        [source] => Ok(source),
        _ => Err(UsageError::Refused(format!("{ENTRY} reads one source, and is started by the daemon"))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::ValueEnum;

    use super::{ENTRY, WITHOUT_PROCESSES, arguments, source_of};
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
            for source in SourceName::value_variants().iter().copied() {
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

    #[test]
    fn a_child_reads_one_source() {
        let sources = |arguments: &[&str]| source_of(&read(&arguments.iter().map(OsString::from).collect::<Vec<_>>()));
        assert_eq!(sources(&["--source=drm"]), Ok(SourceName::Drm));
        assert!(sources(&[]).is_err() && sources(&["--source=nvml,drm"]).is_err());
    }
}
