//! System calls and heap allocations of the bridge, counted in the kernel.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::{Context as _, Result};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, OpenObject, UprobeOpts};

use crate::process;
use crate::skeleton::counters::CountersSkelBuilder;

/// What the C library offers to get memory with.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];

/// Counting goes on until this is dropped.
#[derive(Debug)]
pub(crate) struct Counters {
    _links: Vec<Link>,
    system_calls: MapHandle,
    allocations: MapHandle,
}

/// What is counted: both slow their thread down, so one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    SystemCalls,
    Allocations,
}

impl Counters {
    /// Counts what these two processes do; `library` is the file whose allocations are its own.
    pub(crate) fn start(what: What, daemon: u32, sampler: Option<u32>, library: Option<&Path>) -> Result<Self> {
        let mut object = MaybeUninit::<OpenObject>::uninit();
        let mut open = CountersSkelBuilder::default().open(&mut object).context("cannot open the counters' program")?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.daemon = daemon;
            rodata.sampler = sampler.unwrap_or(daemon);
            let place = match library {
                Some(library) => process::mapping(rodata.sampler, |path| path == library)?,
                None => None,
            };
            (rodata.library_start, rodata.library_end) = place.map_or((0, 0), |(_, start, end)| (start, end));
        }
        let skeleton = open.load().context("cannot load the counters' program")?;
        let mut links = Vec::new();
        match what {
            What::SystemCalls => links.push(skeleton.progs.on_system_call.attach().context("cannot attach to system calls")?),
            What::Allocations => {
                for pid in [Some(daemon), sampler].into_iter().flatten() {
                    let is_libc = |path: &Path| path.file_name().is_some_and(|name| name == "libc.so.6");
                    let (libc, ..) = process::mapping(pid, is_libc)?.context("the bridge has no C library mapped")?;
                    for function in ALLOCATORS {
                        let options = UprobeOpts { func_name: Some(function.to_owned()), ..UprobeOpts::default() };
                        let link = skeleton.progs.on_allocation.attach_uprobe_with_opts(pid.cast_signed(), &libc, 0, options);
                        links.push(link.with_context(|| format!("cannot attach to {function} in {}", libc.display()))?);
                    }
                }
            }
        }
        let handle = |map| MapHandle::try_from(map).context("cannot hold a counters' map");
        Ok(Self { _links: links, system_calls: handle(&skeleton.maps.system_calls)?, allocations: handle(&skeleton.maps.allocations)? })
    }

    /// System calls so far, by thread and number.
    pub(crate) fn system_calls(&self) -> BTreeMap<(u32, u32), u64> {
        read(&self.system_calls)
    }

    /// Allocations so far, by thread and whether the library made them.
    pub(crate) fn allocations(&self) -> BTreeMap<(u32, bool), u64> {
        read(&self.allocations).into_iter().map(|((tid, by_library), count)| ((tid, by_library != 0), count)).collect()
    }
}

fn read(map: &MapHandle) -> BTreeMap<(u32, u32), u64> {
    let entry = |key: Vec<u8>| {
        let value = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
        let (tid, what) = key.split_first_chunk::<4>()?;
        let number = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
        Some(((number(tid)?, number(what)?), u64::from_ne_bytes(value.try_into().ok()?)))
    };
    map.keys().filter_map(entry).collect()
}

/// The names of the system calls that a bridge makes all day; others by number.
pub(crate) fn name(number: u32) -> String {
    use nix::libc;
    let known = [
        (libc::SYS_bpf, "bpf"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_close, "close"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_getdents64, "getdents64"),
        (libc::SYS_getpid, "getpid"),
        (libc::SYS_kill, "kill"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_munmap, "munmap"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_newfstatat, "newfstatat"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_pread64, "pread64"),
        (libc::SYS_read, "read"),
        (libc::SYS_statx, "statx"),
        (libc::SYS_sched_yield, "sched_yield"),
        (libc::SYS_timerfd_settime, "timerfd_settime"),
        (libc::SYS_write, "write"),
    ];
    let name = known.into_iter().find(|(known, _)| *known == i64::from(number));
    name.map_or_else(|| format!("system call {number}"), |(_, name)| name.to_owned())
}
