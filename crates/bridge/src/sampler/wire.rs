//! A collection whose rounds go down a pipe: written by the thread that delivers the last reading, so that nobody is woken up for it.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use telemetry::Identity;

use super::{
    DeviceReading,
    board::{Collection, Deliver},
    frame::Encoder,
};

/// The collection and the pipe; its descriptor is readable when whoever watches has to look after it.
#[derive(Debug)]
pub(super) struct Wire {
    state: Mutex<State>,
    /// Moved on with each round: while all is well it never goes off.
    timer: TimerFd,
}

#[derive(Debug)]
struct State {
    collection: Collection,
    encoder: Encoder,
    pipe: File,
    /// The pipe failed: nothing more can be written.
    failure: Option<io::Error>,
}

impl Wire {
    pub(super) fn new(collection: Collection, pipe: File) -> nix::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        let state = State { collection, encoder: Encoder::default(), pipe, failure: None };
        Ok(Self { state: Mutex::new(state), timer })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Sends the round whose time is up.
    pub(super) fn attend(&self, now: Instant) {
        let mut state = self.lock();
        if state.collection.is_overdue(now) && state.failure.is_none() {
            self.send(&mut state);
        }
    }

    /// Once there will be no more rounds, how that went: the pipe failed, or the source is gone and that has been said.
    pub(super) fn end(&self) -> Option<io::Result<()>> {
        let mut state = self.lock();
        let State { collection, encoder, pipe, failure } = &mut *state;
        match (failure.take(), collection.gone()) {
            (Some(error), _) => Some(Err(error)),
            (None, Some(what)) => Some(pipe.write_all(encoder.source_gone(what))),
            (None, None) => None,
        }
    }

    /// Is to be looked after at `alarm`, or when the round's time is up.
    ///
    /// # Errors
    /// When the timer cannot be set.
    pub(super) fn watch(&self, alarm: Option<Instant>) -> nix::Result<()> {
        let state = self.lock();
        self.wake_at(alarm.into_iter().chain([state.collection.deadline()]).min().unwrap_or_else(Instant::now))
    }

    /// Sends what there is as a round, and what was complete meanwhile.
    fn send(&self, state: &mut State) {
        let State { collection, encoder, pipe, failure } = state;
        loop {
            let head = collection.take(Instant::now());
            let sent = pipe.write_all(encoder.round(head, collection.readings()));
            collection.taken();
            if let Err(error) = sent {
                *failure = Some(error);
                return self.call();
            }
            if !collection.is_complete() {
                break;
            }
        }
        // The kernel takes any time for a timer of its own.
        let _ = self.wake_at(collection.alarm());
    }

    /// The one who watches has to look.
    fn call(&self) {
        let _ = self.wake_at(Instant::now());
    }

    fn wake_at(&self, at: Instant) -> nix::Result<()> {
        // Zero would stop the timer.
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        self.timer.set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A lane that panicked while it copied leaves a reading that the next delivery overwrites.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deliver for Wire {
    fn deliver(&self, lane: usize, tick: u64, started_boottime_ns: u64, reading: &DeviceReading) {
        let mut state = self.lock();
        if state.collection.deliver(lane, tick, started_boottime_ns, reading) && state.failure.is_none() {
            self.send(&mut state);
        }
    }

    fn identified(&self, identity: Identity) {
        let mut state = self.lock();
        let State { encoder, pipe, failure, .. } = &mut *state;
        if failure.is_none()
            && let Err(error) = pipe.write_all(encoder.identified(&identity))
        {
            *failure = Some(error);
            self.call();
        }
    }

    fn source_gone(&self, what: String) {
        self.lock().collection.source_gone(what);
        self.call();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{PipeReader, Read as _},
        os::fd::OwnedFd,
    };

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::{
        super::{
            Round,
            board::Schedule,
            frame::{Message, decode},
        },
        *,
    };

    const INTERVAL: Duration = Duration::from_millis(200);

    struct Fixture {
        wire: Wire,
        parent: PipeReader,
        round: Round,
    }

    impl Fixture {
        fn new() -> Self {
            let (parent, child) = io::pipe().unwrap();
            let schedule = Schedule { epoch: Instant::now(), interval: INTERVAL, lead: Duration::ZERO };
            let collection = Collection::new(schedule, vec![DeviceReading::default(); 2]);
            Self { wire: Wire::new(collection, OwnedFd::from(child).into()).unwrap(), parent, round: Round::default() }
        }

        fn deliver(&self, lane: usize, tick: u64) {
            let reading = DeviceReading { index: lane as u32, answered_boottime_ns: 100 + tick, ..DeviceReading::default() };
            self.wire.deliver(lane, tick, 100 + tick, &reading);
        }

        fn receive(&mut self) -> Message {
            let mut bytes = vec![0; 4096];
            let count = self.parent.read(&mut bytes).unwrap();
            let (message, length) = decode(&bytes[..count], &mut self.round).unwrap().unwrap();
            assert_eq!(length, count, "one message");
            message
        }

        fn answered(&self) -> Vec<u64> {
            self.round.devices.iter().map(|device| device.answered_boottime_ns).collect()
        }

        fn is_called(&self) -> bool {
            let mut fds = [PollFd::new(self.wire.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
        }
    }

    #[test]
    fn whoever_delivers_last_sends_the_round_and_calls_nobody() {
        let mut fixture = Fixture::new();
        fixture.deliver(1, 0);
        fixture.deliver(0, 0);
        assert!(matches!(fixture.receive(), Message::Round));
        assert_eq!((fixture.answered(), fixture.round.has_news), (vec![100, 100], true));
        assert!(!fixture.is_called() && fixture.wire.end().is_none());
    }

    #[test]
    fn a_round_whose_time_is_up_is_sent_by_whoever_looks_after_it() {
        let mut fixture = Fixture::new();
        fixture.deliver(0, 0);
        fixture.deliver(1, 0);
        fixture.receive();
        fixture.deliver(1, 1);
        let now = Instant::now();
        fixture.wire.attend(now);
        fixture.wire.watch(None).unwrap();
        assert!(!fixture.is_called(), "not yet");
        fixture.wire.attend(now + INTERVAL + INTERVAL / 4);
        assert!(matches!(fixture.receive(), Message::Round));
        assert_eq!(fixture.answered(), [100, 101]);
    }

    #[test]
    fn who_a_device_is_found_to_be_is_told_before_what_it_reads() {
        let mut fixture = Fixture::new();
        let identity = Identity { index: 1, uuid: "GPU-1".to_owned(), ..Identity::default() };
        fixture.wire.identified(identity.clone());
        assert!(matches!(fixture.receive(), Message::Identified(told) if told == identity));
        fixture.deliver(0, 0);
        fixture.deliver(1, 0);
        assert!(matches!(fixture.receive(), Message::Round));
    }

    #[test]
    fn that_the_source_is_gone_is_told_and_is_the_end() {
        let mut fixture = Fixture::new();
        fixture.wire.source_gone("unloaded".to_owned());
        while !fixture.is_called() {
            std::thread::yield_now();
        }
        assert!(matches!(fixture.wire.end(), Some(Ok(()))));
        assert!(matches!(fixture.receive(), Message::SourceGone(what) if what == "unloaded"));
    }

    #[test]
    fn a_parent_that_is_gone_is_the_end() {
        let Fixture { wire, parent, .. } = Fixture::new();
        drop(parent);
        wire.deliver(0, 0, 1, &DeviceReading::default());
        wire.deliver(1, 0, 1, &DeviceReading::default());
        assert_eq!(wire.end().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
