//! What can end the program.

use std::io;

use bridge::{BridgeError, SamplerError};
use bridge_dump::DumpError;
use log::SetLoggerError;
pub use map_reader::chain;
use thiserror::Error;

use crate::usage::UsageError;

/// Why the program failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The command line cannot be used; nothing was touched.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// What was asked for could not be printed.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// What was asked for could not be printed for another reason.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The log was started before.
    #[error("cannot start the log")]
    Log(#[from] SetLoggerError),
    /// No descriptor or thread for the signals.
    #[error("cannot arrange for signals")]
    Signals(#[source] io::Error),
    /// `--health` could not tell the time.
    #[error("cannot read CLOCK_BOOTTIME")]
    Clock(#[source] io::Error),
    /// The bridge ended with an error.
    #[error("{}{}", chain(.error), .remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default())]
    Bridge {
        /// What failed.
        error: BridgeError,
        /// What of this process's surroundings is to be mended, where that can be seen.
        remedy: Option<String>,
    },
    /// The sampling child process ended with an error.
    #[error("the sampler cannot go on")]
    Relay(#[source] SamplerError),
}

impl Error {
    /// The program's exit status.
    pub const fn exit_status(&self) -> i32 {
        match self {
            Self::Usage(_) => 2,
            Self::Output(_) | Self::Dump(_) | Self::Log(_) | Self::Signals(_) | Self::Clock(_) | Self::Bridge { .. } | Self::Relay(_) => 1,
        }
    }
}
