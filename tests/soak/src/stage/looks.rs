//! What must be true while nothing goes on, and at the end.

use std::time::Duration;

use e2e::processes::{children, is_alive, zombies};
use e2e::until;
use map_reader::{BridgeState, Order, boottime_now_ns};
use nix::sys::signal::Signal;

use super::{Ending, RECOVERY, Stage};
use crate::resources::{Process, Usage};

/// For what ends beside the daemon's own work.
const TIDYING: Duration = Duration::from_secs(2);

impl Stage {
    /// Holds the processes still until the maps show exactly them.
    pub(crate) fn settle(&mut self) {
        if !self.goes_on() {
            return;
        }
        self.findings.now("nothing".to_owned());
        for _ in 0..10 {
            self.change();
        }
        let expected = self.crowd.records(self.devices);
        let mut differences = Vec::new();
        let settled = until(RECOVERY, || {
            let records = self.reader.process_devices(Order::ByKey).unwrap_or_default();
            let found = records.iter().map(|(key, record)| (key.pid(), key.device(), record.used_gpu_memory)).collect();
            differences = expected.symmetric_difference(&found).copied().collect();
            (differences.is_empty() && self.is_well(0)).then_some(())
        });
        if settled.is_none() && self.goes_on() {
            let some: Vec<_> = differences.iter().take(5).collect();
            let found = format!(
                "{} of {} records differ after {RECOVERY:?}, for example (pid, device, memory) {some:?}; {}",
                differences.len(),
                expected.len(),
                self.describe()
            );
            self.findings.violation("the maps do not show what is there", found);
        }
        if until(TIDYING, || zombies(self.pid).is_empty().then_some(())).is_none() {
            self.findings.violation("children that were not buried", format!("{:?}", zombies(self.pid)));
        }
        let children = children(self.pid);
        if children.len() != 1 && self.goes_on() {
            self.findings.violation("other children than one sampler", format!("{children:?}"));
        }
    }

    /// What both processes use, as soon as that is no more than at the beginning; after a while what it is all the same.
    pub(crate) fn usage(&self, baseline: Option<&Usage>) -> Usage {
        let look = || Usage { daemon: Process::of(self.pid), sampler: self.sampler().map(Process::of).unwrap_or_default() };
        let usual = until(TIDYING, || Some(look()).filter(|usage| baseline.is_none_or(|baseline| usage.compare(baseline).is_empty())));
        usual.unwrap_or_else(look)
    }

    pub(crate) fn state(&self) -> Option<BridgeState> {
        self.reader.state().ok()
    }

    /// Ends the bridge: in time, and with nothing left behind.
    pub(crate) fn end(mut self, limit: Duration) -> Ending {
        self.findings.now("the end".to_owned());
        let Some(bridge) = self.bridge.take() else { unreachable!("it is set from the start") };
        let samplers = children(self.pid);
        let mut took = None;
        let log = if is_alive(self.pid) {
            let exit = bridge.stop(Signal::SIGTERM);
            if exit.code != Some(0) || exit.took > limit {
                self.findings.violation("the end after SIGTERM", format!("exit status {:?} after {:?}", exit.code, exit.took));
            }
            let left = self.pins.pins();
            if !left.is_empty() {
                self.findings.violation("pins that were left", format!("{left:?}"));
            }
            let shown = (self.reader.devices().map(|all| all.len()), self.reader.process_devices(Order::Unsorted).map(|all| all.len()));
            if !matches!(shown, (Ok(0), Ok(0))) {
                self.findings.violation("records that were left", format!("{shown:?} devices and processes"));
            }
            if until(TIDYING, || samplers.iter().all(|pid| !is_alive(*pid)).then_some(())).is_none() {
                self.findings.violation("a sampler that outlived its bridge", format!("{samplers:?}"));
            }
            took = Some(exit.took);
            exit.stderr
        } else {
            bridge.log()
        };
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            self.findings.violation("a panic", line.to_owned());
        }
        Ending { took, log_lines: log.lines().count(), changes: self.changes, recoveries: self.recoveries }
    }

    pub(super) fn describe(&self) -> String {
        let state = self.state();
        let phase = state.as_ref().map(|state| state.phase().to_string()).unwrap_or_default();
        let devices = self.reader.devices().map(|devices| devices.len()).unwrap_or_default();
        let meta = self.reader.meta().unwrap_or_default();
        let age = boottime_now_ns().unwrap_or(0).saturating_sub(meta.last_update_boottime_ns) / 1_000_000;
        let pins = self.pins.pins();
        format!("phase {phase}, {devices} of {} devices, gpu_meta {age} ms old, pins {pins:?}, sampler {:?}", self.devices, self.sampler())
    }
}
