//! Where the lanes put their readings and the newest picture is taken from.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::eventfd::{EfdFlags, EventFd};

use telemetry::Identity;

use super::{DeviceReading, Edition, Round};
use crate::grid;

/// When the ticks are: absolute deadlines on the monotonic clock, counted from 0. The first is at the epoch, whenever that is; the others are a whole
/// number of intervals after a moment that lies `lead` before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) epoch: Instant,
    pub(super) interval: Duration,
    /// Less than an interval.
    pub(super) lead: Duration,
}

/// How long the first round waits for every lane: first answers take longer, and a first picture ought to be whole.
const FIRST_GRACE: Duration = Duration::from_secs(1);

/// How long after a lane was begun another thread is called to those that are due: a sixteenth of the interval within these bounds. Below the
/// shorter one it is the scheduler that is late, not a device.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);
const LONGEST_PATIENCE: Duration = Duration::from_millis(6);
const QUEUEING_PATIENCE: Duration = Duration::from_millis(20);

/// A round that is late by so much was kept by nobody: the process, or the machine, stood still, and so did the lanes.
const PAUSE: Duration = Duration::from_secs(1);

impl Schedule {
    /// Begins now, and goes on with everybody's of that interval.
    pub(super) fn begin(interval: Duration) -> Self {
        let (epoch, lead) = grid::place(interval);
        Self { epoch, interval, lead }
    }

    /// When `tick` begins.
    pub(super) fn start(&self, tick: u64) -> Instant {
        let nanos = (self.interval.as_nanos() as u64).saturating_mul(tick);
        self.epoch + Duration::from_nanos(nanos).saturating_sub(self.lead)
    }

    /// How long lanes may be due before another thread is called to them.
    pub(super) fn patience(&self) -> Duration {
        (self.interval / 16).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    /// The same where lanes queue for one driver, and another thread helps only if a call hangs.
    pub(super) fn long_patience(&self) -> Duration {
        (self.interval / 5).clamp(SHORTEST_PATIENCE, QUEUEING_PATIENCE)
    }

    /// How long a round waits for lanes that are late.
    pub(super) fn grace(&self) -> Duration {
        (self.interval / 4).min(Duration::from_millis(25))
    }

    /// Until when a round waits for lanes that are late.
    pub(super) fn round_deadline(&self, tick: u64) -> Instant {
        self.start(tick) + if tick == 0 { FIRST_GRACE } else { self.grace() }
    }

    /// The first tick that begins after `now`: what was missed is skipped, not made up.
    pub(super) fn next_tick(&self, now: Instant) -> u64 {
        let passed = (now.saturating_duration_since(self.epoch) + self.lead).as_nanos();
        (passed / self.interval.as_nanos().max(1)) as u64 + 1
    }
}

/// Where lanes put their readings.
pub(super) trait Deliver: fmt::Debug + Send + Sync {
    /// A lane is done with `tick`, which it began at `started_boottime_ns`.
    fn deliver(&self, lane: usize, tick: u64, started_boottime_ns: u64, reading: &DeviceReading);

    /// A lane's device is found to be this one. To be told before what it reads as such.
    fn identified(&self, identity: Identity);

    /// A lane found the whole source gone.
    fn source_gone(&self, what: String);
}

/// The newest reading of each lane, and when they are a round.
#[derive(Debug)]
pub(super) struct Collection {
    schedule: Schedule,
    slots: Vec<Slot>,
    /// The tick that is being collected.
    tick: u64,
    /// Ticks without a round.
    skipped: u64,
    /// When the last round with news was begun.
    started_boottime_ns: u64,
    gone: Option<String>,
}

#[derive(Debug)]
struct Slot {
    newest: DeviceReading,
    /// The tick of the newest delivery.
    tick: Option<u64>,
    /// `CLOCK_BOOTTIME` at which that delivery's tick began.
    started_boottime_ns: u64,
    /// Delivered since the last round was taken.
    is_new: bool,
    /// Of its processes in the last round.
    taken: Option<Edition>,
    /// Expected to deliver in time: it did so last time.
    healthy: bool,
}

/// A round but for its readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) started_boottime_ns: u64,
    pub(super) has_news: bool,
    pub(super) skipped_ticks: u64,
}

