//! Opening one pin: read-only, compared with the contract, and with a reason when it cannot be had.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use gpu_types::maps::{MapDefinition, MapShape};
use libbpf_rs::libbpf_sys::{BPF_F_RDONLY, bpf_map_info};
use libbpf_rs::{ErrorKind, MapCore, MapHandle};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::{AccessFlags, faccessat};

use crate::Error;

/// A map of the contract.
#[derive(Debug)]
pub(crate) struct OpenMap {
    pub(crate) handle: MapHandle,
    /// The kernel's.
    pub(crate) id: u32,
}

pub(crate) fn open(dir: &Path, definition: &MapDefinition) -> Result<OpenMap, Error> {
    let map = definition.name;
    let path = dir.join(map);
    if path.as_os_str().as_bytes().contains(&0) {
        let source = Arc::new(io::Error::new(io::ErrorKind::InvalidInput, "the path contains a NUL byte"));
        return Err(Error::Open { map, path, source });
    }
    let handle = MapHandle::from_pinned_path_with_file_flags(&path, BPF_F_RDONLY).map_err(|error| why(dir, map, &path, into_io(error)))?;
    let info = handle.info().map_err(|error| Error::Open { map, path: path.clone(), source: into_io(error) })?.info;
    let Some(difference) = definition.difference(&shape(&info)) else { return Ok(OpenMap { handle, id: info.id }) };
    // A pinned program opens too, and its description is then read as if it were a map's.
    if is_program(&handle) {
        return Err(Error::NotAMap { map, path, what: "a pinned BPF program" });
    }
    Err(Error::Foreign { map, path, difference })
}

/// What the kernel says of a map.
fn shape(info: &bpf_map_info) -> MapShape {
    MapShape {
        bpf_type: info.type_,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        flags: info.map_flags,
    }
}

fn is_program(handle: &MapHandle) -> bool {
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    fs::read_link(link).is_ok_and(|target| target.as_os_str().as_bytes().ends_with(b"bpf-prog"))
}

/// The kernel answers EACCES to a directory, a file elsewhere and a forbidding mode alike, and EPERM or EINVAL to others: look what is there.
fn why(dir: &Path, map: &'static str, path: &Path, source: Arc<io::Error>) -> Error {
    let path = path.to_owned();
    let not_a_map = |what| Error::NotAMap { map, path: path.clone(), what };
    let link = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata.is_symlink(),
        Err(looked) if looked.kind() == io::ErrorKind::NotFound => return absent(dir, map),
        Err(looked) if looked.kind() == io::ErrorKind::NotADirectory => return Error::NoDirectory { map, dir: dir.to_owned() },
        Err(looked) => return unreachable_pin(map, &path, looked),
    };
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => return not_a_map("a directory"),
        Ok(_) => {}
        Err(looked) if looked.kind() == io::ErrorKind::PermissionDenied => return unreachable_pin(map, &path, looked),
        Err(_) if link => return not_a_map("a dangling symbolic link"),
        Err(looked) => return unreachable_pin(map, &path, looked),
    }
    if !is_in_bpffs(&path) {
        return not_a_map("a file outside any BPF file system");
    }
    let may_read = faccessat(AT_FDCWD, &path, AccessFlags::R_OK, AtFlags::AT_EACCESS);
    match source.kind() {
        io::ErrorKind::PermissionDenied if may_read == Err(Errno::EACCES) => Error::ForbiddenByMode { map, path, source },
        io::ErrorKind::PermissionDenied => Error::ForbiddenByKernel { map, path, source },
        // The kernel has no read-only form of a link.
        io::ErrorKind::InvalidInput => not_a_map("a pinned BPF object of another kind"),
        _ => Error::Open { map, path, source },
    }
}

fn absent(dir: &Path, map: &'static str) -> Error {
    let dir = dir.to_owned();
    if !dir.exists() {
        Error::NoDirectory { map, dir }
    } else if !is_in_bpffs(&dir) {
        Error::NotBpffs { map, dir }
    } else {
        Error::NotPinned { map, dir }
    }
}

fn unreachable_pin(map: &'static str, path: &Path, looked: io::Error) -> Error {
    let path = path.to_owned();
    match looked.kind() {
        io::ErrorKind::PermissionDenied => Error::ForbiddenByMode { map, path, source: Arc::new(looked) },
        _ => Error::Open { map, path, source: Arc::new(looked) },
    }
}

fn is_in_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

/// The kernel's answer behind `error`, with its number. To be called before anything else that may set `errno`: libbpf sets it with every failure,
/// and libbpf-rs' error keeps the number to itself.
pub(crate) fn into_io(error: libbpf_rs::Error) -> Arc<io::Error> {
    let answer = io::Error::last_os_error();
    if answer.to_string() == error.to_string() {
        return Arc::new(answer);
    }
    // What libbpf-rs finds wrong by itself is no answer of the kernel.
    let kind = match error.kind() {
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
        ErrorKind::InvalidData => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    Arc::new(io::Error::new(kind, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_kernel_keeps_its_number_and_what_is_none_its_words() {
        let refused = MapHandle::from_pinned_path_with_file_flags("/nowhere/gpu_meta", BPF_F_RDONLY).unwrap_err();
        let answer = into_io(refused);
        assert_eq!((answer.kind(), answer.raw_os_error()), (io::ErrorKind::NotFound, Some(Errno::ENOENT as i32)));
        assert_eq!(answer.to_string(), "No such file or directory (os error 2)");

        Errno::EPERM.set();
        let ours = into_io(libbpf_rs::Error::from(io::Error::new(io::ErrorKind::InvalidData, "value buffer size 1 != 2")));
        assert_eq!((ours.kind(), ours.raw_os_error()), (io::ErrorKind::InvalidData, None));
        assert_eq!(ours.to_string(), "value buffer size 1 != 2");
    }
}
