//! Why nothing, or not all, was printed.

use std::io;

/// Why a dump ended early. A map that cannot be read is none of these, but [`Outcome::Incomplete`](crate::Outcome::Incomplete).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// How old the data is cannot be told.
    #[error("cannot read CLOCK_BOOTTIME")]
    Clock(#[source] io::Error),
    /// The output cannot be written, other than because its reader is gone.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
}