impl Collection {
    pub(super) fn new(schedule: Schedule, devices: Vec<DeviceReading>) -> Self {
        let slots = devices
            .into_iter()
            .map(|newest| Slot { newest, tick: None, started_boottime_ns: 0, is_new: false, taken: None, healthy: true })
            .collect();
        Self { schedule, slots, tick: 0, skipped: 0, started_boottime_ns: 0, gone: None }
    }

    /// Takes a reading; whether the round is complete.
    pub(super) fn deliver(&mut self, lane: usize, tick: u64, started_boottime_ns: u64, reading: &DeviceReading) -> bool {
        let slot = &mut self.slots[lane];
        slot.newest.update_from(reading);
        slot.tick = Some(tick);
        slot.started_boottime_ns = started_boottime_ns;
        slot.is_new = true;
        slot.healthy = true;
        self.is_complete()
    }

    pub(super) fn source_gone(&mut self, what: String) {
        self.gone.get_or_insert(what);
    }

    /// What happened to the source, when it is gone.
    pub(super) fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    /// When somebody has to look whether lanes were begun in the tick that is being collected.
    pub(super) fn alarm(&self) -> Instant {
        self.schedule.start(self.tick) + self.schedule.patience()
    }

    /// When the round that is being collected must wait no longer.
    pub(super) fn deadline(&self) -> Instant {
        self.schedule.round_deadline(self.tick)
    }

    /// Every lane that is expected in time has delivered the current tick, and at least one has.
    pub(super) fn is_complete(&self) -> bool {
        let delivered = |slot: &Slot| slot.tick.is_some_and(|tick| tick >= self.tick);
        self.slots.iter().any(delivered) && self.slots.iter().all(|slot| !slot.healthy || delivered(slot))
    }

    /// Whether the round's time is up at `now`, complete or not.
    pub(super) fn is_overdue(&mut self, now: Instant) -> bool {
        let deadline = self.deadline();
        if now < deadline + PAUSE {
            return now >= deadline;
        }
        // What there is now is of the few lanes that woke up first: the next tick is given to all.
        let next = self.schedule.next_tick(now);
        self.skipped += next - self.tick;
        self.tick = next;
        false
    }

    /// Ends the round and begins the next one. Its readings are those that [`readings`](Self::readings) gives until [`taken`](Self::taken).
    pub(super) fn take(&mut self, now: Instant) -> Head {
        let answered = |slot: &&Slot| slot.is_new && !slot.newest.lost;
        let newest_tick = self.slots.iter().filter(answered).filter_map(|slot| slot.tick).max();
        let started = |slot: &&Slot| answered(slot) && slot.tick == newest_tick;
        let started_boottime_ns = self.slots.iter().filter(started).map(|slot| slot.started_boottime_ns).min();
        self.started_boottime_ns = started_boottime_ns.unwrap_or(self.started_boottime_ns);
        for slot in &mut self.slots {
            slot.healthy = slot.tick.is_some_and(|tick| tick >= self.tick);
        }
        // The next round is the one whose time is not up yet.
        let mut next = self.tick + 1;
        if now >= self.schedule.round_deadline(next) {
            next = self.schedule.next_tick(now).max(next);
        }
        self.skipped += next - self.tick - 1;
        self.tick = next;
        Head { started_boottime_ns: self.started_boottime_ns, has_news: newest_tick.is_some(), skipped_ticks: self.skipped }
    }

    /// The newest readings, and whether the processes of each are those of the last round.
    pub(super) fn readings(&self) -> impl ExactSizeIterator<Item = (&DeviceReading, bool)> {
        self.slots.iter().map(|slot| (&slot.newest, slot.taken.is_some() && slot.taken == slot.newest.edition))
    }

    /// The round has been handed on.
    pub(super) fn taken(&mut self) {
        for slot in &mut self.slots {
            slot.is_new = false;
            slot.taken = slot.newest.edition;
        }
    }

