//! The pinned `gpu_*` BPF maps as text.
//!
//! [`dump`] is what `bridge-dump` and `gpu-ebpf-bridge --dump` do: it reads, and disturbs nobody.
//!
//! ```no_run
//! use std::io;
//! use std::path::Path;
//!
//! let outcome = bridge_dump::dump(Path::new("/sys/fs/bpf"), &mut io::stdout().lock(), &mut io::stderr().lock())?;
//! # let _ = outcome;
//! # Ok::<(), io::Error>(())
//! ```

mod text;

use std::error::Error as StdError;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use map_reader::{Error, Reader, Snapshot, Source};

/// How a dump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// All four maps of the contract were printed.
    Complete,
    /// At least one of the four could not be read; why was said on the error output, and the others were printed.
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

/// Prints the maps pinned in `pin_dir` to `out`, as text, as of one round where the bridge makes that possible.
///
/// One line on `err` for each map that cannot be read, and one when the data is invented; nothing else. What cannot be written to `err` is
/// lost.
///
/// # Errors
/// `out` cannot be written, other than because its reader is gone.
pub fn dump(pin_dir: &Path, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Outcome> {
    let snapshot = Reader::open(pin_dir).snapshot();
    for note in notes(&snapshot) {
        // There is no other place to complain.
        drop(writeln!(err, "{note}"));
    }
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    match text::write(&snapshot, &mut out).and_then(|()| out.flush()) {
        Ok(()) if failures(&snapshot).next().is_some() => Ok(Outcome::Incomplete),
        Ok(()) => Ok(Outcome::Complete),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // Else dropping the writer would try again.
            drop(out.into_parts());
            Ok(Outcome::OutputClosed)
        }
        Err(error) => {
            drop(out.into_parts());
            Err(error)
        }
    }
}

/// What a reader of the output must know besides it.
fn notes(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    let invented = match &snapshot.state {
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
    failures(snapshot).map(|error| format!("{} is not printed: {}", error.map(), chain(error))).chain(invented)
}

/// Why maps of the contract are missing from the output.
fn failures(snapshot: &Snapshot) -> impl Iterator<Item = &Error> {
    let Snapshot { meta, devices, processes, process_devices, .. } = snapshot;
    [meta.as_ref().err(), devices.as_ref().err(), processes.as_ref().err(), process_devices.as_ref().err()].into_iter().flatten()
}

/// An error and its causes in one line.
fn chain(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
