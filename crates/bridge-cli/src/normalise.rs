//! Go's flag forms, rewritten into the one form that clap is asked to read: `--flag=value`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use clap::{Arg, ArgAction, Command, error::ContextKind};

use crate::usage::UsageError;

/// A command line in normal form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Normal {
    /// Help was asked for before anything was found wrong.
    Help,
    /// Every flag once, with the value that it was given last; cumulative ones as often as given; boolean flags given bare stay bare.
    Flags(Vec<OsString>),
}

/// Rewrites `arguments`, without the program's name, for `command`.
///
/// One dash or two, the value behind `=` or in the next argument; a boolean flag never takes the next argument; `--` ends the flags.
///
/// # Errors
/// On an unknown flag, a missing value, an argument that is no flag.
pub(crate) fn normalise(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Result<Normal, UsageError> {
    let flags = Flags(command);
    let mut last: Vec<(String, OsString)> = Vec::new();
    let mut arguments = arguments.into_iter();
    let mut before: Option<String> = None;

    while let Some(argument) = arguments.next() {
        let (name, value) = match token(&argument) {
            Token::End => match arguments.next() {
                Some(argument) => return Err(UsageError::Positional { argument, switch: None }),
                None => break,
            },
            Token::Positional => {
                let switch = before.filter(|_| argument.to_str().is_some_and(|text| boolean(text).is_some()));
                return Err(UsageError::Positional { argument, switch });
            }
            Token::Malformed => return Err(UsageError::Malformed { argument }),
            Token::Flag { name, value } => (name, value),
        };
        let Some(kind) = name.to_str().and_then(|name| flags.kind(name)) else {
            return Err(flags.unknown(&argument, name));
        };

        let mut normal = OsString::from("--");
        normal.push(name);
        before = None;
        let name = name.to_string_lossy().into_owned();
        match (kind, value) {
            (Kind::Help, _) => return Ok(Normal::Help),
            (Kind::Switch, None) => before = Some(name.clone()),
            (Kind::Switch | Kind::Value, Some(value)) => {
                normal.push("=");
                normal.push(value);
            }
            (Kind::Value, None) => match arguments.next().filter(|next| !flags.contains(next)) {
                Some(value) => {
                    normal.push("=");
                    normal.push(value);
                }
                None => return Err(UsageError::MissingValue { accepted: flags.accepted(&name), flag: format!("--{name}") }),
            },
        }

        if !flags.is_cumulative(&name) {
            last.retain(|(given, _)| *given != name);
        }
        last.push((name, normal));
    }
    Ok(Normal::Flags(last.into_iter().map(|(_, normal)| normal).collect()))
}

/// The values that Go takes for a boolean flag.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

enum Token<'a> {
    End,
    Positional,
    Malformed,
    Flag { name: &'a OsStr, value: Option<OsString> },
}

fn token(argument: &OsStr) -> Token<'_> {
    let bytes = argument.as_bytes();
    let body = match bytes {
        b"--" => return Token::End,
        b"" | b"-" => return Token::Positional,
        [b'-', b'-', body @ ..] | [b'-', body @ ..] => body,
        _ => return Token::Positional,
    };
    if matches!(body.first(), None | Some(b'-' | b'=')) {
        return Token::Malformed;
    }
    let mut halves = body.splitn(2, |byte| *byte == b'=');
    let name = OsStr::from_bytes(halves.next().unwrap_or_default());
    Token::Flag { name, value: halves.next().map(|value| OsString::from_vec(value.to_vec())) }
}

enum Kind {
    Help,
    Switch,
    Value,
}

/// What clap's definition says of the flags.
struct Flags<'a>(&'a Command);

impl Flags<'_> {
    fn kind(&self, name: &str) -> Option<Kind> {
        if matches!(name, "h" | "help") {
            return Some(Kind::Help);
        }
        let argument = self.0.get_arguments().find(|argument| argument.get_long() == Some(name))?;
        let bare = argument.get_num_args().is_some_and(|values| values.min_values() == 0);
        Some(if bare { Kind::Switch } else { Kind::Value })
    }

    /// Whether a flag adds to itself when it is given again.
    fn is_cumulative(&self, name: &str) -> bool {
        let argument = self.0.get_arguments().find(|argument| argument.get_long() == Some(name));
        argument.is_some_and(|argument| matches!(argument.get_action(), ArgAction::Append))
    }

    /// Whether an argument is a flag of ours and so no value: no path and no duration of use looks like one.
    fn contains(&self, argument: &OsStr) -> bool {
        match token(argument) {
            Token::End => true,
            Token::Flag { name, .. } => name.to_str().is_some_and(|name| self.kind(name).is_some()),
            Token::Positional | Token::Malformed => false,
        }
    }

    fn accepted(&self, name: &str) -> String {
        let argument = self.0.get_arguments().find(|argument| argument.get_long() == Some(name));
        let values: Vec<String> =
            argument.into_iter().flat_map(Arg::get_possible_values).map(|value| value.get_name().to_owned()).collect();
        let placeholder = argument.and_then(|argument| argument.get_value_names()?.first()).map_or("VALUE", |name| name.as_str());
        if values.is_empty() { format!("--{name}={placeholder}") } else { values.join(", ") }
    }

    fn unknown(&self, argument: &OsStr, name: &OsStr) -> UsageError {
        let dashes = if argument.as_bytes().starts_with(b"--") { "--" } else { "-" };
        let mut flag = OsString::from(dashes);
        flag.push(name);
        // clap knows what is near.
        let mut probe = OsString::from("--");
        probe.push(name);
        let error = self.0.clone().no_binary_name(true).try_get_matches_from([probe]).err();
        let suggestion = error.and_then(|error| error.get(ContextKind::SuggestedArg).map(ToString::to_string));
        let accepted: Vec<String> = self.0.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect();
        UsageError::UnknownFlag { flag, suggestion, accepted: accepted.join(", ") }
    }
}
