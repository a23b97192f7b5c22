//! Capabilities: what the daemon and its sampler hold on to, and nothing else.
//!
//! Only the sets of the process are narrowed, not the bounding set, nor is `no_new_privs` set: a setuid helper of the driver's library
//! (`nvidia-modprobe` loads modules and makes device files) works as it would without us.

use caps::{CapSet, Capability, CapsHashSet, errors::CapsError};

/// To reach files and pins that belong to somebody else, as the user `root` is used to.
const FILES: [Capability; 4] =
    [Capability::CAP_DAC_OVERRIDE, Capability::CAP_DAC_READ_SEARCH, Capability::CAP_CHOWN, Capability::CAP_FOWNER];

/// To look at other users' processes: which files they have open, and what the kernel says of these.
const PROCESSES: [Capability; 2] = [Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH];

/// Keeps what the maps need: `CAP_BPF`, or `CAP_SYS_ADMIN` where that stands in for it; `CAP_SYS_RESOURCE` for the limit of locked memory on old
/// kernels; and what pins of other owners need. For the calling thread and those that it starts from now on. With `lends`, also what is to be
/// [lent](lend), without the use of it.
pub(crate) fn keep_what_the_maps_need(lends: bool) {
    let held = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let bpf = if held.contains(&Capability::CAP_BPF) { Capability::CAP_BPF } else { Capability::CAP_SYS_ADMIN };
    let kept: CapsHashSet = FILES.into_iter().chain([bpf, Capability::CAP_SYS_RESOURCE]).collect();
    let lent: &[Capability] = if lends { &PROCESSES } else { &[] };
    let permitted = kept.iter().chain(lent).copied().collect();
    keep("the daemon", &kept, &permitted);
}

/// Keeps what a driver's library may need to reach its device files, or to make them. To be called before it is loaded, and before any thread
/// is started.
pub(crate) fn keep_what_the_library_needs() {
    let kept = FILES.into_iter().chain([Capability::CAP_MKNOD]).collect();
    keep("the sampler", &kept, &kept);
}

/// Keeps what looking at other users' processes takes, if that is to be done; else nothing.
pub(crate) fn keep_what_the_processes_need(looks_at_processes: bool) {
    let kept = PROCESSES.into_iter().filter(|_| looks_at_processes).collect();
    keep("the sampler", &kept, &kept);
}

/// Of what looking at other users' processes takes, what this thread cannot [lend].
pub(crate) fn not_to_be_lent() -> Vec<Capability> {
    PROCESSES.into_iter().filter(|capability| !caps::has_cap(None, CapSet::Permitted, *capability).unwrap_or(false)).collect()
}

/// What child processes of the calling thread are given on top, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lent(Vec<(CapSet, Capability)>);

/// Gives what looking at other users' processes takes to the child processes that the calling thread starts meanwhile, as far as it may. A child of
/// root has it from the bounding set, unless `no_new_privs` or a security bit is set.
pub(crate) fn lend() -> Lent {
    let mut lent = Vec::new();
    for capability in PROCESSES {
        if !caps::has_cap(None, CapSet::Permitted, capability).unwrap_or(false) {
            continue;
        }
        // What is ambient must be inheritable.
        for set in [CapSet::Inheritable, CapSet::Ambient] {
            if caps::has_cap(None, set, capability).unwrap_or(false) {
                continue;
            }
            match caps::raise(None, set, capability) {
                Ok(()) => lent.push((set, capability)),
                Err(error) => log::debug!("cannot give {capability} to the sampler: {error}"),
            }
        }
    }
    Lent(lent)
}

impl Drop for Lent {
    fn drop(&mut self) {
        for (set, capability) in self.0.drain(..).rev() {
            if let Err(error) = caps::drop(None, set, capability) {
                log::warn!("cannot take {capability} back from what child processes are given: {error}");
            }
        }
    }
}

/// Whether this thread may use the `bpf` system call, as far as capabilities are concerned.
pub(crate) fn may_use_bpf() -> bool {
    let held = caps::read(None, CapSet::Effective).unwrap_or_default();
    held.contains(&Capability::CAP_BPF) || held.contains(&Capability::CAP_SYS_ADMIN)
}

/// It is no reason to stop when that fails: nothing needs the capabilities to be gone.
fn keep(who: &str, kept: &CapsHashSet, permitted: &CapsHashSet) {
    if let Err(error) = try_keep(kept, permitted) {
        log::warn!("cannot drop the capabilities that {who} does not need: {error}");
    }
}

fn try_keep(kept: &CapsHashSet, permitted: &CapsHashSet) -> Result<(), CapsError> {
    // Effective first, since it must not exceed what is permitted; ambient ones follow the permitted and the inheritable.
    for (set, kept) in [(CapSet::Effective, kept), (CapSet::Permitted, permitted), (CapSet::Inheritable, kept)] {
        let held = caps::read(None, set)?;
        let remaining: CapsHashSet = held.intersection(kept).copied().collect();
        if remaining != held {
            caps::set(None, set, &remaining)?;
        }
    }
    Ok(())
}
