//! What can be wrong with a command line, as one line each.

use std::ffi::{OsStr, OsString};

use thiserror::Error;

/// A command line that cannot be used. The message is one line, whatever the arguments contain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UsageError {
    /// There is no such flag.
    #[error("unknown flag {}{}; accepted: {accepted}", shown(flag), hint(suggestion.as_deref()))]
    UnknownFlag {
        /// The flag as it was given, without its value.
        flag: OsString,
        /// A flag of nearly this name.
        suggestion: Option<String>,
        /// The flags that there are.
        accepted: String,
    },
    /// An argument that is not a flag.
    #[error("unexpected argument {argument:?}: only flags are accepted{}", switch_hint(switch.as_deref()))]
    Positional {
        /// The argument.
        argument: OsString,
        /// The boolean flag that it was probably meant for.
        switch: Option<String>,
    },
    /// Dashes and equals signs in an order that means nothing.
    #[error("malformed flag {argument:?}: accepted are --flag, --flag=value and --flag value, with one dash or two")]
    Malformed {
        /// The argument.
        argument: OsString,
    },
    /// A flag without the value that it needs.
    #[error("{flag} needs a value; accepted: {accepted}")]
    MissingValue {
        /// The flag.
        flag: String,
        /// What it takes.
        accepted: String,
    },
    /// A flag with a value that it does not take.
    #[error("invalid value {value:?} for {flag}{}: {problem}", hint(suggestion.as_deref()))]
    InvalidValue {
        /// The flag.
        flag: String,
        /// The value.
        value: String,
        /// A value of nearly this spelling.
        suggestion: Option<String>,
        /// What is wrong with it and what is accepted.
        problem: String,
    },
    /// `--symlink-nvidia-devs` without `--host-path`.
    #[error("--symlink-nvidia-devs needs --host-path=DIR, the directory where the host's file system is mounted")]
    SymlinkWithoutHostPath,
    /// `--pin-group` names a group that there is not.
    #[error("--pin-group {name:?}: {problem}; accepted: a group of this machine (in a container: of its image), or a number")]
    NoSuchGroup {
        /// The group.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What clap found and we have no words for.
    #[error("{0}")]
    Refused(String),
}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |suggestion| format!(" (did you mean {suggestion}?)"))
}

fn switch_hint(switch: Option<&str>) -> String {
    switch.map_or_else(String::new, |switch| format!(" (did you mean --{switch}=VALUE? A boolean flag takes its value with \"=\")"))
}

/// A flag's name bare where it is harmless, quoted where it is not.
fn shown(flag: &OsStr) -> String {
    match flag.to_str() {
        Some(flag) if flag.chars().all(|c| c.is_ascii_graphic()) => flag.to_owned(),
        _ => format!("{flag:?}"),
    }
}
