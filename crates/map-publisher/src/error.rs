//! What can go wrong, in words that say what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gpu_types::maps::Difference;

/// Why maps could not be taken over, written or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The pin directory exists and lies on another kind of file system.
    #[error("cannot pin {map} in {dir}: not a BPF file system (mount one with: mount -t bpf bpf {dir})", dir = .dir.display())]
    NotBpffs {
        /// The first map that would have been pinned.
        map: &'static str,
        /// The pin directory.
        dir: PathBuf,
    },
    /// The pin directory does not exist, and its place is not on a BPF file system. It was not created.
    #[error(
        "cannot pin {map} in {dir}: no such directory, and {ancestor} is not a BPF file system \
         (mount one with: mkdir -p {dir} && mount -t bpf bpf {dir})",
        dir = .dir.display(), ancestor = .ancestor.display()
    )]
    MissingDirectory {
        /// The first map that would have been pinned.
        map: &'static str,
        /// The pin directory.
        dir: PathBuf,
        /// Its nearest existing ancestor.
        ancestor: PathBuf,
    },
    /// A directory on a BPF file system would need a dot in its name, which that file system refuses.
    #[error("cannot pin {map} in {dir}: a BPF file system takes no names with a dot, as in {name:?}", dir = .dir.display())]
    DottedName {
        /// The first map that would have been pinned.
        map: &'static str,
        /// The pin directory.
        dir: PathBuf,
        /// The name that is refused.
        name: String,
    },
    /// The pin directory could not be looked at, created or locked.
    #[error("cannot {action} the pin directory {dir}", dir = .dir.display())]
    Directory {
        /// What was attempted: a verb.
        action: &'static str,
        /// The pin directory, or the part of it that failed.
        dir: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another bridge holds the lock on the pin directory.
    #[error("another bridge publishes in {dir} ({holder})", dir = .pin_dir.display(), holder = Holder(*.helper_pid, *.age))]
    Held {
        /// The pin directory.
        pin_dir: PathBuf,
        /// Its PID as `gpu_meta` names it. None when it has not published yet, or the map cannot be read.
        helper_pid: Option<u32>,
        /// The age of the newest data in `gpu_meta`.
        age: Option<Duration>,
    },
    /// Someone who takes no lock keeps `gpu_meta` fresh.
    #[error(
        "another program publishes in {dir} without a lock ({holder}): stop it first",
        dir = .pin_dir.display(), holder = Holder(Some(*.helper_pid), Some(*.age))
    )]
    ForeignWriter {
        /// The pin directory.
        pin_dir: PathBuf,
        /// The PID in `gpu_meta`, of a living process.
        helper_pid: u32,
        /// The age of the newest data in `gpu_meta`.
        age: Duration,
    },
    /// What stands at a map's place is not a map.
    #[error("{path} is {found}, not a map: remove it", path = .path.display())]
    NotAMap {
        /// The map's name.
        map: &'static str,
        /// Where it should be.
        path: PathBuf,
        /// What is there, with its article.
        found: &'static str,
    },
    /// A pinned map is of another make than the contract's.
    #[error(
        "{path} is another kind of map: {difference} (stop the program that made it and remove the pin)",
        path = .path.display()
    )]
    Mismatch {
        /// The map's name.
        map: &'static str,
        /// Its pin.
        path: PathBuf,
        /// The first thing that differs.
        difference: Difference,
    },
    /// The kernel refuses for want of privilege.
    #[error(
        "cannot {action} {map} at {path}: not permitted (run as root, or with CAP_BPF and write access to the directory; \
         where CAP_BPF is not known it is CAP_SYS_ADMIN)",
        path = .path.display()
    )]
    NotPermitted {
        /// What was attempted: a verb.
        action: &'static str,
        /// The map's name.
        map: &'static str,
        /// Its pin.
        path: PathBuf,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// A map could not be opened, created, pinned, or mapped into memory.
    #[error("cannot {action} {map} at {path}", path = .path.display())]
    Map {
        /// What was attempted: a verb.
        action: &'static str,
        /// The map's name.
        map: &'static str,
        /// Its pin.
        path: PathBuf,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// A pin could not be looked at, removed, or given its mode or group.
    #[error("cannot {action} the pin {path}", path = .path.display())]
    Pin {
        /// What was attempted: a verb.
        action: &'static str,
        /// The pin.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Entries of a map could not be written or deleted. All others of the round were.
    #[error("cannot {action} {failed} of {attempted} entries of {map}")]
    Entries {
        /// What was attempted: a verb.
        action: &'static str,
        /// The map's name.
        map: &'static str,
        /// How many entries failed.
        failed: usize,
        /// Of how many.
        attempted: usize,
        /// The answer for the first that failed.
        source: libbpf_rs::Error,
    },
    /// The caller's records break what [`crate::Records`] asks for. Nothing was written.
    #[error("the records for {map} are not {demand}")]
    Records {
        /// The map they were meant for.
        map: &'static str,
        /// What was not met.
        demand: &'static str,
    },
}

impl PublishError {
    /// An answer of the kernel about a map: want of privilege apart from the rest.
    pub(crate) fn map(action: &'static str, map: &'static str, path: PathBuf, source: libbpf_rs::Error) -> Self {
        match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::NotPermitted { action, map, path, source },
            _ => Self::Map { action, map, path, source },
        }
    }
}

/// An error and its causes in one line.
///
/// ```
/// use map_publisher::{Options, Publisher, chain};
///
/// let error = Publisher::open(&Options::new("/dev/null", 1, 1)).unwrap_err();
/// assert_eq!(chain(&error), "cannot use the pin directory /dev/null: Not a directory (os error 20)");
/// ```
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

pub(crate) struct Holder(pub(crate) Option<u32>, pub(crate) Option<Duration>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(pid), Some(age)) => write!(f, "helper_pid {pid}, its newest data {} ms old", age.as_millis()),
            (Some(pid), None) => write!(f, "helper_pid {pid}"),
            _ => f.write_str("it has not published yet"),
        }
    }
}
