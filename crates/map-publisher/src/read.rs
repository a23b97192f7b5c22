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

/// The entries of a map as they were last read.
#[derive(Debug)]
pub(crate) struct Contents<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K: Record + Ord + Default, V: Record + Default> Contents<K, V> {
    pub(crate) fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// Reads all entries, in no order. A value of None vanished while it was read.
    pub(crate) fn read(&mut self, map: &MapHandle) -> impl Iterator<Item = (K, Option<V>)> {
        let by_key = match self.read_batch(map) {
            Some(count) => {
                self.keys.truncate(count);
                self.values.truncate(count);
                BTreeMap::new()
            }
            None => {
                self.keys.clear();
                self.values.clear();
                read_one_by_one(map)
            }
        };
        let batch = self.keys.iter().copied().zip(self.values.iter().map(|value| Some(*value)));
        batch.chain(by_key)
    }

    /// All entries in one system call; None where the kernel has no such call, or did not see all of them.
    #[expect(unsafe_code, reason = "libbpf-rs' batch lookup allocates each key and each value, 16,000 times for a full round")]
    fn read_batch(&mut self, map: &MapHandle) -> Option<usize> {
        // Room for one more than the map can hold: then one call sees them all.
        let capacity = map.max_entries() as usize + 1;
        self.keys.resize(capacity, K::default());
        self.values.resize(capacity, V::default());
        let mut position: BatchPosition = 0;
        let mut count = capacity as u32;
        let sizes_agree = map.key_size() as usize == size_of::<K>() && map.value_size() as usize == size_of::<V>();
        if !sizes_agree {
            return None;
        }
        let options = libbpf_sys::bpf_map_batch_opts { sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as u64, ..Default::default() };
        // SAFETY: the kernel writes at most `count` keys and values of the map's sizes, which were compared with those of K and V, for which there
        // is room for `count`; both are Records, valid whatever is written. A hash map's position takes 4 bytes.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                ptr::null_mut(),
                (&raw mut position).cast(),
                K::slice_as_bytes_mut(&mut self.keys).as_mut_ptr().cast(),
                V::slice_as_bytes_mut(&mut self.values).as_mut_ptr().cast(),
                &mut count,
                &options,
            )
        };
        matches!(result, 0 | AT_THE_END).then_some((count as usize).min(capacity))
    }
}

/// For kernels before 5.6, and when a bucket was locked by a program that a lookup interrupted.
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
