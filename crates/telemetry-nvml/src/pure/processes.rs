//! The processes of one device: three lists united, and utilization joined to them.

use std::time::Duration;

use telemetry::{Now, Process, ProcessUtilization};

use super::{rhythm::Rhythm, stride::ListRow};

/// The list of a kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Compute,
    Graphics,
    Mps,
}

/// How long a list that cannot be read for the moment stands as it was last read.
const LIST_HOLD_NS: u64 = 2_000_000_000;
/// How long a sample is kept for a process that no list names: one that the next list will name, or, where no list can be read, the only
/// sign of a process.
const SAMPLE_KEPT_NS: u64 = 10_000_000_000;

#[derive(Debug, Default)]
struct List {
    rows: Vec<ListRow>,
    /// When it was last read; `None`: it cannot be read.
    read_ns: Option<u64>,
}

/// What is known of a device's processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    lists: [List; 3],
    /// By PID.
    samples: Vec<(u32, ProcessUtilization)>,
    /// PIDs that the lists named when they were last united.
    named: Vec<u32>,
    united: Vec<ListRow>,
    /// Between two samples of one process.
    process_rhythm: Rhythm,
    /// Between the newest samples of two readings.
    driver_rhythm: Rhythm,
    newest_ns: Option<u64>,
}

impl Processes {
    /// A list as it was read now: `fill` writes it into the emptied rows.
    pub(crate) fn read(&mut self, kind: ListKind, now: Now, fill: &[ListRow]) {
        let list = &mut self.lists[kind as usize];
        let was_read = list.read_ns.replace(now.boottime_ns).is_some();
        // As it is at most readings.
        if was_read && list.rows == fill {
            return;
        }
        list.rows.clear();
        list.rows.extend_from_slice(fill);
        self.unite();
    }

    /// A list could not be read this time; it stands for a while.
    pub(crate) fn failed(&mut self, kind: ListKind, now: Now) {
        let list = &self.lists[kind as usize];
        if list.read_ns.is_some_and(|read_ns| now.boottime_ns.saturating_sub(read_ns) > LIST_HOLD_NS) {
            self.unsupported(kind);
        }
    }

    /// A list that this device does not have.
    pub(crate) fn unsupported(&mut self, kind: ListKind) {
        self.lists[kind as usize] = List::default();
        self.unite();
    }

    /// Whether a list was read and named nobody.
    pub(crate) fn is_empty(&self, kind: ListKind) -> bool {
        let list = &self.lists[kind as usize];
        list.read_ns.is_some() && list.rows.is_empty()
    }

    /// Whether lists can be read and none names a process: then nothing has a utilization.
    pub(crate) fn nobody_is_listed(&self) -> bool {
        self.can_be_listed() && self.united.is_empty()
    }

    fn can_be_listed(&self) -> bool {
        self.lists.iter().any(|list| list.read_ns.is_some())
    }

    /// New samples by PID, one for each.
    pub(crate) fn sampled(&mut self, samples: &[(u32, ProcessUtilization)]) {
        let mut from = 0;
        for (pid, sample) in samples {
            match self.samples[from..].binary_search_by_key(pid, |(pid, _)| *pid) {
                Ok(at) => {
                    from += at;
                    let (_, last) = &mut self.samples[from];
                    if sample.sampled.boottime_ns() > last.sampled.boottime_ns() {
                        self.process_rhythm.learn(last.sampled.boottime_ns(), sample.sampled.boottime_ns());
                        *last = *sample;
                    }
                }
                Err(at) => {
                    from += at;
                    self.samples.insert(from, (*pid, *sample));
                }
            }
        }
        if let Some(newest) = samples.iter().map(|(_, sample)| sample.sampled.boottime_ns()).max() {
            if let Some(last) = self.newest_ns {
                self.driver_rhythm.learn(last, newest);
            }
            self.newest_ns = Some(newest);
        }
    }

    /// How often samples of one process have been seen to appear.
    pub(crate) fn process_period(&self) -> Option<Duration> {
        self.process_rhythm.period()
    }

    /// How often samples of any process have been seen to appear.
    pub(crate) fn driver_period(&self) -> Option<Duration> {
        self.driver_rhythm.period()
    }

    /// Writes the processes, by PID and instance.
    pub(crate) fn write(&mut self, now: Now, processes: &mut Vec<Process>) {
        let Self { named, samples, .. } = self;
        let is_recent = |sample: &ProcessUtilization| now.boottime_ns.saturating_sub(sample.sampled.boottime_ns()) <= SAMPLE_KEPT_NS;
        samples.retain(|(pid, sample)| is_recent(sample) || named.binary_search(pid).is_ok());
        processes.clear();
        if self.can_be_listed() {
            // Both are by PID, which several rows may share.
            let mut samples = self.samples.iter().peekable();
            processes.extend(self.united.iter().map(|row| {
                while samples.next_if(|(pid, _)| *pid < row.pid).is_some() {}
                Process {
                    pid: row.pid,
                    mig_instance: row.mig_instance,
                    used_memory_bytes: row.used_memory_bytes,
                    utilization: samples.peek().filter(|(pid, _)| *pid == row.pid).map(|(_, sample)| *sample),
                }
            }));
        } else {
            processes.extend(self.samples.iter().map(|(pid, sample)| Process {
                pid: *pid,
                mig_instance: None,
                used_memory_bytes: None,
                utilization: Some(*sample),
            }));
        }
    }

