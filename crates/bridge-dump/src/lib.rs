//! The pinned `gpu_*` BPF maps as text, JSON or a table.
//!
//! [`dump`] is what `bridge-dump` and `gpu-ebpf-bridge --dump` do: it reads, and disturbs nobody. The live screen is in the program
//! `bridge-dump` alone.
//!
//! ```no_run
//! use std::io;
//! use std::path::Path;
//!
//! use bridge_dump::{Output, Request};
//!
//! let request = Request { output: Output::Json, ..Request::default() };
//! let outcome = bridge_dump::dump_as(Path::new("/sys/fs/bpf"), &request, &mut io::stdout().lock(), &mut io::stderr().lock())?;
//! # let _ = outcome;
//! # Ok::<(), bridge_dump::DumpError>(())
//! ```

mod capture;
pub mod cells;
pub mod decode;
pub mod duration;
mod error;
mod json;
mod select;
mod table;
mod text;
pub mod units;

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

pub use map_reader::Map;
use map_reader::{Reader, Source, chain};

pub use capture::Capture;
pub use error::DumpError;
pub use select::Selection;

/// How long [`follow`] waits before it asks again whether to go on.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// How a dump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Outcome {
    /// All maps that were wanted were printed.
    Complete,
    /// At least one of them could not be read; why was said on the error output, and the others were printed.
    Incomplete,
    /// Whoever reads the output has closed it, as `head` does: nobody misses the rest.
    OutputClosed,
}

impl Outcome {
    /// The exit status of a program that does nothing else: 0, or 1 when a map is missing from the output.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Complete | Self::OutputClosed => 0,
            Self::Incomplete => 1,
        }
    }
}

/// The form of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// One section a map, every field as it is; the form that never changes.
    #[default]
    Text,
    /// One document, see `schema/dump.schema.json`: exact numbers, null for what is not known, words beside codes.
    Json,
    /// Columns for people, with units.
    Table,
}

impl Output {
    /// All forms.
    pub const ALL: &[Self] = &[Self::Text, Self::Json, Self::Table];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Table => "table",
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Output {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().copied().find(|output| output.name() == word);
        known.ok_or_else(|| format!("not a form of output: {word:?} (text, json or table)"))
    }
}

/// What is to be printed, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The form.
    pub output: Output,
    /// What of the maps.
    pub selection: Selection,
}

/// Prints the maps pinned in `pin_dir` to `out`, as text, as of one round where the bridge makes that possible.
///
/// One line on `err` for each map that cannot be read, and one when the data is invented; nothing else. What cannot be written to `err` is
/// lost.
///
/// # Errors
/// `out` cannot be written, other than because its reader is gone, or the clock cannot be read.
pub fn dump(pin_dir: &Path, out: &mut dyn Write, err: &mut dyn Write) -> Result<Outcome, DumpError> {
    dump_as(pin_dir, &Request::default(), out, err)
}

/// [`dump`] in another form, or of a part.
///
/// # Errors
/// `out` cannot be written, other than because its reader is gone, or the clock cannot be read.
pub fn dump_as(pin_dir: &Path, request: &Request, out: &mut dyn Write, err: &mut dyn Write) -> Result<Outcome, DumpError> {
    let capture = Capture::take(&Reader::open(pin_dir), &request.selection)?;
    say(&notes(&capture), err);
    print(&capture, pin_dir, request.output, json::Form::Indented, out)
}

/// Prints every round as it comes, in the form of [`dump_as`], until `go_on` says no or the reader of `out` is gone. JSON documents take one
/// line each. Everything is flushed at the end of a round. Bridges that come, go and restart are followed.
///
/// `go_on` is asked at least ten times a second. Lines on `err` are written when they change.
///
/// # Errors
/// `out` cannot be written, other than because its reader is gone, or the clock cannot be read.
pub fn follow(
    pin_dir: &Path,
    request: &Request,
    out: &mut dyn Write,
    err: &mut dyn Write,
    mut go_on: impl FnMut() -> bool,
) -> Result<Outcome, DumpError> {
    let mut reader = Reader::open(pin_dir);
    let (mut seen, mut said) = (None, Vec::new());
    let mut outcome = Outcome::Complete;
    while go_on() {
        let notes = match reader.wait_for_round(seen, ASK_INTERVAL) {
            Ok(None) => continue,
            Ok(round) => {
                seen = round;
                // A pin may have been replaced while gpu_meta was not.
                if outcome == Outcome::Incomplete {
                    reader.reopen();
                }
                let capture = Capture::take(&reader, &request.selection)?;
                outcome = print(&capture, pin_dir, request.output, json::Form::Line, out)?;
                if outcome == Outcome::OutputClosed {
                    return Ok(outcome);
                }
                notes(&capture)
            }
            Err(error) if error.is_absent() => vec![format!("waiting for a bridge: {}", chain(&error))],
            Err(error) => {
                say(&[format!("cannot follow: {}", chain(&error))], err);
                return Ok(Outcome::Incomplete);
            }
        };
        if notes != said {
            say(&notes, err);
            said = notes;
        }
    }
    Ok(outcome)
}

/// Writes `capture`; nothing of it is left unwritten on return.
fn print(capture: &Capture, pin_dir: &Path, output: Output, form: json::Form, out: &mut dyn Write) -> Result<Outcome, DumpError> {
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    let written = match output {
        Output::Text => text::write(&capture.snapshot, &mut out),
        Output::Json => json::write(capture, pin_dir, form, &mut out),
        Output::Table => table::write(capture, &mut out),
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) if capture.failures().next().is_some() => Ok(Outcome::Incomplete),
        Ok(()) => Ok(Outcome::Complete),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // Else dropping the writer would try again.
            drop(out.into_parts());
            Ok(Outcome::OutputClosed)
        }
        Err(error) => {
            drop(out.into_parts());
            Err(DumpError::Output(error))
        }
    }
}

fn say(notes: &[String], err: &mut dyn Write) {
    for note in notes {
        // There is no other place to complain.
        drop(writeln!(err, "{note}"));
    }
}

/// What a reader of the output must know besides it.
fn notes(capture: &Capture) -> Vec<String> {
    let invented = match &capture.snapshot.state {
        Ok(state) => match state.source() {
            Source::Mock => Some("this data is invented: it comes from the bridge's mock source".to_owned()),
            Source::MockFallback => Some(
                "this data is invented: the bridge could not open a real source and fell back to its mock one (its log says why)"
                    .to_owned(),
            ),
            _ => None,
        },
        Err(error) if error.is_absent() => None,
        Err(error) => Some(format!("cannot tell whether this data is invented: {}", chain(error))),
    };
    let failures = capture.failures().map(|error| format!("{} is not printed: {}", error.map(), chain(error)));
    failures.chain(invented).collect()
}
