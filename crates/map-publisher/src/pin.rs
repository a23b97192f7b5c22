//! One map and its pin: what stands there, whether it fits, whether it is still ours.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use gpu_types::maps::{MapDefinition, MapShape};
use libbpf_rs::libbpf_sys::bpf_map_info;
use libbpf_rs::{MapCore, MapHandle};
use log::warn;

use crate::directory::Identity;
use crate::{PublishError, chain};

/// Who may use the pins, beyond what the kernel sets (the owner alone).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access {
    pub(crate) mode: Option<u32>,
    pub(crate) group: Option<u32>,
}

impl Access {
    fn apply(self, path: &Path) -> Result<(), PublishError> {
        let failed = |action| move |source| PublishError::Pin { action, path: path.to_owned(), source };
        if let Some(group) = self.group {
            chown(path, None, Some(group)).map_err(failed("set the group of"))?;
        }
        if let Some(mode) = self.mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("set the mode of"))?;
        }
        Ok(())
    }
}

/// The mode and group that a pin had before they were set.
#[derive(Debug)]
pub(crate) struct FormerAccess {
    path: PathBuf,
    access: Access,
}

impl FormerAccess {
    /// Gives them back to it, as well as that goes.
    pub(crate) fn restore(&self) {
        if let Err(error) = self.access.apply(&self.path) {
            warn!("{} is not as it was: {}", self.path.display(), chain(&error));
        }
    }
}

/// A map of ours and where it is pinned.
#[derive(Debug)]
pub(crate) struct Pin {
    pub(crate) definition: MapDefinition,
    pub(crate) path: PathBuf,
    pub(crate) map: MapHandle,
    pub(crate) id: u32,
    /// The pin's file when it was last seen to be this map. None: not pinned, or not known.
    pub(crate) seen: Option<Identity>,
}

impl Pin {
    /// The compatible map that is pinned in `dir`. None when nothing is there.
    pub(crate) fn look(dir: &Path, definition: MapDefinition) -> Result<Option<Self>, PublishError> {
        let path = dir.join(definition.name);
        let Some(metadata) = metadata(&path)? else { return Ok(None) };
        let not_a_map = |found| PublishError::NotAMap { map: definition.name, path: path.clone(), found };
        if metadata.is_dir() {
            return Err(not_a_map("a directory"));
        }
        let map = match MapHandle::from_pinned_path(&path) {
            Ok(map) => map,
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {
                return match metadata.is_symlink() {
                    true => Err(not_a_map("a symbolic link that leads nowhere")),
                    // Removed since it was looked at.
                    false => Ok(None),
                };
            }
            // What the kernel says of a program is no description of a map.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::InvalidData => return Err(not_a_map("another kind of BPF object")),
            Err(source) => return Err(PublishError::map("open", definition.name, path, source)),
        };
        if let Some(found) = foreign_object(&map) {
            return Err(not_a_map(found));
        }
        Self::from_map(path, definition, map).map(Some)
    }

    /// Compares `map` with `definition`, and looks at its pin.
    pub(crate) fn from_map(path: PathBuf, definition: MapDefinition, map: MapHandle) -> Result<Self, PublishError> {
        let info = map.info().map_err(|source| PublishError::map("look at", definition.name, path.clone(), source))?.info;
        if let Some(difference) = definition.difference(&shape(&info)) {
            return Err(PublishError::Mismatch { map: definition.name, path, difference });
        }
        let seen = identity(&path);
        Ok(Self { definition, path, map, id: info.id, seen })
    }

    /// Pins the map where nothing is.
    pub(crate) fn pin(&mut self, access: Access) -> Result<(), PublishError> {
        self.map.pin(&self.path).map_err(|source| PublishError::map("pin", self.definition.name, self.path.clone(), source))?;
        self.seen = identity(&self.path);
        self.grant(access).map(drop)
    }

    /// Gives the pin its mode and group. Returns those that it had; after an error it has them still.
    pub(crate) fn grant(&self, access: Access) -> Result<FormerAccess, PublishError> {
        let metadata = fs::metadata(&self.path);
        let metadata = metadata.map_err(|source| PublishError::Pin { action: "look at", path: self.path.clone(), source })?;
        let former = Access { mode: access.mode.map(|_| metadata.mode() & 0o7777), group: access.group.map(|_| metadata.gid()) };
        let former = FormerAccess { path: self.path.clone(), access: former };
        access.apply(&self.path).inspect_err(|_| former.restore())?;
        Ok(former)
    }

    /// Removes the pin, if it is still this map's.
    pub(crate) fn unpin(&self) -> Result<(), PublishError> {
        match identity(&self.path) {
            None => Ok(()),
            found if found == self.seen => remove_file(&self.path),
            Some(_) => remove(&self.path, self.id),
        }
    }
}

/// Removes the pin at `path`, if it leads to the map with this id.
pub(crate) fn remove(path: &Path, id: u32) -> Result<(), PublishError> {
    let found = MapHandle::from_pinned_path(path).ok().filter(|map| foreign_object(map).is_none()).and_then(|map| map.info().ok());
    if found.is_some_and(|found| found.info.id == id) { remove_file(path) } else { Ok(()) }
}

fn remove_file(path: &Path) -> Result<(), PublishError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PublishError::Pin { action: "remove", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// The file at `path`, links not followed. None when nothing is there.
fn metadata(path: &Path) -> Result<Option<fs::Metadata>, PublishError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PublishError::Pin { action: "look at", path: path.to_owned(), source }),
    }
}

/// Which file is at `path` now, if any.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|metadata| Identity::from(&metadata))
}

/// The kernel's pin operation does not say what it opened, and describes a program in another struct of the same size: /proc knows.
fn foreign_object(map: &MapHandle) -> Option<&'static str> {
    let link = fs::read_link(format!("/proc/self/fd/{}", map.as_fd().as_raw_fd())).ok()?;
    match link.to_str()? {
        "anon_inode:bpf-map" => None,
        "anon_inode:bpf-prog" => Some("a BPF program"),
        "anon_inode:bpf_link" | "anon_inode:bpf-link" | "anon_inode:[perf_event]" => Some("a BPF link"),
        _ => Some("another kind of BPF object"),
    }
}

/// What the kernel says of a map.
pub(crate) fn shape(info: &bpf_map_info) -> MapShape {
    MapShape {
        bpf_type: info.type_,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        flags: info.map_flags,
    }
}
