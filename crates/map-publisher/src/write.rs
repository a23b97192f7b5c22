//! Writing many entries in few system calls, and every entry all the same when a batch fails.

use gpu_types::bytes::Record;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

/// The operations on a map that are used here.
pub(crate) trait RawMap {
    fn update(&self, key: &[u8], value: &[u8]) -> libbpf_rs::Result<()>;
    /// Stops at the first key that fails, and does not say which. `count` is above 0.
    fn update_batch(&self, keys: &[u8], values: &[u8], count: u32) -> libbpf_rs::Result<()>;
    fn delete(&self, key: &[u8]) -> libbpf_rs::Result<()>;
    /// Stops at the first key that fails (one that is not there, too), and does not say which. `count` is above 0.
    fn delete_batch(&self, keys: &[u8], count: u32) -> libbpf_rs::Result<()>;
}

impl RawMap for MapHandle {
    fn update(&self, key: &[u8], value: &[u8]) -> libbpf_rs::Result<()> {
        MapCore::update(self, key, value, MapFlags::ANY)
    }

    fn update_batch(&self, keys: &[u8], values: &[u8], count: u32) -> libbpf_rs::Result<()> {
        MapCore::update_batch(self, keys, values, count, MapFlags::ANY, MapFlags::empty())
    }

    fn delete(&self, key: &[u8]) -> libbpf_rs::Result<()> {
        MapCore::delete(self, key)
    }

    fn delete_batch(&self, keys: &[u8], count: u32) -> libbpf_rs::Result<()> {
        MapCore::delete_batch(self, keys, count, MapFlags::empty(), MapFlags::empty())
    }
}

/// Some entries failed; every other one was dealt with.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failed: usize,
    pub(crate) attempted: usize,
    /// The answer for the first that failed.
    pub(crate) source: libbpf_rs::Error,
}

/// Writes all entries. One system call, unless the batch fails.
pub(crate) fn upsert<K: Record, V: Record>(map: &impl RawMap, keys: &[K], values: &[V]) -> Result<(), Failed> {
    if keys.is_empty() || map.update_batch(K::slice_as_bytes(keys), V::slice_as_bytes(values), keys.len() as u32).is_ok() {
        return Ok(());
    }
    let pairs = keys.iter().zip(values);
    one_by_one(keys.len(), pairs.map(|(key, value)| map.update(key.as_bytes(), value.as_bytes())))
}

/// Deletes all keys; one that is not there any more is no error. One system call, unless the batch fails.
pub(crate) fn delete<K: Record>(map: &impl RawMap, keys: &[K]) -> Result<(), Failed> {
    if keys.is_empty() || map.delete_batch(K::slice_as_bytes(keys), keys.len() as u32).is_ok() {
        return Ok(());
    }
    let results = keys.iter().map(|key| match map.delete(key.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    });
    one_by_one(keys.len(), results)
}

