//! Is someone else publishing in this directory?

use std::fs;
use std::path::Path;
use std::time::Duration;

use gpu_types::bytes::Record;
use gpu_types::maps::{self, MapDefinition};
use gpu_types::{GpuBridgeState, GpuMeta, keys};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::pin::shape;

/// Who wrote `gpu_meta` last, and how old that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) helper_pid: u32,
    pub(crate) age: Duration,
}

impl Writer {
    /// None when nothing was published yet. A stamp after `now` counts as new.
    pub(crate) fn of(meta: &GpuMeta, now_boottime_ns: u64) -> Option<Self> {
        let stamp = meta.last_update_boottime_ns;
        (stamp != 0).then(|| Self { helper_pid: meta.helper_pid, age: Duration::from_nanos(now_boottime_ns.saturating_sub(stamp)) })
    }

    /// The writer in `dir`, as far as one can be made out. Changes nothing.
    pub(crate) fn look(dir: &Path, now_boottime_ns: u64) -> Option<Self> {
        let meta: GpuMeta = read_pin(dir, maps::META)?;
        Self::of(&meta, now_boottime_ns)
    }

    /// Whether this is a program other than `helper_pid` that goes on writing and takes no lock, when the lock is ours. `state` is what the
    /// directory's `gpu_bridge_state` holds: a bridge whose name is there takes the lock, so it has ended, or is about to.
    pub(crate) fn is_foreign(&self, helper_pid: u32, state: Option<&GpuBridgeState>, max_age: Duration) -> bool {
        let a_bridge = state.is_some_and(|state| state.helper_pid == self.helper_pid);
        self.helper_pid != helper_pid && !a_bridge && self.age <= max_age && is_living(self.helper_pid)
    }
}

/// The entry of a map with one entry.
pub(crate) fn read_single<T: Record + Default>(map: &MapHandle) -> Option<T> {
    let mut value = [T::default()];
    let is_there = map.lookup_into(keys::SINGLE.as_bytes(), T::slice_as_bytes_mut(&mut value), MapFlags::ANY).ok()?;
    is_there.then_some(value[0])
}

/// The entry of a map with one entry, through a read-only open of its pin.
pub(crate) fn read_pin<T: Record + Default>(dir: &Path, definition: MapDefinition) -> Option<T> {
    let map = MapHandle::from_pinned_path_with_file_flags(dir.join(definition.name), RDONLY).ok()?;
    let info = map.info().ok()?.info;
    if definition.difference(&shape(&info)).is_none() { read_single(&map) } else { None }
}

/// `BPF_F_RDONLY` of `linux/bpf.h`.
const RDONLY: u32 = 1 << 3;

/// Whether process `pid` exists and is more than a zombie.
fn is_living(pid: u32) -> bool {
    let Ok(number) = i32::try_from(pid) else { return false };
    // kill(0) would ask the own process group.
    if number == 0 || kill(Pid::from_raw(number), None) == Err(Errno::ESRCH) {
        return false;
    }
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !is_dead(&stat),
        // No /proc, or one that hides it: kill has seen it.
        Err(_) => true,
    }
}

/// Whether a line of /proc/PID/stat is a zombie's or a dead task's. The name before the state may hold anything.
fn is_dead(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X' | 'x'))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn meta(helper_pid: u32, last_update_boottime_ns: u64) -> GpuMeta {
        GpuMeta { helper_pid, last_update_boottime_ns, ..GpuMeta::default() }
    }

    #[test]
    fn a_map_that_was_never_published_has_no_writer() {
        assert_eq!(Writer::of(&meta(1, 0), 100), None);
    }

    #[test]
    fn the_age_is_never_negative() {
        assert_eq!(Writer::of(&meta(1, 30), 100), Some(Writer { helper_pid: 1, age: Duration::from_nanos(70) }));
        assert_eq!(Writer::of(&meta(1, 300), 100), Some(Writer { helper_pid: 1, age: Duration::ZERO }));
    }

    #[test]
    fn a_writer_is_foreign_when_it_is_fresh_living_not_us_and_no_bridge() {
        let max_age = Duration::from_secs(1);
        let me = std::process::id();
        let writer = Writer { helper_pid: me, age: Duration::ZERO };
        let bridge = |helper_pid| GpuBridgeState { helper_pid, ..GpuBridgeState::default() };
        assert!(writer.is_foreign(1, None, max_age));
        assert!(writer.is_foreign(1, Some(&bridge(1)), max_age));
        assert!(!writer.is_foreign(1, Some(&bridge(me)), max_age), "a bridge that gave the lock back");
        assert!(!writer.is_foreign(me, None, max_age), "ourselves");
        assert!(!Writer { age: Duration::from_secs(2), ..writer }.is_foreign(1, None, max_age), "stale");
        assert!(!Writer { helper_pid: 0, ..writer }.is_foreign(1, None, max_age), "nobody");
    }

    #[test]
    fn a_process_lives_until_it_is_a_zombie() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(is_living(child.id()));
        drop(child.stdin.take());
        // Ended and not waited for: WNOWAIT leaves the zombie.
        let id = nix::sys::wait::Id::Pid(Pid::from_raw(child.id() as i32));
        nix::sys::wait::waitid(id, nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT).unwrap();
        assert!(!is_living(child.id()));
        child.wait().unwrap();
        assert!(!is_living(child.id()));
    }

    #[test]
    fn the_state_stands_after_the_name_whatever_the_name_is() {
        assert!(is_dead("7 (a) R (b) Z 1 7"));
        assert!(!is_dead("7 (x) Z) S 1 7"));
        assert!(!is_dead(""));
    }

    #[test]
    fn numbers_that_are_no_process_do_not_live() {
        assert!(!is_living(0));
        assert!(!is_living(u32::MAX));
    }
}
