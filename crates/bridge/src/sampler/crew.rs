//! The threads that work through the lanes: one where devices answer at once, as many as there are lanes where they do not.
//!
//! A tick in which one thread asks all devices in turn costs one wake-up instead of one a device. What keeps a device that hangs from holding
//! up the others is that nobody waits for it: whoever finds that lanes have been due for too long calls another thread to them.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::board::{Deliver, Schedule};
use crate::{
    clock::Clock,
    lane::{Lane, Step},
};

/// A thread's stack: a source's frames are small, and 16 threads ought not to look like 32 MiB of address space.
const STACK_BYTES: usize = 512 << 10;
/// A lane that waited for so long for its turn to call the driver shows that more threads only wait.
const LONG_WAIT: Duration = Duration::from_micros(500);
/// So long that is believed.
const QUEUEING_HOLDS: Duration = Duration::from_secs(5);
/// Who was not called for so long is let go: many are needed when a source is opened, and few after that …
const LONGEST_IDLE: Duration = Duration::from_secs(5);
/// … but the last one stays longer: where devices take their time, one is called again and again.
const LAST_LONGEST_IDLE: Duration = Duration::from_secs(60);

/// The lanes and those who work on them.
#[derive(Debug)]
pub(super) struct Crew {
    schedule: Schedule,
    board: Arc<dyn Deliver>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Somebody is needed for a lane that is due, or it is over.
    called: Condvar,
    /// The one who watches the time has to look at it anew, or it is over.
    watched: Condvar,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    /// `None` while somebody works on it, and for good when its source is gone.
    lanes: Vec<Option<Place>>,
    stopping: bool,
    workers: usize,
    /// Of these, who wait to be called.
    idle: usize,
    /// Until when one waits for the next lane to be due; `None`: nobody does.
    watching: Option<Instant>,
    /// When a lane was last begun, or another thread called.
    progress: Instant,
    /// Until when lanes are known to queue for their driver.
    queueing_until: Instant,
    /// That no more threads can be had has been said.
    is_short_handed: bool,
}

#[derive(Debug)]
struct Place {
    lane: Lane,
    tick: u64,
}

impl Crew {
    /// Begins with one thread.
    ///
    /// # Errors
    /// When that cannot be started.
    pub(super) fn start(
        lanes: Vec<Lane>,
        schedule: Schedule,
        board: Arc<impl Deliver + 'static>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Arc<Self>> {
        let lanes: Vec<_> = lanes.into_iter().map(|lane| Some(Place { lane, tick: 0 })).collect();
        let is_empty = lanes.is_empty();
        let state = State {
            lanes,
            stopping: false,
            workers: 0,
            idle: 0,
            watching: None,
            progress: schedule.epoch,
            queueing_until: schedule.epoch,
            is_short_handed: false,
        };
        let (called, watched, ended) = Default::default();
        let crew = Arc::new(Self { schedule, board, clock, state: Mutex::new(state), called, watched, ended });
        if !is_empty {
            crew.hire(&mut crew.lock())?;
        }
        Ok(crew)
    }

