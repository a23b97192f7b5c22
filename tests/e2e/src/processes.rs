//! Processes as the kernel shows them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The fields of a `stat` file of /proc after the name: state, parent, …
fn stat(path: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(path).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// The states of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    threads.filter_map(|thread| Some(stat(&format!("{}/stat", thread.path().display()))?.swap_remove(0))).collect()
}

/// Whether a thread of a process is left; a zombie has none, it is its parent's to bury.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    threads(pid).iter().any(|state| state != "Z")
}

/// The living children of a process.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let is_child = |child: &u32| stat(&format!("/proc/{child}/stat")).is_some_and(|fields| fields[1] == pid.to_string());
    all().filter(|child| is_child(child) && is_alive(*child)).collect()
}

/// The children of a process that have ended and that it has not buried.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn zombies(pid: u32) -> Vec<u32> {
    let is_zombie = |fields: Vec<String>| fields[1] == pid.to_string() && fields[0] == "Z";
    all().filter(|child| stat(&format!("/proc/{child}/stat")).is_some_and(is_zombie)).collect()
}

/// How many threads a process has.
#[must_use]
pub fn thread_count(pid: u32) -> usize {
    threads(pid).len()
}

/// How many file descriptors a process has; 0 when that cannot be seen.
#[must_use]
pub fn descriptor_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A process's resident memory that is no file's, in KiB; 0 when it is gone.
#[must_use]
pub fn anonymous_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Whether a process has a thread in uninterruptible sleep.
#[must_use]
pub fn sleeps_uninterruptibly(pid: u32) -> bool {
    threads(pid).iter().any(|state| state == "D")
}

/// The processes that have this very file mapped, whatever it was replaced by since.
///
/// # Panics
/// Without /proc.
#[must_use]
pub fn mappers(inode: u64) -> Vec<u32> {
    let inode = inode.to_string();
    let maps = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    all().filter(|pid| maps(pid).lines().any(|line| line.split_whitespace().nth(4) == Some(&inode))).collect()
}

/// The number by which [`mappers`] knows a file.
///
/// # Panics
/// When there is no such file.
#[must_use]
#[track_caller]
pub fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).ino()
}

/// Sends a signal to a process.
///
/// # Panics
/// When it is gone.
#[track_caller]
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().expect("a process id"));
    kill(pid, signal).unwrap_or_else(|error| panic!("cannot send {signal} to {pid}: {error}"));
}

fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
