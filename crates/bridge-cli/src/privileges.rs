//! Capabilities: what the daemon and its sampler hold on to, and nothing else.
//!
//! Only the sets of the process are narrowed, not the bounding set, nor is `no_new_privs` set: a setuid helper of the driver's library
//! (`nvidia-modprobe` loads modules and makes device files) works as it would without us.

use caps::{CapSet, Capability, CapsHashSet, errors::CapsError};

/// To reach files and pins that belong to somebody else, as the user `root` is used to.
const FILES: [Capability; 4] =
    [Capability::CAP_DAC_OVERRIDE, Capability::CAP_DAC_READ_SEARCH, Capability::CAP_CHOWN, Capability::CAP_FOWNER];

/// Keeps what the maps need: `CAP_BPF`, or `CAP_SYS_ADMIN` where that stands in for it; `CAP_SYS_RESOURCE` for the limit of locked memory on old
/// kernels; and what pins of other owners need. For the calling thread and those that it starts from now on.
pub(crate) fn keep_what_the_maps_need() {
    let held = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let bpf = if held.contains(&Capability::CAP_BPF) { Capability::CAP_BPF } else { Capability::CAP_SYS_ADMIN };
    keep("the daemon", FILES.into_iter().chain([bpf, Capability::CAP_SYS_RESOURCE]).collect());
}

/// Keeps what a driver's library may need to reach its device files, or to make them. To be called before it is loaded, and before any thread
/// is started.
pub(crate) fn keep_what_the_library_needs() {
    keep("the sampler", FILES.into_iter().chain([Capability::CAP_MKNOD]).collect());
}

/// Whether this thread may use the `bpf` system call, as far as capabilities are concerned.
pub(crate) fn may_use_bpf() -> bool {
    let held = caps::read(None, CapSet::Effective).unwrap_or_default();
    held.contains(&Capability::CAP_BPF) || held.contains(&Capability::CAP_SYS_ADMIN)
}

/// It is no reason to stop when that fails: nothing needs the capabilities to be gone.
fn keep(who: &str, kept: CapsHashSet) {
    if let Err(error) = try_keep(&kept) {
        log::warn!("cannot drop the capabilities that {who} does not need: {error}");
    }
}

fn try_keep(kept: &CapsHashSet) -> Result<(), CapsError> {
    // Effective first, since it must not exceed what is permitted; ambient ones follow the permitted and the inheritable.
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        let held = caps::read(None, set)?;
        let remaining: CapsHashSet = held.intersection(kept).copied().collect();
        if remaining != held {
            caps::set(None, set, &remaining)?;
        }
    }
    Ok(())
}
