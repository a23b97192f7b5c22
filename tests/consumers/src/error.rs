//! What can go wrong between a program and its maps.

use std::io;
use std::path::PathBuf;

/// Why a consumer could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel or libbpf refused a program or its maps: no privileges, no BPF file system, a pin with other attributes.
    #[error("cannot load {program} with the maps pinned in {}", pin_dir.display())]
    Load {
        /// The BPF object.
        program: &'static str,
        /// Where its maps are pinned.
        pin_dir: PathBuf,
        /// libbpf's answer.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A loaded program could not be attached.
    #[error("cannot attach {program}")]
    Attach {
        /// The BPF object.
        program: &'static str,
        /// libbpf's answer.
        #[source]
        source: libbpf_rs::Error,
    },
    /// What an iterator prints could not be read.
    #[error("cannot read what {program} prints")]
    Read {
        /// The BPF object.
        program: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An iterator printed something else than its program is written to print.
    #[error("{program} printed an unexpected line: {line:?}")]
    Line {
        /// The BPF object.
        program: &'static str,
        /// The line.
        line: String,
    },
    /// The ring buffer, or the counter of what did not fit into it, could not be read.
    #[error("cannot read the ring buffer of {program}")]
    RingBuffer {
        /// The BPF object.
        program: &'static str,
        /// libbpf's answer.
        #[source]
        source: libbpf_rs::Error,
    },
}
