//! All entries of a hash map, without gaps and without swallowed errors.

use std::io;
use std::sync::Arc;

use gpu_types::bytes::Record;
use gpu_types::maps::MapDefinition;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::errno::Errno;

use crate::Error;
use crate::open::into_io;

const ATTEMPTS: u32 = 8;

/// All entries of a hash map, each key once, in the map's own order.
///
/// One batch lookup goes through the buckets in order, each under its lock. A key stays in its bucket, so none appears twice, whatever is
/// written meanwhile: walking from key to key would start over whenever the key it stands on is deleted.
pub(crate) fn entries<K: Record, V: Record>(handle: &MapHandle, definition: &MapDefinition) -> Result<Vec<(K, V)>, Error> {
    let map = definition.name;
    for attempt in 1..=ATTEMPTS {
        let mut entries = Vec::new();
        let batch = handle
            .lookup_batch(room(definition), MapFlags::ANY, MapFlags::ANY)
            .map_err(|error| Error::Read { map, source: into_io(error) })?;
        // The iterator ends alike at the end of the map, at an error and at a bucket for which no room was left. The last call's errno tells
        // them apart; a success leaves it as it is.
        Errno::clear();
        for (key, value) in batch {
            entries.push(decode(map, &key, &value)?);
        }
        match Errno::last() {
            Errno::ENOENT => return Ok(entries),
            // The lookup stops early only when a bucket does not fit, which takes more than max_entries entries before it: see `room`.
            _ if !entries.is_empty() && entries.len() <= definition.max_entries as usize => return Ok(entries),
            Errno::UnknownErrno | Errno::ENOSPC => {}
            // A bucket's lock was taken by a program that interrupted this very lookup.
            Errno::EBUSY if attempt < ATTEMPTS => {}
            errno => return Err(Error::Read { map, source: Arc::new(errno.into()) }),
        }
    }
    Err(Error::Unsettled { map, attempts: ATTEMPTS })
}

/// Twice what the map holds. Entries that are replaced during the lookup can be counted in a bucket already passed and again, under another key,
/// in a later one; a bucket that holds the whole map still fits behind `max_entries` of them.
const fn room(definition: &MapDefinition) -> u32 {
    definition.max_entries * 2
}

fn decode<K: Record, V: Record>(map: &'static str, key: &[u8], value: &[u8]) -> Result<(K, V), Error> {
    match (K::from_bytes(key), V::from_bytes(value)) {
        (Some(key), Some(value)) => Ok((key, value)),
        // The sizes were compared when the map was opened.
        _ => Err(Error::Read { map, source: Arc::new(io::Error::from(io::ErrorKind::InvalidData)) }),
    }
}

/// The value at `key`; `None` when the map has no such entry.
pub(crate) fn lookup<K: Record, V: Record + Default>(handle: &MapHandle, map: &'static str, key: K) -> Result<Option<V>, Error> {
    let mut value = V::default();
    let bytes = V::slice_as_bytes_mut(std::slice::from_mut(&mut value));
    let found = handle.lookup_into(key.as_bytes(), bytes, MapFlags::ANY).map_err(|error| Error::Read { map, source: into_io(error) })?;
    Ok(found.then_some(value))
}