/// Carries out all of `results`, whatever happens to some.
fn one_by_one(attempted: usize, results: impl Iterator<Item = libbpf_rs::Result<()>>) -> Result<(), Failed> {
    let mut failed = 0;
    let mut first = None;
    for error in results.filter_map(Result::err) {
        failed += 1;
        first.get_or_insert(error);
    }
    match first {
        Some(source) => Err(Failed { failed, attempted, source }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    use super::*;

    const ENOENT: i32 = 2;
    const ENOMEM: i32 = 12;

    /// A map of u32 keys that counts calls and fails as told.
    #[derive(Default)]
    struct ScriptedMap {
        keys: RefCell<BTreeSet<u32>>,
        batch_error: Cell<Option<i32>>,
        bad_keys: Vec<u32>,
        calls: Cell<usize>,
    }

    impl ScriptedMap {
        fn batch(&self, keys: &[u8], one: impl Fn(&[u8]) -> libbpf_rs::Result<()>) -> libbpf_rs::Result<()> {
            let result = match self.batch_error.get() {
                Some(code) => Err(libbpf_rs::Error::from_raw_os_error(code)),
                None => keys.chunks(4).try_for_each(one),
            };
            self.calls.set(self.calls.get() + 1);
            result
        }

        fn one(&self, key: &[u8], change: impl FnOnce(&mut BTreeSet<u32>, u32) -> bool) -> libbpf_rs::Result<()> {
            self.calls.set(self.calls.get() + 1);
            let key = u32::from_bytes(key).unwrap();
            if self.bad_keys.contains(&key) {
                return Err(libbpf_rs::Error::from_raw_os_error(ENOMEM));
            }
            if change(&mut self.keys.borrow_mut(), key) { Ok(()) } else { Err(libbpf_rs::Error::from_raw_os_error(ENOENT)) }
        }
    }

    impl RawMap for ScriptedMap {
        fn update(&self, key: &[u8], _value: &[u8]) -> libbpf_rs::Result<()> {
            self.one(key, |keys, key| {
                keys.insert(key);
                true
            })
        }

        fn update_batch(&self, keys: &[u8], values: &[u8], count: u32) -> libbpf_rs::Result<()> {
            assert_eq!((keys.len(), values.len()), (4 * count as usize, 8 * count as usize));
            let calls = self.calls.get();
            let result = self.batch(keys, |key| self.update(key, &[]));
            self.calls.set(calls + 1);
            result
        }

        fn delete(&self, key: &[u8]) -> libbpf_rs::Result<()> {
            self.one(key, |keys, key| keys.remove(&key))
        }

        fn delete_batch(&self, keys: &[u8], count: u32) -> libbpf_rs::Result<()> {
            assert_eq!(keys.len(), 4 * count as usize);
            let calls = self.calls.get();
            let result = self.batch(keys, |key| self.delete(key));
            self.calls.set(calls + 1);
            result
        }
    }

    fn holding(keys: &[u32]) -> ScriptedMap {
        ScriptedMap { keys: RefCell::new(keys.iter().copied().collect()), ..ScriptedMap::default() }
    }

    #[track_caller]
    fn check_calls(map: &ScriptedMap, calls: usize) {
        assert_eq!(map.calls.replace(0), calls, "system calls");
    }

    #[test]
    fn nothing_to_do_needs_no_call() {
        let map = holding(&[]);
        upsert::<u32, u64>(&map, &[], &[]).unwrap();
        delete::<u32>(&map, &[]).unwrap();
        check_calls(&map, 0);
    }

    #[test]
    fn a_batch_is_one_call() {
        let map = holding(&[]);
        upsert(&map, &[1u32, 2, 3], &[0u64; 3]).unwrap();
        check_calls(&map, 1);
        delete(&map, &[1u32, 2]).unwrap();
        check_calls(&map, 1);
        assert_eq!(*map.keys.borrow(), [3].into());
    }

    #[test]
    fn departed_keys_are_deleted_even_when_another_has_vanished() {
        let map = holding(&[1, 3, 4]);
        delete(&map, &[1u32, 2, 3]).unwrap();
        assert_eq!(*map.keys.borrow(), [4].into());
        check_calls(&map, 4);
        // The next batch is one all the same.
        delete(&map, &[4u32]).unwrap();
        check_calls(&map, 1);
    }

    #[test]
    fn one_key_that_fails_does_not_keep_the_others() {
        let map = ScriptedMap { bad_keys: vec![2, 3], ..holding(&[]) };
        let failed = upsert(&map, &[1u32, 2, 3, 4], &[0u64; 4]).unwrap_err();
        assert_eq!((failed.failed, failed.attempted, failed.source.kind()), (2, 4, ErrorKind::OutOfMemory));
        assert_eq!(*map.keys.borrow(), [1, 4].into());
        let failed = delete(&map, &[1u32, 2, 4]).unwrap_err();
        assert_eq!((failed.failed, failed.attempted), (1, 3));
        assert!(map.keys.borrow().is_empty());
    }

    #[test]
    fn a_batch_that_failed_does_not_end_the_use_of_batches() {
        let map = holding(&[]);
        map.batch_error.set(Some(ENOMEM));
        upsert(&map, &[1u32, 2], &[0u64; 2]).unwrap();
        check_calls(&map, 3);
        map.batch_error.set(None);
        upsert(&map, &[1u32, 2], &[0u64; 2]).unwrap();
        check_calls(&map, 1);
    }
}