    /// One row for each PID and GPU instance. A process that stands in several lists has the same memory in each, so the maximum counts; what
    /// it has in several compute instances of one GPU instance is added up.
    fn unite(&mut self) {
        self.united.clear();
        for list in &self.lists {
            self.united.extend_from_slice(&list.rows);
        }
        let in_compute_instance = |row: &ListRow| (row.pid, row.mig_instance, row.compute_instance);
        self.united.sort_unstable_by_key(in_compute_instance);
        self.united.dedup_by(|later, kept| {
            let same = in_compute_instance(later) == in_compute_instance(kept);
            if same {
                kept.used_memory_bytes = kept.used_memory_bytes.max(later.used_memory_bytes);
            }
            same
        });
        self.united.dedup_by(|later, kept| {
            let same = (later.pid, later.mig_instance) == (kept.pid, kept.mig_instance);
            if same {
                kept.used_memory_bytes = match (kept.used_memory_bytes, later.used_memory_bytes) {
                    (Some(one), Some(other)) => Some(one.saturating_add(other)),
                    (one, other) => one.or(other),
                };
            }
            same
        });
        // A process that left takes its sample along: the next one with its PID is another.
        let Self { named, samples, united, .. } = self;
        samples.retain(|(pid, _)| named.binary_search(pid).is_err() || united.binary_search_by_key(pid, |row| row.pid).is_ok());
        named.clear();
        named.extend(united.iter().map(|row| row.pid));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use telemetry::Stamp;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const KINDS: [ListKind; 3] = [ListKind::Compute, ListKind::Graphics, ListKind::Mps];

    const fn at(seconds: u64) -> Now {
        Now { boottime_ns: seconds * SECOND_NS, clock_offset_ns: 1_700_000_000_000_000_000 }
    }

    const fn row(pid: u32, used_memory_bytes: Option<u64>, mig_instance: Option<u8>) -> ListRow {
        ListRow { pid, used_memory_bytes, mig_instance, compute_instance: mig_instance }
    }

    fn sample(pid: u32, seconds: u64, sm_pct: u32) -> [(u32, ProcessUtilization); 1] {
        [(pid, ProcessUtilization { sampled: at(seconds).stamp(), sm_pct, ..ProcessUtilization::default() })]
    }

    /// PID, memory, instance, SM utilization.
    type Written = (u32, Option<u64>, Option<u8>, Option<u32>);

    #[track_caller]
    fn check(processes: &mut Processes, now: Now, expected: &[Written]) {
        let mut written = Vec::new();
        processes.write(now, &mut written);
        let written: Vec<_> = written
            .iter()
            .map(|process| (process.pid, process.used_memory_bytes, process.mig_instance, process.utilization.map(|used| used.sm_pct)))
            .collect();
        assert_eq!(written, expected);
    }

    #[test]
    fn lists_are_united_with_the_maximum_of_memory() {
        let mut processes = Processes::default();
        processes.read(ListKind::Compute, at(1), &[row(9, Some(100), None), row(7, None, None), row(5, None, None)]);
        processes.read(ListKind::Graphics, at(1), &[row(9, Some(300), None), row(7, Some(1), None)]);
        processes.read(ListKind::Mps, at(1), &[row(9, Some(200), None), row(11, Some(4), None)]);
        check(
            &mut processes,
            at(1),
            &[(5, None, None, None), (7, Some(1), None, None), (9, Some(300), None, None), (11, Some(4), None, None)],
        );
    }

    #[test]
    fn a_process_in_two_instances_is_two_rows() {
        let mut processes = Processes::default();
        processes.read(ListKind::Compute, at(1), &[row(9, Some(100), Some(2)), row(9, Some(50), Some(1))]);
        check(&mut processes, at(1), &[(9, Some(50), Some(1), None), (9, Some(100), Some(2), None)]);
    }

    #[test]
    fn the_memory_of_two_compute_instances_is_added_and_that_of_two_lists_is_not() {
        let mut processes = Processes::default();
        let in_compute_instance = |memory, compute_instance| ListRow { compute_instance, ..row(9, memory, Some(1)) };
        let both = [in_compute_instance(Some(100), Some(0)), in_compute_instance(Some(50), Some(1))];
        processes.read(ListKind::Compute, at(1), &both);
        processes.read(ListKind::Mps, at(1), &both);
        check(&mut processes, at(1), &[(9, Some(150), Some(1), None)]);
        processes.read(ListKind::Mps, at(1), &[in_compute_instance(None, Some(2))]);
        check(&mut processes, at(1), &[(9, Some(150), Some(1), None)]);
    }

    #[test]
    fn a_sample_stays_with_its_process_and_leaves_with_it() {
        let mut processes = Processes::default();
        processes.read(ListKind::Compute, at(1), &[row(9, Some(1), None)]);
        processes.sampled(&sample(9, 1, 40));
        check(&mut processes, at(3_000), &[(9, Some(1), None, Some(40))]);
        processes.read(ListKind::Compute, at(3_001), &[]);
        check(&mut processes, at(3_001), &[]);
        processes.read(ListKind::Compute, at(3_002), &[row(9, Some(1), None)]);
        check(&mut processes, at(3_002), &[(9, Some(1), None, None)]);
    }

    #[test]
    fn a_sample_of_a_process_that_no_list_names_is_not_published_and_waits_for_it() {
        let mut processes = Processes::default();
        processes.read(ListKind::Compute, at(1), &[]);
        processes.sampled(&sample(9, 1, 40));
        check(&mut processes, at(2), &[]);
        processes.read(ListKind::Compute, at(2), &[row(9, Some(1), None)]);
        check(&mut processes, at(2), &[(9, Some(1), None, Some(40))]);
    }

    #[test]
    fn where_no_list_can_be_read_samples_make_processes_for_ten_seconds() {
        let mut processes = Processes::default();
        KINDS.into_iter().for_each(|kind| processes.unsupported(kind));
        processes.sampled(&sample(9, 1, 40));
        check(&mut processes, at(11), &[(9, None, None, Some(40))]);
        check(&mut processes, at(12), &[]);
    }

    #[test]
    fn a_list_that_fails_stands_for_two_seconds() {
        let mut processes = Processes::default();
        processes.read(ListKind::Graphics, at(1), &[]);
        processes.read(ListKind::Compute, at(1), &[row(9, Some(1), None)]);
        processes.failed(ListKind::Compute, at(3));
        check(&mut processes, at(3), &[(9, Some(1), None, None)]);
        processes.failed(ListKind::Compute, at(4));
        check(&mut processes, at(4), &[]);
    }

    #[test]
    fn the_period_is_that_of_one_process() {
        let mut processes = Processes::default();
        for second in 0..8 {
            processes.sampled(&sample(9, second * 2, 1));
            processes.sampled(&sample(8, second * 2 + 1, 1));
        }
        assert_eq!(processes.process_period(), Some(Duration::from_secs(2)));
        assert_eq!(processes.driver_period(), Some(Duration::from_secs(1)));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Read(usize, Vec<(u32, Option<u64>)>),
        Failed(usize),
        Unsupported(usize),
        Sampled(u32, u32),
        Later(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0_usize..3, prop::collection::vec((1_u32..6, prop::option::of(0_u64..100)), 0..6))
                .prop_map(|(kind, rows)| Event::Read(kind, rows)),
            (0_usize..3).prop_map(Event::Failed),
            (0_usize..3).prop_map(Event::Unsupported),
            (1_u32..6, 0_u32..=100).prop_map(|(pid, pct)| Event::Sampled(pid, pct)),
            (0_u64..20).prop_map(Event::Later),
        ]
    }

