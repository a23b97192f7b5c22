//! The maps' keys. `gpu_device` takes the device index and `gpu_per_pid` the host PID, each a plain u32.

use core::fmt;

/// The only key of the maps with one entry, `gpu_meta` and `gpu_bridge_state`.
pub const SINGLE: u32 = 0;

/// The key of `gpu_per_pid_per_device`: `(pid << 32) | device index`. Sorts by PID, then by device.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PidDeviceKey(u64);

impl PidDeviceKey {
    /// The key of host process `pid` (its tgid) on device `device`.
    pub const fn new(pid: u32, device: u32) -> Self {
        Self(((pid as u64) << 32) | device as u64)
    }

    /// The host PID (tgid).
    pub const fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The device index.
    pub const fn device(self) -> u32 {
        self.0 as u32
    }
}

impl From<u64> for PidDeviceKey {
    fn from(key: u64) -> Self {
        Self(key)
    }
}

impl From<PidDeviceKey> for u64 {
    fn from(key: PidDeviceKey) -> Self {
        key.0
    }
}

impl fmt::Debug for PidDeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PidDeviceKey").field("pid", &self.pid()).field("device", &self.device()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Record;

    #[track_caller]
    fn check(pid: u32, device: u32, number: u64) {
        let key = PidDeviceKey::new(pid, device);
        assert_eq!(u64::from(key), number);
        assert_eq!(key.as_bytes(), number.to_ne_bytes());
        assert_eq!(PidDeviceKey::from(number), key);
        assert_eq!((key.pid(), key.device()), (pid, device));
    }

    #[test]
    fn the_key_holds_the_pid_above_the_device() {
        check(0, 0, 0);
        check(1, 2, 0x0000_0001_0000_0002);
        check(0xffff_fffe, 15, 0xffff_fffe_0000_000f);
        check(0, u32::MAX, 0x0000_0000_ffff_ffff);
    }

    #[test]
    fn keys_sort_by_pid_and_then_by_device() {
        assert!(PidDeviceKey::new(1, 15) < PidDeviceKey::new(2, 0));
        assert!(PidDeviceKey::new(2, 0) < PidDeviceKey::new(2, 1));
    }
}
