//! What can go wrong in the loop.

use std::{io, path::PathBuf};

use map_publisher::PublishError;
pub(crate) use map_publisher::chain;
use telemetry::OpenError;
use thiserror::Error;

/// Why the bridge ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// The maps could not be opened or written.
    #[error(transparent)]
    Maps(#[from] PublishError),
    /// The source could not be opened and nothing else was allowed.
    #[error("cannot open the {name} source")]
    Open {
        /// What was to be opened.
        name: &'static str,
        /// Why not.
        #[source]
        source: OpenError,
    },
    /// None of the sources could be opened and nothing else was allowed.
    #[error("cannot open any source: {}", list(.failures))]
    NoneOpen {
        /// What was to be opened, and why it could not.
        failures: Vec<(&'static str, OpenError)>,
    },
    /// The plan has no source, or more than can be published.
    #[error("{count} sources cannot be published; there must be from 1 to 16")]
    Sources {
        /// How many it has.
        count: usize,
    },
    /// The source failed again and again, in a way that waiting does not mend: a container that lost its devices, a driver that hangs.
    #[error("the {name} source failed {attempts} times in a row; giving up, so that a supervisor can start afresh")]
    GaveUp {
        /// What was to be opened.
        name: &'static str,
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        #[source]
        source: OpenError,
    },
    /// The sampler could not be started.
    #[error("cannot start the {name} sampler")]
    Launch {
        /// Whose sampler.
        name: &'static str,
        /// Why not.
        #[source]
        source: SamplerError,
    },
    /// Waiting for events failed.
    #[error("cannot wait for events")]
    Wait(#[source] io::Error),
}

/// Why a sampler is of no more use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The child process could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The child process ended by itself.
    #[error("the sampler process ended: {status}")]
    Ended {
        /// Its exit status in words.
        status: String,
    },
    /// Earlier child processes hang where not even SIGKILL reaches them: one more would join them.
    #[error("{count} earlier sampler processes hang in the driver and do not end; no other is started before one does")]
    Abandoned {
        /// How many.
        count: usize,
    },
    /// What the child sent is no message of ours.
    #[error("the sampler process sent a message that cannot be read: {what}")]
    Garbled {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A pipe or event descriptor failed.
    #[error("cannot {doing}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

fn list(failures: &[(&'static str, OpenError)]) -> String {
    failures.iter().map(|(name, error)| format!("{name}: {error}")).collect::<Vec<_>>().join("; ")
}