    fn take_into(&mut self, now: Instant, round: &mut Round) {
        let head = self.take(now);
        round.started_boottime_ns = head.started_boottime_ns;
        round.has_news = head.has_news;
        round.skipped_ticks = head.skipped_ticks;
        round.devices.resize_with(self.slots.len(), DeviceReading::default);
        for (slot, device) in self.slots.iter().zip(&mut round.devices) {
            device.copy_from(&slot.newest);
        }
        self.taken();
    }
}

/// A collection from which another thread of this process takes its rounds.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    ready: EventFd,
}

#[derive(Debug)]
struct State {
    collection: Collection,
    /// Devices that were found to be others, not taken yet.
    identified: VecDeque<Identity>,
    /// A round was announced and not taken yet.
    is_announced: bool,
    /// How often the descriptor was or will be written, and how many of these have been read: it is written when the lock is free again, which may be
    /// after its round was taken.
    written: u64,
    read: u64,
}

impl Board {
    pub(super) fn new(schedule: Schedule, devices: Vec<DeviceReading>) -> nix::Result<Self> {
        Ok(Self {
            state: Mutex::new(State {
                collection: Collection::new(schedule, devices),
                identified: VecDeque::new(),
                is_announced: false,
                written: 0,
                read: 0,
            }),
            ready: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    pub(super) fn gone(&self) -> Option<String> {
        self.lock().collection.gone().map(str::to_owned)
    }

    /// A device that was found to be another than was said.
    pub(super) fn identified(&self) -> Option<Identity> {
        self.lock().identified.pop_front()
    }

    /// When the round that is being collected must wait no longer.
    pub(super) fn deadline(&self) -> Instant {
        self.lock().collection.deadline()
    }

    /// Takes the round if it is complete or its time is up at `now`; false when neither.
    pub(super) fn take(&self, now: Instant, round: &mut Round) -> bool {
        let mut state = self.lock();
        if state.read < state.written {
            state.read += self.ready.read().unwrap_or(0);
        }
        if !std::mem::take(&mut state.is_announced) && !state.collection.is_overdue(now) {
            return false;
        }
        state.collection.take_into(now, round);
        let is_complete = state.collection.is_complete();
        self.announce_if(is_complete, state);
        true
    }

    /// The one who waits is woken up when the lock is free: it wants it at once.
    fn announce_if(&self, is_complete: bool, mut state: MutexGuard<'_, State>) {
        let is_news = is_complete && !std::mem::replace(&mut state.is_announced, true);
        state.written += u64::from(is_news);
        drop(state);
        if is_news {
            // The counter is far from its end, so that the write cannot fail for want of room.
            let _ = self.ready.write(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A lane that panicked while it copied leaves a reading that the next delivery overwrites.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliver for Board {
    fn deliver(&self, lane: usize, tick: u64, started_boottime_ns: u64, reading: &DeviceReading) {
        let mut state = self.lock();
        let is_complete = state.collection.deliver(lane, tick, started_boottime_ns, reading);
        self.announce_if(is_complete, state);
    }

    /// Taken with the round that follows.
    fn identified(&self, identity: Identity) {
        self.lock().identified.push_back(identity);
    }

    fn source_gone(&self, what: String) {
        let mut state = self.lock();
        state.collection.source_gone(what);
        self.announce_if(true, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    struct Fixture {
        board: Board,
        epoch: Instant,
        round: Round,
    }

    impl Fixture {
        fn new(lanes: u32) -> Self {
            let epoch = Instant::now();
            let devices = (0..lanes).map(|index| DeviceReading { index, ..DeviceReading::default() }).collect();
            let board = Board::new(Schedule { epoch, interval: INTERVAL, lead: Duration::ZERO }, devices).unwrap();
            Self { board, epoch, round: Round::default() }
        }

        fn deliver(&self, lane: usize, tick: u64, boottime_ns: u64) {
            let reading = DeviceReading { index: lane as u32, answered_boottime_ns: boottime_ns, ..DeviceReading::default() };
            self.board.deliver(lane, tick, boottime_ns, &reading);
        }

        fn take(&mut self, at_ms: u64) -> bool {
            self.board.take(self.epoch + Duration::from_millis(at_ms), &mut self.round)
        }

        fn editions(&self) -> Vec<Option<Edition>> {
            self.round.devices.iter().map(|device| device.edition).collect()
        }

        fn answered(&self) -> Vec<u64> {
            self.round.devices.iter().map(|device| device.answered_boottime_ns).collect()
        }
    }

    #[test]
    fn a_round_is_complete_when_every_lane_has_delivered() {
        let mut fixture = Fixture::new(2);
        fixture.deliver(1, 0, 11);
        assert!(!fixture.take(1));
        fixture.deliver(0, 0, 10);
        assert!(fixture.take(2));
        assert_eq!((fixture.round.started_boottime_ns, fixture.answered()), (10, vec![10, 11]));
        assert!(!fixture.take(3), "taken once");
    }

    #[test]
    fn a_late_lane_holds_the_round_until_its_deadline_and_the_next_ones_not_at_all() {
        let mut fixture = Fixture::new(2);
        fixture.deliver(0, 0, 10);
        fixture.deliver(1, 0, 10);
        assert!(fixture.take(1));
        fixture.deliver(0, 1, 110);
        assert!(!fixture.take(124));
        assert!(fixture.take(125));
        assert_eq!(fixture.answered(), [110, 10]);
        fixture.deliver(0, 2, 210);
        assert!(fixture.take(201), "the late lane is not waited for");
        // Its late delivery goes out with the next round, which waits for it again.
        fixture.deliver(1, 1, 111);
        fixture.deliver(0, 3, 310);
        assert!(!fixture.take(310));
        assert!(fixture.take(325));
        assert_eq!((fixture.round.started_boottime_ns, fixture.answered()), (310, vec![310, 111]));
    }

    #[test]
    fn a_round_s_editions_tell_whose_processes_are_those_of_the_round_before() {
        let mut fixture = Fixture::new(2);
        let mut reading = DeviceReading { index: 1, answered_boottime_ns: 10, ..DeviceReading::default() };
        reading.reading.processes.push(telemetry::Process { pid: 7, ..telemetry::Process::default() });
        let mut before = Vec::new();
        for tick in 0..2 {
            fixture.deliver(0, tick, 10);
            fixture.board.deliver(1, tick, 10, &reading);
            assert!(fixture.take(tick * 100 + 1));
            let editions = fixture.editions();
            assert!(editions[0] != editions[1] && editions.iter().all(Option::is_some));
            assert!(tick == 0 || editions == before, "{editions:?} after {before:?}");
            before = editions;
            assert_eq!(fixture.round.devices[1].reading.processes, reading.reading.processes);
        }
        // Two deliveries between two rounds: changed, and back again, or not at all.
        let other = DeviceReading { index: 1, answered_boottime_ns: 10, ..DeviceReading::default() };
        fixture.deliver(0, 2, 10);
        fixture.board.deliver(1, 2, 10, &other);
        fixture.board.deliver(1, 2, 10, &other);
        assert!(fixture.take(201));
        let editions = fixture.editions();
        assert!(editions[0] == before[0] && editions[1] != before[1]);
        assert!(fixture.round.devices[1].reading.processes.is_empty());
    }

    #[test]
    fn a_lost_device_s_last_whole_answer_stands() {
        let mut fixture = Fixture::new(1);
        let process = |pid| telemetry::Process { pid, ..telemetry::Process::default() };
        let mut reading = DeviceReading { answered_boottime_ns: 10, read: Some(telemetry::Stamp::default()), ..DeviceReading::default() };
        reading.reading.processes.push(process(7));
        fixture.board.deliver(0, 0, 10, &reading);
        assert!(fixture.take(1));
        let before = fixture.editions();
        // Lost in the middle of its next answer: some of it is new, and none of that counts.
        let mut half =
            DeviceReading { lost: true, answered_boottime_ns: 110, time_in_source_ns: 5, read: None, ..DeviceReading::default() };
        half.reading.processes.push(process(8));
        half.reading.metrics.sm_util_pct = Some(1);
        fixture.board.deliver(0, 1, 110, &half);
        assert!(fixture.take(101));
        let device = &fixture.round.devices[0];
        assert_eq!((device.lost, device.time_in_source_ns, device.answered_boottime_ns, device.read), (true, 5, 10, reading.read));
        assert_eq!((&device.reading.processes, device.reading.metrics.sm_util_pct), (&reading.reading.processes, None));
        assert_eq!(fixture.editions(), before);
    }

    #[test]
    fn devices_found_to_be_others_are_told_in_that_order() {
        let board = Fixture::new(1).board;
        for uuid in ["first", "second"] {
            Deliver::identified(&board, Identity { uuid: uuid.to_owned(), ..Identity::default() });
        }
        assert_eq!(
            [(); 3].map(|()| Board::identified(&board).map(|identity| identity.uuid)),
            [Some("first".to_owned()), Some("second".to_owned()), None]
        );
    }

    #[test]
    fn a_round_without_any_delivery_has_no_news() {
        let mut fixture = Fixture::new(1);
        fixture.deliver(0, 0, 10);
        assert!(fixture.take(1) && fixture.round.has_news);
        assert!(fixture.take(125) && !fixture.round.has_news);
        assert_eq!(fixture.answered(), [10]);
    }

    #[test]
    fn a_lost_device_is_not_waited_for_and_is_no_news() {
        let mut fixture = Fixture::new(1);
        let lost = DeviceReading { lost: true, ..DeviceReading::default() };
        fixture.board.deliver(0, 0, 10, &lost);
        assert!(fixture.take(1));
        assert!(!fixture.round.has_news && fixture.round.devices[0].lost);
    }

    #[test]
    fn ticks_that_nobody_collected_are_skipped_at_once() {
        let mut fixture = Fixture::new(1);
        fixture.deliver(0, 0, 10);
        assert!(fixture.take(1));
        fixture.deliver(0, 70, 7_010);
        assert!(fixture.take(7_010));
        assert_eq!(fixture.round.skipped_ticks, 69);
        assert!(!fixture.take(7_100), "no burst of ticks");
        fixture.deliver(0, 71, 7_110);
        assert!(fixture.take(7_101));
    }

    #[test]
    fn after_a_pause_every_lane_is_given_the_time_of_a_tick() {
        let mut fixture = Fixture::new(2);
        fixture.deliver(0, 0, 10);
        fixture.deliver(1, 0, 10);
        assert!(fixture.take(1));
        fixture.deliver(1, 50, 5_020);
        assert!(!fixture.take(5_021), "the other lane has hardly woken up");
        fixture.deliver(0, 51, 5_110);
        fixture.deliver(1, 51, 5_111);
        assert!(fixture.take(5_112));
        assert_eq!((fixture.answered(), fixture.round.skipped_ticks), (vec![5_110, 5_111], 50));
    }

    #[test]
    fn missed_ticks_are_skipped_by_the_schedule() {
        let schedule = Schedule { epoch: Instant::now(), interval: INTERVAL, lead: Duration::ZERO };
        assert_eq!(schedule.next_tick(schedule.epoch), 1);
        assert_eq!(schedule.next_tick(schedule.epoch + Duration::from_millis(730)), 8);
    }

    #[test]
    fn the_first_tick_is_at_once_and_the_others_are_where_the_intervals_are() {
        let epoch = Instant::now();
        let schedule = Schedule { epoch, interval: INTERVAL, lead: Duration::from_millis(70) };
        let at = [0, 1, 2].map(|tick| (schedule.start(tick) - epoch).as_millis());
        assert_eq!(at, [0, 30, 130]);
        assert_eq!([0, 29, 30, 129, 130].map(|ms| schedule.next_tick(epoch + Duration::from_millis(ms))), [1, 1, 2, 2, 3]);
        assert_eq!(schedule.round_deadline(0), epoch + FIRST_GRACE);
    }
}