    /// When to [`attend`](Self::attend): lanes will have been due for too long by then, unless somebody begins them.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let state = self.lock();
        let due = state.earliest()?.0;
        Some(self.schedule.start(due).max(state.progress) + self.patience(&state))
    }

    /// Calls another thread when lanes have been due for too long and nobody begins them: whoever should hangs in a device.
    pub(super) fn attend(self: &Arc<Self>, now: Instant) {
        let mut state = self.lock();
        let patience = self.patience(&state);
        let overdue = state.earliest().is_some_and(|(tick, _)| now >= self.schedule.start(tick).max(state.progress) + patience);
        if overdue {
            self.call(&mut state, now);
        }
    }

    /// Lets everybody go, waits for that not longer than `limit`, and returns how many hang in their device.
    pub(super) fn end(&self, limit: Duration) -> usize {
        let mut state = self.lock();
        state.stopping = true;
        self.called.notify_all();
        self.watched.notify_all();
        let waited = self.ended.wait_timeout_while(state, limit, |state| state.workers > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.workers
    }

    /// Where lanes queue for one driver, another thread helps only if a call hangs.
    fn patience(&self, state: &State) -> Duration {
        if state.progress < state.queueing_until { self.schedule.long_patience() } else { self.schedule.patience() }
    }

    /// Wakes somebody who is idle, or takes one on, unless there is one for each lane.
    fn call(self: &Arc<Self>, state: &mut State, now: Instant) {
        state.progress = now;
        if state.idle > 0 {
            self.called.notify_one();
        } else if state.workers < state.lanes.len()
            && let Err(error) = self.hire(state)
            && !std::mem::replace(&mut state.is_short_handed, true)
        {
            log::warn!("no further thread for the lanes: {error}; a device that hangs holds up others");
        }
    }

    fn hire(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let crew = Arc::clone(self);
        let body = move || {
            let _leaving = Leaving(&crew);
            crew.work();
        };
        // Not joined: `end` waits for those who can end, and who hangs is left behind.
        drop(thread::Builder::new().name(format!("lanes-{}", state.workers)).stack_size(STACK_BYTES).spawn(body)?);
        state.workers += 1;
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        // Since when this thread has worked without a pause: being late by itself is no sign of lanes that take their time.
        let mut at_work_since = None;
        while !state.stopping {
            let now = Instant::now();
            let next = state.earliest().map(|(tick, index)| (self.schedule.start(tick), index));
            match next {
                Some((start, index)) if start <= now => {
                    let Some(mut place) = state.lanes[index].take() else { continue };
                    // Before the round is late.
                    let is_long = now >= *at_work_since.get_or_insert(now) + self.schedule.grace() / 2;
                    if is_long && now >= state.queueing_until && state.earliest().is_some_and(|(tick, _)| self.schedule.start(tick) <= now)
                    {
                        self.call(&mut state, now);
                    }
                    state.progress = now;
                    drop(state);
                    let goes_on = self.step(index, &mut place);
                    state = self.lock();
                    if place.lane.waited() >= LONG_WAIT {
                        state.queueing_until = Instant::now() + QUEUEING_HOLDS;
                    }
                    if goes_on {
                        let start = self.schedule.start(place.tick);
                        state.lanes[index] = Some(place);
                        if state.watching.is_some_and(|until| start < until) {
                            self.watched.notify_one();
                        }
                    }
                }
                next => {
                    at_work_since = None;
                    let needed;
                    (state, needed) = self.wait(state, next.map(|(start, _)| start), now);
                    if !needed {
                        return;
                    }
                }
            }
        }
    }

    /// One waits for the next lane to be due, the others to be called; false when that did not happen for long.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, start: Option<Instant>, now: Instant) -> (MutexGuard<'a, State>, bool) {
        match start {
            Some(start) if state.watching.is_none() => {
                state.watching = Some(start);
                let waited = self.watched.wait_timeout(state, start.saturating_duration_since(now));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.watching = None;
                (state, true)
            }
            _ => {
                let limit = if state.idle == 0 { LAST_LONGEST_IDLE } else { LONGEST_IDLE };
                state.idle += 1;
                let (mut state, timeout) = self.called.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                // Somebody else watches the time, or will when its lane is done; if it hangs, there is the alarm.
                (state, !timeout.timed_out())
            }
        }
    }

    /// One tick of a lane; false when its source is gone.
    fn step(&self, index: usize, place: &mut Place) -> bool {
        let started_boottime_ns = self.clock.boottime_ns();
        match place.lane.step(self.clock.as_ref()) {
            Step::Done => {
                if let Some(identity) = place.lane.news_of_identity() {
                    self.board.identified(identity);
                }
                self.board.deliver(index, place.tick, started_boottime_ns, place.lane.current());
            }
            Step::SourceGone(what) => {
                self.board.source_gone(what);
                return false;
            }
        }
        place.tick = self.schedule.next_tick(Instant::now()).max(place.tick + 1);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The lane that is due next, of those that nobody works on: its tick and its place.
    fn earliest(&self) -> Option<(u64, usize)> {
        let ticks = self.lanes.iter().enumerate().filter_map(|(index, place)| Some((place.as_ref()?.tick, index)));
        ticks.min()
    }
}

