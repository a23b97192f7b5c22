//! The flags: their definition for clap (the help, man pages and completions come from it) and their values.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, Command, CommandFactory, FromArgMatches, Parser, ValueEnum, ValueHint,
    builder::{OsStringValueParser, TypedValueParser},
    error::{ContextKind, ContextValue},
};

use crate::{
    interval::{MaxAge, PollInterval},
    normalise::{self, Normal},
    pin_access::{PinGroup, PinMode},
    usage::UsageError,
};

const SOURCE: &str = "Telemetry";
const MAPS: &str = "Maps";
const HOST: &str = "Running in a container";
const OUTPUT: &str = "Output";

// Lines of at most 98 columns: clap wraps at 100 and does not know about hanging indents. The man page is made of it by its indentation.
const AFTER_HELP: &str = "\
Flag forms: --flag value, --flag=value, -flag value, -flag=value. A boolean flag takes its value
with \"=\" (true, false, t, f, 1, 0). If a flag is given twice, the last one counts, except for
--source, which adds up. Durations are Go's: 100ms, 1.5s, 1m30s, .5s, 1500us.

Examples:
  gpu-ebpf-bridge
      the GPUs that are there, else invented data with a loud warning
  gpu-ebpf-bridge --mode=real --idle-if-no-gpu
      on every node of a cluster: waits where there is no GPU, never invents data
  gpu-ebpf-bridge --mode=real --host-path=/host --symlink-nvidia-devs
      in a container that has the host's file system mounted at /host
  gpu-ebpf-bridge --mode=real --source=drm
      AMD and Intel GPUs only
  gpu-ebpf-bridge --dump
      print what the maps hold now; --output=json and --output=table are other forms
  gpu-ebpf-bridge --health
      say in one line, and by the exit status, whether what they hold may be believed

Signals:
  SIGINT, SIGTERM, SIGHUP
      empty and unpin the maps (unless --keep-pins) and end within a second; a second one ends the
      program at once; SIGHUP has no effect under nohup
  SIGUSR1
      release the drivers, to replace one or reset a GPU; the maps are empty in the meantime
  SIGUSR2
      open the drivers again

Exit status:
  0  ended as asked; with --health: publishing, or idle by design
  1  failed; the message on standard error says what, and what helps; with --health: unknown
  2  the command line cannot be used; nothing was touched
  3  with --health: stale; the bridge is gone, stuck or waiting for a driver
  4  with --health: there are no maps
  129, 130, 143
     ended at once by a second SIGHUP, SIGINT or SIGTERM";

/// The values of the flags.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(
    name = "gpu-ebpf-bridge",
    about = "Keeps GPU telemetry fresh in pinned BPF maps, for eBPF programs to look up.",
    override_usage = "gpu-ebpf-bridge [flags]",
    after_help = AFTER_HELP,
    disable_help_flag = true,
    disable_version_flag = true
)]
pub struct Args {
    /// Where the telemetry comes from: the GPUs' drivers (real), invented data (mock), or the drivers and, with a loud warning, invented
    /// data when none can be opened (auto).
    #[arg(long, value_name = "MODE", default_value = "auto", help_heading = SOURCE)]
    pub mode: Mode,

    /// Time between polls: more than 0, at most 1h; below 1ms becomes 1ms.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = text(PollInterval::parse), help_heading = SOURCE)]
    pub poll_interval: PollInterval,

    /// Which GPUs: NVIDIA's through NVML (nvml), AMD's and Intel's through the kernel's own files (drm); several with commas or by giving
    /// the flag again [default: all that are there].
    #[arg(long, value_name = "SOURCE", value_delimiter = ',', help_heading = SOURCE)]
    pub source: Vec<SourceName>,

    /// In mode real, when no source is available: wait for one instead of failing.
    #[arg(long, help_heading = SOURCE)]
    pub idle_if_no_gpu: bool,

    /// Absolute path of libnvidia-ml.so.1 [default: searched, under --host-path when that is given].
    #[arg(long, value_name = "FILE", value_parser = path(library), value_hint = ValueHint::FilePath, help_heading = SOURCE)]
    pub nvml_library_path: Option<PathBuf>,

    /// For drm: absolute path of the directory that has the machine's sys and proc.
    #[arg(long, value_name = "DIR", default_value = "/", value_parser = path(root), value_hint = ValueHint::DirPath, help_heading = SOURCE)]
    pub drm_root: PathBuf,

