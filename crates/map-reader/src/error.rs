//! Why a map could not be opened or read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gpu_types::maps::Difference;

/// Why one map could not be opened or read. Each error concerns that map alone and names it; the others are not affected.
///
/// Errors are `Clone`: what went wrong when a map was opened is told again at every read of it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing has the map's name in the pin directory.
    #[error("{map} is not pinned in {}: is a bridge running with this pin directory?", dir.display())]
    NotPinned {
        /// The map's name.
        map: &'static str,
        /// The pin directory.
        dir: PathBuf,
    },
    /// The pin directory is missing, or something on the way to it is no directory.
    #[error("{map} is not pinned: there is no directory {}", dir.display())]
    NoDirectory {
        /// The map's name.
        map: &'static str,
        /// The pin directory.
        dir: PathBuf,
    },
    /// The pin directory is not in a BPF file system, so nothing can be pinned there.
    #[error("{map} is not pinned: {} is not in a BPF file system (is it mounted in this mount namespace? mount -t bpf bpf {})", dir.display(), dir.display())]
    NotBpffs {
        /// The map's name.
        map: &'static str,
        /// The pin directory.
        dir: PathBuf,
    },
    /// Something that is no pinned map has the map's name; the running bridge cannot have put it there.
    #[error("{} is {what}, not a pinned BPF map: remove it and start the bridge again", path.display())]
    NotAMap {
        /// The map's name.
        map: &'static str,
        /// The pin.
        path: PathBuf,
        /// What is there instead, with its article.
        what: &'static str,
    },
    /// The mode of the pin, or of a directory on the way to it, does not let this user read.
    #[error("not allowed to read {}: the mode of the pin or of a directory above it forbids it to this user", path.display())]
    ForbiddenByMode {
        /// The map's name.
        map: &'static str,
        /// The pin.
        path: PathBuf,
        /// What the kernel answered.
        source: Arc<io::Error>,
    },
    /// The pin's mode allows reading, but the kernel refuses the bpf system call itself: kernels before 5.19 do so for users without
    /// `CAP_BPF` where `kernel.unprivileged_bpf_disabled` is set, and so do seccomp filters of containers.
    #[error("not allowed to read {}: this needs CAP_BPF here (or CAP_SYS_ADMIN), or a container that permits the bpf system call", path.display())]
    ForbiddenByKernel {
        /// The map's name.
        map: &'static str,
        /// The pin.
        path: PathBuf,
        /// What the kernel answered.
        source: Arc<io::Error>,
    },
    /// A map of another make is pinned under the name: not the bridge's, or of another version of the contract.
    #[error("{} is a foreign map: {difference} (remove it and start the bridge again, or name another pin directory)", path.display())]
    Foreign {
        /// The map's name.
        map: &'static str,
        /// The pin.
        path: PathBuf,
        /// The first thing that differs.
        difference: Difference,
    },
    /// Opening failed for a reason that has no variant of its own.
    #[error("cannot open {}", path.display())]
    Open {
        /// The map's name.
        map: &'static str,
        /// The pin.
        path: PathBuf,
        /// What the kernel answered.
        source: Arc<io::Error>,
    },
    /// A read of the open map failed.
    #[error("cannot read {map}")]
    Read {
        /// The map's name.
        map: &'static str,
        /// What the kernel answered.
        source: Arc<io::Error>,
    },
    /// The map's entries were replaced faster than they could be read, at every attempt.
    #[error("cannot read {map}: its entries changed faster than they could be read, {attempts} times in a row")]
    Unsettled {
        /// The map's name.
        map: &'static str,
        /// How often it was tried.
        attempts: u32,
    },
    /// The map is open, but its records are of a version that this program does not know: `gpu_meta` says of which the contract's four maps are, and
    /// `gpu_bridge_state` has one of its own.
    #[error("cannot interpret {map}: its version is {found}, this program knows {expected} (use one that came with the bridge)")]
    UnknownVersion {
        /// The map's name.
        map: &'static str,
        /// The version that this crate was built for.
        expected: u32,
        /// The version that was found.
        found: u32,
    },
    /// The map was created, and its bridge has not written to it yet.
    #[error("{map} was not written yet")]
    NeverWritten {
        /// The map's name.
        map: &'static str,
    },
    /// [`Reader::open_only`](crate::Reader::open_only) was not asked for this map.
    #[error("{map} was not opened: it is not among the maps that were asked for")]
    NotAskedFor {
        /// The map's name.
        map: &'static str,
    },
}

/// An error and its causes in one line: what a program says of an [`Error`] to a person.
///
/// ```
/// use map_reader::{Reader, chain};
///
/// let error = Reader::open("/proc/self/fd/x".repeat(999)).meta().unwrap_err();
/// assert!(chain(&error).ends_with("/gpu_meta: File name too long (os error 36)"));
/// ```
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

impl Error {
    /// The name of the map that is concerned.
    #[must_use]
    pub const fn map(&self) -> &'static str {
        match self {
            Self::NotPinned { map, .. }
            | Self::NoDirectory { map, .. }
            | Self::NotBpffs { map, .. }
            | Self::NotAMap { map, .. }
            | Self::ForbiddenByMode { map, .. }
            | Self::ForbiddenByKernel { map, .. }
            | Self::Foreign { map, .. }
            | Self::Open { map, .. }
            | Self::Read { map, .. }
            | Self::Unsettled { map, .. }
            | Self::UnknownVersion { map, .. }
            | Self::NeverWritten { map }
            | Self::NotAskedFor { map } => map,
        }
    }

    /// Whether there is nothing to read yet, as when no bridge has run: anything else wants a person's attention.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::NotPinned { .. }
                | Self::NoDirectory { .. }
                | Self::NotBpffs { .. }
                | Self::NeverWritten { .. }
                | Self::NotAskedFor { .. }
        )
    }
}
