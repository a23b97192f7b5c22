//! Opening one pin: read-only, compared with the contract, and with a reason when it cannot be had.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use gpu_types::maps::{MapDefinition, MapKind};
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
    let handle = MapHandle::from_pinned_path_with_file_flags(&path, BPF_F_RDONLY).map_err(|error| why(dir, map, &path, error))?;
    let info = handle.info().map_err(|error| Error::Open { map, path: path.clone(), source: into_io(error) })?.info;
    let Some((attribute, expected, found)) = difference(definition, &info) else { return Ok(OpenMap { handle, id: info.id }) };
    // A pinned program opens too, and its description is then read as if it were a map's.
    if is_program(&handle) {
        return Err(Error::NotAMap { map, path, what: "a pinned BPF program" });
    }
    Err(Error::Foreign { map, path, attribute, expected, found })
}

/// The first attribute in which a map differs from its definition, expected and found.
fn difference(definition: &MapDefinition, found: &bpf_map_info) -> Option<(&'static str, String, String)> {
    let kind = definition.kind.bpf_type();
    if found.type_ != kind {
        return Some(("type", type_name(kind), type_name(found.type_)));
    }
    [
        ("key_size", definition.key_size, found.key_size),
        ("value_size", definition.value_size, found.value_size),
        ("max_entries", definition.max_entries, found.max_entries),
        ("map_flags", definition.flags, found.map_flags),
    ]
    .into_iter()
    .find(|(_, expected, found)| expected != found)
    .map(|(attribute, expected, found)| match attribute {
        "map_flags" => (attribute, format!("{expected:#x}"), format!("{found:#x}")),
        _ => (attribute, expected.to_string(), found.to_string()),
    })
}

fn type_name(bpf_type: u32) -> String {
    const HASH: u32 = libbpf_rs::MapType::Hash as u32;
    const ARRAY: u32 = MapKind::Array.bpf_type();
    const LRU_HASH: u32 = MapKind::LruHash.bpf_type();
    match bpf_type {
        HASH => "hash".to_owned(),
        ARRAY => "array".to_owned(),
        LRU_HASH => "lru_hash".to_owned(),
        other => format!("{:?} ({other})", libbpf_rs::MapType::from(other)),
    }
}

fn is_program(handle: &MapHandle) -> bool {
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    fs::read_link(link).is_ok_and(|target| target.as_os_str().as_bytes().ends_with(b"bpf-prog"))
}

/// The kernel answers EACCES to a directory, a file elsewhere and a forbidding mode alike, and EPERM or EINVAL to others: look what is there.
fn why(dir: &Path, map: &'static str, path: &Path, error: libbpf_rs::Error) -> Error {
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
    match error.kind() {
        ErrorKind::PermissionDenied if may_read == Err(Errno::EACCES) => Error::ForbiddenByMode { map, path, source: into_io(error) },
        ErrorKind::PermissionDenied => Error::ForbiddenByKernel { map, path, source: into_io(error) },
        // The kernel has no read-only form of a link.
        ErrorKind::InvalidInput => not_a_map("a pinned BPF object of another kind"),
        _ => Error::Open { map, path, source: into_io(error) },
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

pub(crate) fn into_io(error: libbpf_rs::Error) -> Arc<io::Error> {
    Arc::new(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_types::maps::{PER_PID, STATE};

    fn matching(definition: &MapDefinition) -> bpf_map_info {
        bpf_map_info {
            type_: definition.kind.bpf_type(),
            key_size: definition.key_size,
            value_size: definition.value_size,
            max_entries: definition.max_entries,
            map_flags: definition.flags,
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut bpf_map_info), attribute: &'static str, expected: &str, found: &str) {
        let mut info = matching(&PER_PID);
        change(&mut info);
        assert_eq!(difference(&PER_PID, &info), Some((attribute, expected.to_owned(), found.to_owned())));
    }

    #[test]
    fn a_map_of_the_contract_has_no_difference() {
        for definition in &gpu_types::maps::MAPS {
            assert_eq!(difference(definition, &matching(definition)), None);
        }
    }

    #[test]
    fn the_first_attribute_that_differs_is_named() {
        check(|info| info.type_ = 1, "type", "lru_hash", "hash");
        check(|info| info.type_ = 5, "type", "lru_hash", "PercpuHash (5)");
        check(|info| info.key_size = 8, "key_size", "4", "8");
        check(|info| info.value_size = 40, "value_size", "32", "40");
        check(|info| info.max_entries = 1024, "max_entries", "4096", "1024");
        check(|info| info.map_flags = 2, "map_flags", "0x0", "0x2");
    }

    #[test]
    fn the_state_map_must_be_mappable() {
        let info = bpf_map_info { map_flags: 0, ..matching(&STATE) };
        assert_eq!(difference(&STATE, &info), Some(("map_flags", "0x400".to_owned(), "0x0".to_owned())));
    }
}