    /// Directory of a BPF file system where the maps are pinned.
    #[arg(
        long, value_name = "DIR", default_value = "/sys/fs/bpf", value_parser = path(pins), value_hint = ValueHint::DirPath, help_heading = MAPS
    )]
    pub pin_dir: PathBuf,

    /// Leave the maps pinned, with their data, at exit.
    #[arg(long, help_heading = MAPS)]
    pub keep_pins: bool,

    /// Print what the maps hold and exit; polls nothing and disturbs nobody.
    #[arg(long, help_heading = MAPS)]
    pub dump: bool,

    /// For --dump: sections of text, whose form never changes, a JSON document, or a table for people.
    #[arg(long, value_name = "FORM", default_value = "text", help_heading = MAPS)]
    pub output: DumpOutput,

    /// Say in one line whether the maps are fresh and exit: 0 publishing, or idle by design; 3 stale; 4 no maps.
    #[arg(long, help_heading = MAPS)]
    pub health: bool,

    /// For --health: how old the newest round may be [default: 1s or 3 poll intervals, whichever is longer].
    #[arg(long, value_name = "DURATION", value_parser = text(MaxAge::parse), help_heading = MAPS)]
    pub health_max_age: Option<MaxAge>,

    /// Permissions of the pins, octal, as in 0640 [default: 0600; pins of others keep theirs].
    #[arg(long, value_name = "MODE", value_parser = text(PinMode::parse), help_heading = MAPS)]
    pub pin_mode: Option<PinMode>,

    /// Group of the pins, a name or a number [default: the process's; pins of others keep theirs].
    #[arg(long, value_name = "GROUP", value_parser = text(PinGroup::parse), help_heading = MAPS)]
    pub pin_group: Option<PinGroup>,

    /// Absolute path where the host's file system, or part of it, is mounted [default: none].
    #[arg(long, value_name = "DIR", value_parser = path(host), value_hint = ValueHint::DirPath, help_heading = HOST)]
    pub host_path: Option<PathBuf>,

    /// At start, link every nvidia* of the host's /dev into /dev; needs --host-path.
    #[arg(long, help_heading = HOST)]
    pub symlink_nvidia_devs: bool,

    /// How much is logged, to standard error ("warning" is taken for warn; any case).
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true, help_heading = OUTPUT)]
    pub log_level: LogLevel,

    /// Print the version and exit.
    #[arg(long, help_heading = OUTPUT)]
    pub version: bool,
}

/// Where the telemetry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The real sources, and invented data when none can be opened.
    #[value(help = None)]
    Auto,
    /// The real sources.
    #[value(help = None)]
    Real,
    /// Invented data.
    #[value(help = None)]
    Mock,
}

/// A real source, in the order of its devices' indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceName {
    /// NVIDIA's GPUs, through NVML.
    #[value(help = None)]
    Nvml,
    /// AMD's and Intel's GPUs, through the kernel's own files.
    #[value(help = None)]
    Drm,
}

impl SourceName {
    /// Its name in flags and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Drm => "drm",
        }
    }
}

/// The form of what `--dump` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpOutput {
    /// Sections of text.
    #[value(help = None)]
    Text,
    /// A JSON document.
    #[value(help = None)]
    Json,
    /// A table.
    #[value(help = None)]
    Table,
}

impl From<DumpOutput> for bridge_dump::Output {
    fn from(output: DumpOutput) -> Self {
        match output {
            DumpOutput::Text => Self::Text,
            DumpOutput::Json => Self::Json,
            DumpOutput::Table => Self::Table,
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What happens in each tick.
    #[value(help = None)]
    Debug,
    /// Changes of state.
    #[value(help = None)]
    Info,
    /// What somebody should look at.
    #[value(help = None, alias = "warning")]
    Warn,
    /// What ends the program.
    #[value(help = None)]
    Error,
}

impl From<LogLevel> for log::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Self::Debug,
            LogLevel::Info => Self::Info,
            LogLevel::Warn => Self::Warn,
            LogLevel::Error => Self::Error,
        }
    }
}

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The help text.
    Help,
    /// What the flags say.
    Run(Box<Args>),
}

/// The command line's definition.
pub fn command() -> Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print this help and exit").help_heading(OUTPUT);
    Args::command().version(env!("CARGO_PKG_VERSION")).arg(help).mut_args(as_in_go)
}

/// A boolean flag that may be given a value with `=`, as Go's flag package has it.
fn as_in_go(argument: Arg) -> Arg {
    if !matches!(argument.get_action(), ArgAction::SetTrue) {
        return argument;
    }
    argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .value_name("BOOL")
        .default_value("false")
        .default_missing_value("true")
        .hide_default_value(true)
        .value_parser(text(|text| {
            normalise::boolean(text).ok_or("not a boolean; accepted: true, false, t, f, 1, 0, T, F, TRUE, FALSE, True, False")
        }))
}

