//! The lanes of one source, in this process.

use std::{
    fmt,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use telemetry::{OpenError, TelemetrySource};

use super::{
    DeviceReading, Event, Launch, Opened, Round, Sampler,
    board::{Board, Schedule},
    crew::Crew,
    inline::InlineSampler,
};
use crate::{SamplerError, clock::Clock, lane::Lane};

/// How long an ending sampler waits for its lanes; one that hangs in its source is left behind.
const END_LIMIT: Duration = Duration::from_millis(100);

/// Starts lanes in this process.
pub struct LaneLauncher {
    make_source: Box<dyn FnMut() -> Box<dyn TelemetrySource> + Send>,
    poll_interval: Duration,
    clock: Arc<dyn Clock>,
    is_inline: bool,
}

impl LaneLauncher {
    /// Lanes over what `make_source` gives at each start, asked every `poll_interval`.
    pub fn new(
        make_source: impl FnMut() -> Box<dyn TelemetrySource> + Send + 'static,
        poll_interval: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { make_source: Box::new(make_source), poll_interval, clock, is_inline: false }
    }

    /// Has the devices asked on the thread that publishes, without threads of their own. For sources that answer at once, whatever happens: one that
    /// hangs hangs the bridge.
    #[must_use]
    pub fn inline(self) -> Self {
        Self { is_inline: true, ..self }
    }
}

impl fmt::Debug for LaneLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneLauncher")
            .field("poll_interval", &self.poll_interval)
            .field("is_inline", &self.is_inline)
            .finish_non_exhaustive()
    }
}

impl Launch for LaneLauncher {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        let mut source = (self.make_source)();
        if self.is_inline {
            return Ok(Box::new(InlineSampler::start(source.as_mut(), self.poll_interval, Arc::clone(&self.clock))?));
        }
        Ok(Box::new(LaneSampler::start(source.as_mut(), self.poll_interval, &self.clock)?))
    }
}

/// Lanes over an open source, or the news that it did not open.
#[derive(Debug)]
pub struct LaneSampler {
    board: Arc<Board>,
    crew: Arc<Crew>,
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
        let (announcement, devices) = match super::open(source) {
            Ok((opened, devices)) => (Ok(opened), devices),
            Err(error) => (Err(error), Vec::new()),
        };
        let schedule = Schedule::begin(poll_interval);
        let slots = devices.iter().map(|device| DeviceReading::of(device.identity())).collect();
        let board =
            Board::new(schedule, slots).map_err(|errno| SamplerError::Io { doing: "make an event descriptor", source: errno.into() })?;

        let board = Arc::new(board);
        let rationed = !source.is_free();
        let lanes = devices.into_iter().map(|device| Lane::new(device, poll_interval, rationed)).collect();
        let crew = Crew::start(lanes, schedule, Arc::clone(&board), Arc::clone(clock))
            .map_err(|source| SamplerError::Io { doing: "start a thread for the lanes", source })?;
        Ok(Self { board, crew, announcement: Some(announcement), source_gone: false, round: Round::default() })
    }
}

impl Sampler for LaneSampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.board.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.announcement.is_some() {
            return Some(Instant::now());
        }
        self.crew.alarm().into_iter().chain([self.board.deadline()]).min()
    }

    fn receive(&mut self) -> Result<Event, SamplerError> {
        match self.announcement.take() {
            Some(Ok(opened)) => return Ok(Event::Opened(opened)),
            Some(Err(error)) => return Ok(Event::OpenFailed(error)),
            None => {}
        }
        if let Some(identity) = self.board.identified() {
            return Ok(Event::Identified(identity));
        }
        let now = Instant::now();
        self.crew.attend(now);
        if !self.board.take(now, &mut self.round) {
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
        let hanging = self.crew.end(END_LIMIT);
        if hanging > 0 {
            // Their threads cannot be ended; they hold nothing but their own device and the crew.
            log::warn!("{hanging} lanes hang in their source and are left behind");
        }
    }
}
