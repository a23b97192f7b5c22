//! Reading a whole map back, into memory that is kept.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;

use gpu_types::bytes::Record;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, libbpf_sys};

/// The kernel's position in a hash map between two calls.
type BatchPosition = u32;
/// libbpf's answer for a lookup that has come to the end of the map.
const AT_THE_END: i32 = -2;

/// So many entries are read in one system call at most. More would take fewer calls, and memory that is used once a second.
const MOST_AT_ONCE: usize = 1024;
const FIRST_AT_ONCE: usize = 64;

/// Room for some of a map's entries.
#[derive(Debug)]
pub(crate) struct Contents<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K: Record + Ord + Default, V: Record + Default> Contents<K, V> {
    pub(crate) fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// Appends all entries of `map` to `found`, in no order, some perhaps twice. A value of None vanished while it was read.
    pub(crate) fn read(&mut self, map: &MapHandle, found: &mut Vec<(K, Option<V>)>) {
        let before = found.len();
        if self.read_batches(map, found).is_none() {
            found.truncate(before);
            found.extend(read_one_by_one(map));
        }
    }

    /// All entries in a few system calls; None when the kernel did not give all of them.
    fn read_batches(&mut self, map: &MapHandle, found: &mut Vec<(K, Option<V>)>) -> Option<()> {
        let sizes_agree = map.key_size() as usize == size_of::<K>() && map.value_size() as usize == size_of::<V>();
        if !sizes_agree {
            return None;
        }
        let most = found.len() + 2 * map.max_entries() as usize;
        let mut position: Option<BatchPosition> = None;
        while found.len() <= most {
            let (count, is_end) = self.read_batch(map, &mut position)?;
            found.extend(self.keys.iter().zip(&self.values).take(count).map(|(key, value)| (*key, Some(*value))));
            if is_end {
                return Some(());
            }
            let larger = (self.keys.len() * 2).min(MOST_AT_ONCE);
            self.keys.resize(larger, K::default());
            self.values.resize(larger, V::default());
        }
        None
    }

    /// The entries from `position` on, which moves; how many, and whether the map ends there.
    #[expect(unsafe_code, reason = "libbpf-rs' batch lookup allocates each key and each value, 16,000 times for a full round")]
    fn read_batch(&mut self, map: &MapHandle, position: &mut Option<BatchPosition>) -> Option<(usize, bool)> {
        let capacity = self.keys.len().max(FIRST_AT_ONCE);
        self.keys.resize(capacity, K::default());
        self.values.resize(capacity, V::default());
        let mut from = position.unwrap_or(0);
        let from_ptr = if position.is_some() { (&raw mut from).cast() } else { ptr::null_mut() };
        let mut next: BatchPosition = 0;
        let mut count = capacity as u32;
        let options = libbpf_sys::bpf_map_batch_opts { sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as u64, ..Default::default() };
        // SAFETY: the kernel writes at most `count` keys and values of the map's sizes, which the caller compared with those of K and V, for which
        // there is room for `count`; both are Records, valid whatever is written. A hash map's position takes 4 bytes.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from_ptr,
                (&raw mut next).cast(),
                K::slice_as_bytes_mut(&mut self.keys).as_mut_ptr().cast(),
                V::slice_as_bytes_mut(&mut self.values).as_mut_ptr().cast(),
                &mut count,
                &options,
            )
        };
        *position = Some(next);
        matches!(result, 0 | AT_THE_END).then_some(((count as usize).min(capacity), result == AT_THE_END))
    }
}

/// For when a bucket was locked by a program that a lookup interrupted.
fn read_one_by_one<K: Record + Ord, V: Record>(map: &MapHandle) -> BTreeMap<K, Option<V>> {
    let mut by_key = BTreeMap::new();
    for key in map.keys().take(2 * (map.max_entries() as usize + 1)) {
        let value = map.lookup(&key, MapFlags::ANY).ok().flatten();
        if let Some(key) = K::from_bytes(&key) {
            by_key.insert(key, value.and_then(|value| V::from_bytes(&value)));
        }
    }
    by_key
}