    proptest! {
        #[test]
        fn each_process_is_written_once_and_only_if_a_list_names_it(events in prop::collection::vec(event(), 0..60)) {
            let mut processes = Processes::default();
            let mut seconds = 1;
            for event in events {
                match event {
                    Event::Read(kind, rows) => {
                        let rows: Vec<_> = rows.into_iter().map(|(pid, memory)| row(pid, memory, None)).collect();
                        processes.read(KINDS[kind], at(seconds), &rows);
                    }
                    Event::Failed(kind) => processes.failed(KINDS[kind], at(seconds)),
                    Event::Unsupported(kind) => processes.unsupported(KINDS[kind]),
                    Event::Sampled(pid, pct) => processes.sampled(&sample(pid, seconds, pct)),
                    Event::Later(by) => seconds += by,
                }
                let mut written = Vec::new();
                processes.write(at(seconds), &mut written);
                prop_assert!(written.is_sorted_by(|one, other| one.pid < other.pid));
                let listed = |pid| processes.lists.iter().any(|list| list.rows.iter().any(|row| row.pid == pid));
                for process in &written {
                    prop_assert!(!processes.can_be_listed() || listed(process.pid));
                    let sampled = process.utilization.map_or(Stamp::default(), |used| used.sampled);
                    prop_assert!(sampled.realtime_ns <= at(seconds).realtime_ns());
                }
            }
        }
    }
}
