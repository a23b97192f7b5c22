//! Creating and pinning a map from the embedded BPF object, which gives it the types of its key and value.

use std::path::Path;
use std::sync::Once;

use gpu_types::maps::MapDefinition;
use libbpf_rs::{ErrorKind, MapCore, MapHandle, ObjectBuilder, PrintLevel};
use log::{debug, info};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use crate::PublishError;
use crate::pin::Pin;

/// `gpu_maps.bpf.c`, compiled.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gpu_maps.bpf.o"));

/// Creates the map that `definition` names and pins it in `dir`. A compatible pin that someone made a moment ago is used instead.
pub(crate) fn create(dir: &Path, definition: MapDefinition) -> Result<Pin, PublishError> {
    let path = dir.join(definition.name);
    let created = match load(dir, definition) {
        // Kernels before 5.11 charge maps to RLIMIT_MEMLOCK and answer EPERM when it is reached.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && raise_memlock() => load(dir, definition),
        result => result,
    };
    let map = created.map_err(|source| PublishError::map("create", definition.name, path.clone(), source))?;
    Pin::from_map(path, definition, map)
}

/// Loads the object with one map: the object as a whole would leave its first pins behind when a later map fails, and not say which.
fn load(dir: &Path, definition: MapDefinition) -> libbpf_rs::Result<MapHandle> {
    let mut object = ObjectBuilder::default().pin_root_path(dir)?.open_memory(OBJECT)?;
    for mut map in object.maps_mut() {
        let wanted = map.name() == definition.name;
        map.set_autocreate(wanted)?;
    }
    let object = object.load()?;
    let map = object.maps().find(|map| map.name() == definition.name);
    MapHandle::try_from(&map.ok_or_else(|| libbpf_rs::Error::from(std::io::Error::other("the BPF object has no such map")))?)
}

/// Raises the limit of locked memory as far as is allowed. Whether that changed anything.
fn raise_memlock() -> bool {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else { return false };
    if soft == RLIM_INFINITY {
        return false;
    }
    let raised = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok()
        || (soft < hard && setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard).is_ok());
    if raised {
        info!("raised the limit of locked memory (it was {soft} bytes): a map could not be created");
    }
    raised
}

/// libbpf prints to stderr by itself; from now on, in the whole process, it logs at debug level, without its own two hundred lines for debugging.
pub(crate) fn route_libbpf_output() {
    static ROUTED: Once = Once::new();
    ROUTED.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, |_level, text| debug!(target: "libbpf", "{}", text.trim_end()))));
    });
}