/// Takes note that a thread has left, also when a device of its panics.
struct Leaving<'a>(&'a Crew);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use telemetry::{Answer, Device, DeviceError, Identity, Now, Probe, Reading};

    use super::*;
    use crate::{
        clock::SystemClock,
        sampler::{DeviceReading, Round, board::Board},
    };

    const INTERVAL: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);
    const ANSWERS: u32 = 0;
    const HANGS: u32 = 1;
    const PANICS: u32 = 2;

    /// Behaves as it is told at the moment.
    #[derive(Debug)]
    struct Told {
        identity: Identity,
        behaviour: Arc<AtomicU32>,
    }

    impl Device for Told {
        fn identity(&self) -> &Identity {
            &self.identity
        }

        fn probes(&self) -> &[Probe] {
            &[Probe { name: "utilization", period: Duration::ZERO }]
        }

        fn ask(&mut self, _probe: usize, _now: Now, _reading: &mut Reading) -> Result<Answer, DeviceError> {
            while self.behaviour.load(Ordering::Acquire) == HANGS {
                thread::sleep(Duration::from_millis(1));
            }
            assert_ne!(self.behaviour.load(Ordering::Acquire), PANICS, "as told");
            Ok(Answer::Answered)
        }
    }

    /// A crew and the one who collects its rounds.
    struct Fixture {
        behaviours: Vec<Arc<AtomicU32>>,
        board: Arc<Board>,
        crew: Arc<Crew>,
        round: Round,
    }

    impl Fixture {
        fn new(devices: u32) -> Self {
            let behaviours: Vec<_> = (0..devices).map(|_| Arc::new(AtomicU32::new(ANSWERS))).collect();
            let lanes = behaviours.iter().zip(0..).map(|(behaviour, index)| {
                let device = Told { identity: Identity { index, ..Identity::default() }, behaviour: Arc::clone(behaviour) };
                Lane::new(Box::new(device), INTERVAL, false)
            });
            let lanes: Vec<_> = lanes.collect();
            let schedule = Schedule { epoch: Instant::now(), interval: INTERVAL, lead: Duration::ZERO };
            let board = Arc::new(Board::new(schedule, vec![DeviceReading::default(); devices as usize]).unwrap());
            let crew = Crew::start(lanes, schedule, Arc::clone(&board), Arc::new(SystemClock)).unwrap();
            Self { behaviours, board, crew, round: Round::default() }
        }

        fn tell(&self, device: usize, behaviour: u32) {
            self.behaviours[device].store(behaviour, Ordering::Release);
        }

        /// Collects rounds until one is as wanted.
        #[track_caller]
        fn rounds_until(&mut self, what: &str, mut wanted: impl FnMut(&Round) -> bool) {
            let begun = Instant::now();
            while begun.elapsed() < LONG {
                let wake = self.crew.alarm().into_iter().chain([self.board.deadline()]).min().unwrap();
                thread::sleep(wake.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)));
                let now = Instant::now();
                self.crew.attend(now);
                if self.board.take(now, &mut self.round) && wanted(&self.round) {
                    return;
                }
            }
            panic!("waited in vain for {what}: {:?}, {:?}", self.round, self.crew);
        }

        /// Waits for a round in which just these devices have answered.
        #[track_caller]
        fn all_answer_but(&mut self, silent: &[usize]) {
            self.rounds_until("the others' answers", |round| {
                round.devices.iter().enumerate().all(|(index, device)| {
                    let answered = device.answered_boottime_ns >= round.started_boottime_ns;
                    answered != silent.contains(&index)
                })
            });
        }

        fn workers(&self) -> usize {
            self.crew.lock().workers
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            (0..self.behaviours.len()).for_each(|device| self.tell(device, ANSWERS));
        }
    }

    #[test]
    fn one_device_that_hangs_holds_up_no_other_and_comes_back() {
        let mut fixture = Fixture::new(4);
        fixture.all_answer_but(&[]);
        fixture.tell(1, HANGS);
        fixture.all_answer_but(&[1]);
        fixture.tell(1, ANSWERS);
        fixture.all_answer_but(&[]);
        assert_eq!(fixture.crew.end(LONG), 0);
    }

    #[test]
    fn all_but_one_may_hang_at_once() {
        let mut fixture = Fixture::new(5);
        fixture.all_answer_but(&[]);
        (0..4).for_each(|device| fixture.tell(device, HANGS));
        fixture.all_answer_but(&[0, 1, 2, 3]);
        assert_eq!(fixture.workers(), 5);
        assert_eq!(fixture.crew.end(Duration::from_millis(500)), 4, "the four who hang are left behind");
    }

    #[test]
    fn when_all_hang_there_are_as_many_threads_as_lanes_and_no_more() {
        let mut fixture = Fixture::new(3);
        fixture.all_answer_but(&[]);
        (0..3).for_each(|device| fixture.tell(device, HANGS));
        let mut silent = 0;
        fixture.rounds_until("ten rounds without news", |round| {
            silent += u32::from(!round.has_news);
            silent == 10
        });
        assert!(fixture.workers() <= 3);
        (0..3).for_each(|device| fixture.tell(device, ANSWERS));
        fixture.all_answer_but(&[]);
    }

    #[test]
    fn a_device_that_panics_takes_its_thread_along_and_no_other_device() {
        let mut fixture = Fixture::new(3);
        fixture.all_answer_but(&[]);
        fixture.tell(2, PANICS);
        fixture.all_answer_but(&[2]);
        fixture.tell(0, PANICS);
        fixture.all_answer_but(&[0, 2]);
    }
}