impl Args {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// When it cannot be used; nothing has been touched then.
    pub fn parse_from_go(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, UsageError> {
        let mut command = command();
        command.build();
        let flags = match normalise::normalise(&command, arguments)? {
            Normal::Help => return Ok(Request::Help),
            Normal::Flags(flags) => flags,
        };
        let matches = command.no_binary_name(true).try_get_matches_from(flags).map_err(|error| usage(&error))?;
        let mut args = Self::from_arg_matches(&matches).map_err(|error| usage(&error))?;
        // The default is empty, and deployments write it out.
        args.host_path = args.host_path.filter(|path| !path.as_os_str().is_empty());
        if args.symlink_nvidia_devs && args.host_path.is_none() {
            return Err(UsageError::SymlinkWithoutHostPath);
        }
        Ok(Request::Run(Box::new(args)))
    }

    /// The real sources that are meant, each once, in index order; none in mode mock.
    pub fn sources(&self) -> impl Iterator<Item = SourceName> {
        let is_meant = |name: &SourceName| self.mode != Mode::Mock && (self.source.is_empty() || self.source.contains(name));
        SourceName::value_variants().iter().copied().filter(is_meant)
    }

    /// What is accepted but deserves a line in the log at start.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let interval = self.poll_interval.requested();
        if interval < PollInterval::SHORTEST {
            warnings.push(format!("--poll-interval {} is below 1ms; 1ms is used", self.poll_interval));
        }
        if interval > PollInterval::LONGEST_FRESH {
            warnings.push(format!(
                "--poll-interval {} is above {:?}: consumers that call data older than 300ms stale, as the shipped gadgets do, will miss some",
                self.poll_interval,
                PollInterval::LONGEST_FRESH,
            ));
        }
        if self.idle_if_no_gpu && self.mode == Mode::Auto {
            warnings.push("--idle-if-no-gpu has no effect in mode auto, which falls back to mock data; use --mode=real".to_owned());
        }
        if self.idle_if_no_gpu && self.mode == Mode::Mock {
            warnings.push("--idle-if-no-gpu has no effect in mode mock".to_owned());
        }
        if !self.source.is_empty() && self.mode == Mode::Mock {
            warnings.push("--source has no effect in mode mock".to_owned());
        }
        if let Some(mode) = self.pin_mode.filter(|mode| mode.lets_others_write()) {
            warnings.push(format!("--pin-mode {mode} lets others than the bridge write to the maps; readers need no more than 0644"));
        }
        warnings
    }
}

/// A parser for values that are text: what is not UTF-8 is refused with the same words as any other wrong value.
fn text<T, E>(parse: impl Fn(&str) -> Result<T, E> + Clone + Send + Sync + 'static) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    OsStringValueParser::new().try_map(move |value| parse(&value.to_string_lossy()).map_err(Into::into))
}

fn path(refuse: impl Fn(&Path) -> Option<&'static str> + Clone + Send + Sync + 'static) -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(move |value| {
        let path = PathBuf::from(value);
        match refuse(&path) {
            Some(problem) => Err(problem),
            None => Ok(path),
        }
    })
}

fn library(path: &Path) -> Option<&'static str> {
    (!path.is_absolute() || path.as_os_str().as_bytes().ends_with(b"/"))
        .then_some("accepted: an absolute path, such as /usr/lib64/libnvidia-ml.so.1")
}

fn pins(path: &Path) -> Option<&'static str> {
    path.as_os_str().is_empty().then_some("accepted: a directory of a BPF file system, such as /sys/fs/bpf")
}

fn host(path: &Path) -> Option<&'static str> {
    (path != OsStr::new("") && !path.is_absolute()).then_some("accepted: an absolute path, such as /host")
}

fn root(path: &Path) -> Option<&'static str> {
    (!path.is_absolute()).then_some("accepted: an absolute path, such as /host")
}

/// clap's error in our words.
fn usage(error: &clap::Error) -> UsageError {
    let string = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let (Some(flag), Some(value)) = (string(ContextKind::InvalidArg), string(ContextKind::InvalidValue)) else {
        return UsageError::Refused(error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned());
    };
    // clap shows the flag with the name of its value.
    let flag = flag.split([' ', '[', '=']).next().unwrap_or_default().to_owned();
    let problem = match (std::error::Error::source(error), string(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        // clap does not list what it takes for another.
        (None, Some(values)) if flag == "--log-level" => format!("accepted: {values}, warning"),
        (None, Some(values)) => format!("accepted: {values}"),
        (None, None) => "not accepted".to_owned(),
    };
    UsageError::InvalidValue { flag, value, suggestion: string(ContextKind::SuggestedValue), problem }
}
