//! The lanes of one source: a thread a device, in this process.

use std::{
    fmt,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use telemetry::{OpenError, TelemetrySource};

use super::{
    DeviceReading, Event, Launch, Opened, Round, Sampler,
    board::{Board, Schedule},
};
use crate::{
    SamplerError,
    clock::Clock,
    lane::{Lane, Step},
};

/// How long an ending sampler waits for its lanes; one that hangs in its source is left behind.
const END_LIMIT: Duration = Duration::from_millis(100);
/// A lane's stack: a source's frames are small, and 16 lanes ought not to look like 32 MiB of address space.
const LANE_STACK_BYTES: usize = 512 << 10;

/// Starts lanes in this process.
pub struct LaneLauncher {
    make_source: Box<dyn FnMut() -> Box<dyn TelemetrySource> + Send>,
    poll_interval: Duration,
    clock: Arc<dyn Clock>,
}

impl LaneLauncher {
    /// Lanes over what `make_source` gives at each start, asked every `poll_interval`.
    pub fn new(
        make_source: impl FnMut() -> Box<dyn TelemetrySource> + Send + 'static,
        poll_interval: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { make_source: Box::new(make_source), poll_interval, clock }
    }
}

impl fmt::Debug for LaneLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneLauncher").field("poll_interval", &self.poll_interval).finish_non_exhaustive()
    }
}

impl Launch for LaneLauncher {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        let mut source = (self.make_source)();
        Ok(Box::new(LaneSampler::start(source.as_mut(), self.poll_interval, &self.clock)?))
    }
}

/// Lanes over an open source, or the news that it did not open.
#[derive(Debug)]
pub struct LaneSampler {
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    lanes: Vec<Thread>,
    announcement: Option<Result<Opened, OpenError>>,
    source_gone: bool,
    round: Round,
}

impl LaneSampler {
    /// Opens `source` and starts a lane for each device. Blocks as long as opening does.
    ///
    /// # Errors
    /// When threads or descriptors cannot be had. That the source does not open is told by the first [`Event`].
    pub fn start(source: &mut dyn TelemetrySource, poll_interval: Duration, clock: &Arc<dyn Clock>) -> Result<Self, SamplerError> {
        let (announcement, devices) = match source.open() {
            Ok(open) => {
                let identities = open.devices.iter().map(|device| device.identity().clone()).collect();
                (Ok(Opened { info: open.info, devices: identities }), open.devices)
            }
            Err(error) => (Err(error), Vec::new()),
        };
        let schedule = Schedule { epoch: Instant::now(), interval: poll_interval };
        let slots = devices.iter().map(|device| DeviceReading::of(device.identity())).collect();
        let board =
            Board::new(schedule, slots).map_err(|errno| SamplerError::Io { doing: "make an event descriptor", source: errno.into() })?;

        let mut sampler = Self {
            board: Arc::new(board),
            stop: Arc::default(),
            lanes: Vec::with_capacity(devices.len()),
            announcement: Some(announcement),
            source_gone: false,
            round: Round::default(),
        };
        let count = devices.len();
        for (index, device) in devices.into_iter().enumerate() {
            let seat = Seat { index, count, schedule, board: Arc::clone(&sampler.board), stop: Arc::clone(&sampler.stop) };
            let lane = Lane::new(device, poll_interval, !source.is_free());
            let clock = Arc::clone(clock);
            let handle = thread::Builder::new()
                .name(format!("lane-{}", lane.device_index()))
                .stack_size(LANE_STACK_BYTES)
                .spawn(move || seat.run(lane, clock.as_ref()))
                .map_err(|source| SamplerError::Io { doing: "start a lane's thread", source })?;
            sampler.lanes.push(handle.thread().clone());
        }
        Ok(sampler)
    }
}

impl Sampler for LaneSampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.board.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.announcement.is_some() { Some(Instant::now()) } else { Some(self.board.deadline()) }
    }

    fn receive(&mut self) -> Result<Event, SamplerError> {
        match self.announcement.take() {
            Some(Ok(opened)) => return Ok(Event::Opened(opened)),
            Some(Err(error)) => return Ok(Event::OpenFailed(error)),
            None => {}
        }
        if !self.board.take(Instant::now(), &mut self.round) {
            return Ok(Event::Nothing);
        }
        if let Some(what) = self.board.gone().filter(|_| !self.source_gone) {
            self.source_gone = true;
            return Ok(Event::SourceGone(what));
        }
        Ok(Event::Round)
    }

    fn round(&self) -> &Round {
        &self.round
    }
}

impl Drop for LaneSampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for lane in &self.lanes {
            lane.unpark();
        }
        let hanging = self.board.wait_for_lanes(END_LIMIT);
        if hanging > 0 {
            // Their threads cannot be ended; they hold nothing but their own device and the board.
            log::warn!("{hanging} lanes hang in their source and are left behind");
        }
    }
}

/// A lane's place among the others.
struct Seat {
    index: usize,
    count: usize,
    schedule: Schedule,
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
}

impl Seat {
    fn run(self, mut lane: Lane, clock: &dyn Clock) {
        let _ending = Ending(Arc::clone(&self.board));
        let mut tick = 0;
        while self.wait_until(self.schedule.start(tick, self.index, self.count)) {
            let started_boottime_ns = clock.boottime_ns();
            match lane.step(clock) {
                Step::Done => self.board.deliver(self.index, tick, started_boottime_ns, lane.current()),
                Step::SourceGone(what) => {
                    self.board.source_gone(what);
                    return;
                }
            }
            tick = self.schedule.next_tick(Instant::now()).max(tick + 1);
        }
    }

    /// False when the sampler ends.
    fn wait_until(&self, deadline: Instant) -> bool {
        loop {
            if self.stop.load(Ordering::Acquire) {
                return false;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::park_timeout(left);
        }
    }
}

/// Tells the board that a lane is over, also when its device panics.
struct Ending(Arc<Board>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lane_ended();
    }
}
