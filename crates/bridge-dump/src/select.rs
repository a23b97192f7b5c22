//! Which maps, devices and processes are wanted.

use map_reader::{Error, Map, Snapshot};

/// What to show. An empty list stands for everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Host PIDs. Devices are not concerned.
    pub pids: Vec<u32>,
    /// Device indices; of the processes those are shown that use one of them.
    pub devices: Vec<u32>,
    /// Maps of the contract.
    pub maps: Vec<Map>,
}

impl Selection {
    /// Takes out of `snapshot` what is not wanted. A map that is not wanted is [`Error::NotAskedFor`].
    pub fn apply(&self, snapshot: &mut Snapshot) {
        let pid_wanted = |pid: u32| self.pids.is_empty() || self.pids.contains(&pid);
        let device_wanted = |device: u32| self.devices.is_empty() || self.devices.contains(&device);

        if let Ok(devices) = &mut snapshot.devices {
            devices.retain(|(index, _)| device_wanted(*index));
        }
        if let Ok(entries) = &mut snapshot.process_devices {
            entries.retain(|(key, _)| pid_wanted(key.pid()) && device_wanted(key.device()));
        }
        if let Ok(processes) = &mut snapshot.processes {
            let on_device = |pid, primary: u8| match &snapshot.process_devices {
                Ok(entries) => entries.iter().any(|(key, _)| key.pid() == pid),
                // Whether a process on several devices uses this one cannot be told then.
                Err(_) => self.devices.contains(&primary.into()),
            };
            processes.retain(|(pid, record)| pid_wanted(*pid) && (self.devices.is_empty() || on_device(*pid, record.gpu_device_primary)));
        }
        self.drop_maps(snapshot);
    }

    fn drop_maps(&self, snapshot: &mut Snapshot) {
        fn close<T>(part: &mut Result<T, Error>, map: Map, wanted: &[Map]) {
            if !wanted.is_empty() && !wanted.contains(&map) {
                *part = Err(Error::NotAskedFor { map: map.name() });
            }
        }
        close(&mut snapshot.meta, Map::Meta, &self.maps);
        close(&mut snapshot.devices, Map::Device, &self.maps);
        close(&mut snapshot.processes, Map::PerPid, &self.maps);
        close(&mut snapshot.process_devices, Map::PerPidPerDevice, &self.maps);
    }
}

#[cfg(test)]
mod tests {
    use gpu_types::keys::PidDeviceKey;
    use gpu_types::{GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};

    use super::*;

    fn snapshot() -> Snapshot {
        let process = |gpu_device_primary| GpuPidMetricsAggregated { gpu_device_primary, ..Default::default() };
        let keys = [(10, 0), (11, 1), (12, 0), (12, 1)].map(|(pid, device)| (PidDeviceKey::new(pid, device), GpuPidMetrics::default()));
        let mut snapshot = Snapshot::default();
        snapshot.meta = Ok(GpuMeta::default());
        snapshot.devices = Ok(vec![(0, GpuDeviceMetrics::default()), (1, GpuDeviceMetrics::default())]);
        snapshot.processes = Ok(vec![(10, process(0)), (11, process(1)), (12, process(0xFF))]);
        snapshot.process_devices = Ok(keys.to_vec());
        snapshot
    }

    #[track_caller]
    fn check(selection: &Selection, mut snapshot: Snapshot, devices: &[u32], processes: &[u32], keys: &[(u32, u32)]) {
        selection.apply(&mut snapshot);
        let indices = snapshot.devices.as_ref().map_or(Vec::new(), |entries| entries.iter().map(|entry| entry.0).collect());
        let pids = snapshot.processes.as_ref().map_or(Vec::new(), |entries| entries.iter().map(|entry| entry.0).collect());
        let found: Vec<_> =
            snapshot.process_devices.map_or(Vec::new(), |entries| entries.iter().map(|(key, _)| (key.pid(), key.device())).collect());
        assert_eq!((&indices[..], &pids[..], &found[..]), (devices, processes, keys));
    }

    #[test]
    fn nothing_said_is_everything() {
        check(&Selection::default(), snapshot(), &[0, 1], &[10, 11, 12], &[(10, 0), (11, 1), (12, 0), (12, 1)]);
    }

    #[test]
    fn processes_are_chosen_by_pid_and_by_the_devices_that_they_use() {
        let pids = Selection { pids: vec![12, 99], ..Default::default() };
        check(&pids, snapshot(), &[0, 1], &[12], &[(12, 0), (12, 1)]);
        let device = Selection { devices: vec![1], ..Default::default() };
        check(&device, snapshot(), &[1], &[11, 12], &[(11, 1), (12, 1)]);
        let both = Selection { pids: vec![10], devices: vec![1], ..Default::default() };
        check(&both, snapshot(), &[1], &[], &[]);
    }

    #[test]
    fn without_the_map_by_device_a_process_is_on_its_primary_device() {
        let mut unreadable = snapshot();
        unreadable.process_devices = Err(Error::NeverWritten { map: "gpu_per_pid_per_device" });
        let device = Selection { devices: vec![1], ..Default::default() };
        check(&device, unreadable, &[1], &[11], &[]);
    }

    #[test]
    fn a_map_that_is_not_wanted_still_tells_which_processes_use_a_device() {
        let selection = Selection { devices: vec![1], maps: vec![Map::PerPid], ..Default::default() };
        check(&selection, snapshot(), &[], &[11, 12], &[]);
        let mut snapshot = snapshot();
        selection.apply(&mut snapshot);
        assert!(matches!(snapshot.meta, Err(Error::NotAskedFor { map: "gpu_meta" })));
    }
}
