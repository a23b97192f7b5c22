//! One source's life: its sampler, what became of it, and when it is tried again.
//!
//! A feed knows nothing of the others, nor of the maps: what its news means for them is [`crate::life`]'s to decide.

use std::{
    mem,
    os::fd::BorrowedFd,
    thread,
    time::{Duration, Instant},
};

use map_publisher::cpu;
use telemetry::{Identity, OpenError};

use crate::{
    SamplerError,
    backoff::Backoff,
    describe::may_be_same,
    error::chain,
    limits::Limits,
    plan::Source,
    records::News,
    sampler::{Event, Opened, Round, Sampler},
    tally::{SourceSummary, SourceTally},
};

/// A source that was open for so many of the first delays is no flapping one.
const RETRIES_TO_SETTLE: u32 = 5;

#[derive(Debug)]
pub(crate) struct Feed {
    source: Source,
    /// Stands in for the others while none of them opens.
    pub(crate) is_fallback: bool,
    state: State,
    /// What a sampler that died said last: it stands for its hold.
    remains: Option<Round>,
    /// Where the source's indices begin, and how many it has ever needed.
    pub(crate) first_index: u32,
    pub(crate) reserved: u32,
    /// What was opened last.
    pub(crate) opened: Option<Opened>,
    pub(crate) next_attempt: Option<Instant>,
    backoff: Backoff,
    /// When it last had news, or was opened.
    pub(crate) last_news: Instant,
    /// When what it published last must not stand any longer. `None`: nothing of it is published.
    pub(crate) withdraw_at: Option<Instant>,
    /// Since it last had news.
    pub(crate) failures: u32,
    /// Why the first attempt failed, while the others' are not over.
    pub(crate) first_failure: Option<OpenError>,
    /// What kept it from being opened, as it was last said.
    trouble: Option<String>,
    tally: SourceTally,
}

#[derive(Debug)]
enum State {
    Closed,
    Opening { sampler: Box<dyn Sampler>, since: Instant, is_said_to_be_slow: bool },
    Open { sampler: Box<dyn Sampler>, since: Instant },
}

impl State {
    /// The newest round.
    fn round(&self) -> Option<&Round> {
        match self {
            Self::Open { sampler, .. } => Some(sampler.round()),
            Self::Closed | Self::Opening { .. } => None,
        }
    }
}

/// What a feed's sampler had to say.
#[derive(Debug)]
pub(crate) enum Heard {
    Nothing,
    Opened(Opened),
    /// The sampler is of no more use.
    NotOpened(OpenError, Box<dyn Sampler>),
    /// One of its devices is found to be another than was said.
    Identified(Identity),
    /// Whether it has news.
    Round(bool),
    /// The driver under it is gone.
    Gone(String),
    /// It ended, or talks nonsense.
    Died(SamplerError),
}

/// What kept a sampler from being started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// There is nothing to sample.
    Missing(String),
    Failed(SamplerError),
}

impl Feed {
    pub(crate) fn new(source: Source, is_fallback: bool, limits: &Limits, now: Instant) -> Self {
        Self {
            source,
            is_fallback,
            state: State::Closed,
            remains: None,
            first_index: 0,
            reserved: 0,
            opened: None,
            next_attempt: (!is_fallback).then_some(now),
            backoff: Backoff::new(limits),
            last_news: now,
            withdraw_at: None,
            failures: 0,
            first_failure: None,
            trouble: None,
            tally: SourceTally::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.source.name
    }

    pub(crate) fn is_mock(&self) -> bool {
        self.source.is_mock
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Whether it is open, or on the way.
    pub(crate) fn is_wanted(&self) -> bool {
        self.next_attempt.is_some() || !matches!(self.state, State::Closed)
    }

    /// Whether it could not be opened, and is not to be tried again yet.
    pub(crate) fn is_closed_until_later(&self, now: Instant) -> bool {
        matches!(self.state, State::Closed) && self.next_attempt.is_some_and(|at| at > now)
    }

    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening { .. })
    }

    /// Whether records of it are published, of a sampler that died too.
    pub(crate) fn stands(&self) -> bool {
        self.withdraw_at.is_some()
    }

    /// Since when it has been open.
    pub(crate) fn open_since(&self) -> Option<Instant> {
        match self.state {
            State::Open { since, .. } => Some(since),
            State::Closed | State::Opening { .. } => None,
        }
    }

    /// Whether there may be something to publish of it.
    pub(crate) fn has_round(&self) -> bool {
        self.is_open() || self.remains.is_some()
    }

    /// What is to be published of it: the newest round, or what the last sampler left until there is one with news.
    pub(crate) fn round(&self, news: News) -> Option<&Round> {
        self.remains.as_ref().filter(|_| news == News::Nothing).or_else(|| self.state.round())
    }

    /// Whether an attempt to open it has had an outcome that was told.
    pub(crate) fn is_known(&self) -> bool {
        self.trouble.is_some() || self.opened.is_some()
    }

    /// Whether an attempt to open it has had an outcome.
    pub(crate) fn has_outcome(&self) -> bool {
        self.first_failure.is_some() || self.is_known()
    }

    fn sampler(&self) -> Option<&dyn Sampler> {
        match &self.state {
            State::Opening { sampler, .. } | State::Open { sampler, .. } => Some(sampler.as_ref()),
            State::Closed => None,
        }
    }

    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sampler().map(Sampler::as_fd)
    }

    /// When to hear it although its descriptor is not readable.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sampler().and_then(Sampler::deadline)
    }

    /// When an opening has taken too long.
    pub(crate) fn open_deadline(&self, limits: &Limits) -> Option<Instant> {
        match self.state {
            State::Opening { since, .. } => Some(since + limits.open),
            State::Closed | State::Open { .. } => None,
        }
    }

    /// Says once that an opening takes its time: a driver that hangs says nothing itself.
    pub(crate) fn note_slow_opening(&mut self, limits: &Limits, now: Instant) {
        let State::Opening { since, is_said_to_be_slow, .. } = &mut self.state else { return };
        if now.saturating_duration_since(*since) >= limits.slow_open && !mem::replace(is_said_to_be_slow, true) {
            log::warn!(
                "{} has been opening for more than {:?} and does not answer yet; it is given up after {:?}",
                self.source.name,
                limits.slow_open,
                limits.open
            );
        }
    }

    /// Time in which this process did not run is no time in which the source did not answer.
    pub(crate) fn note_pause(&mut self, pause: Duration, now: Instant) {
        self.last_news = (self.last_news + pause).min(now);
        if let State::Opening { since, .. } = &mut self.state {
            *since = (*since + pause).min(now);
        }
    }

    /// Starts a sampler, whose first word is whether its source opens.
    pub(crate) fn attempt(&mut self, bound: &Option<cpu::Bound>) -> Result<(), NotStarted> {
        self.next_attempt = None;
        if let Some(what) = self.source.launcher.missing() {
            return Err(NotStarted::Missing(what));
        }
        let sampler = launch(&mut self.source, bound).map_err(NotStarted::Failed)?;
        self.state = State::Opening { sampler, since: Instant::now(), is_said_to_be_slow: false };
        Ok(())
    }

    pub(crate) fn hear(&mut self) -> Heard {
        match mem::replace(&mut self.state, State::Closed) {
            State::Closed => Heard::Nothing,
            State::Opening { mut sampler, since, is_said_to_be_slow } => match sampler.receive() {
                Ok(Event::Opened(opened)) => {
                    self.state = State::Open { sampler, since: Instant::now() };
                    Heard::Opened(opened)
                }
                Ok(Event::OpenFailed(error)) => Heard::NotOpened(error, sampler),
                Ok(Event::SourceGone(what)) => Heard::NotOpened(OpenError::Failed(what), sampler),
                Ok(Event::Nothing | Event::Round | Event::Identified(_)) => {
                    self.state = State::Opening { sampler, since, is_said_to_be_slow };
                    Heard::Nothing
                }
                Err(error) => Heard::NotOpened(OpenError::Failed(chain(&error)), sampler),
            },
            State::Open { mut sampler, since } => {
                let heard = match sampler.receive() {
                    Ok(Event::Round) => Heard::Round(sampler.round().has_news),
                    Ok(Event::Identified(identity)) => Heard::Identified(identity),
                    Ok(Event::SourceGone(what)) => Heard::Gone(what),
                    Ok(Event::Nothing | Event::Opened(_) | Event::OpenFailed(_)) => Heard::Nothing,
                    Err(error) => Heard::Died(error),
                };
                self.state = State::Open { sampler, since };
                heard
            }
        }
    }

    /// The source is open: what was said of its troubles is over.
    pub(crate) fn has_opened(&mut self, opened: Opened) {
        let highest = opened.devices.iter().map(|device| device.index + 1).max().unwrap_or(0);
        self.reserved = self.reserved.max(highest);
        self.opened = Some(opened);
        self.trouble = None;
        self.first_failure = None;
        self.last_news = Instant::now();
        self.tally.reopened();
    }

    /// One of its devices is found to be this one.
    pub(crate) fn has_identified(&mut self, identity: Identity) {
        let devices = self.opened.iter_mut().flat_map(|opened| &mut opened.devices);
        if let Some(device) = devices.into_iter().find(|device| device.index == identity.index) {
            *device = identity;
        }
    }

    /// Devices of its have answered; `published`: and what they said could be written.
    pub(crate) fn has_news(&mut self, now: Instant, hold: Duration, published: bool, limits: &Limits) {
        self.last_news = now;
        self.withdraw_at = Some(now + hold);
        self.remains = None;
        if published {
            self.failures = 0;
            if self.open_since().is_some_and(|since| now.saturating_duration_since(since) >= limits.steady_after) {
                self.backoff.reset();
            }
        }
    }

    /// Ends its sampler; nothing of what it said is to be published any more.
    pub(crate) fn close(&mut self) -> Option<Box<dyn Sampler>> {
        self.forget();
        self.tally.closing(self.state.round());
        match mem::replace(&mut self.state, State::Closed) {
            State::Opening { sampler, .. } | State::Open { sampler, .. } => Some(sampler),
            State::Closed => None,
        }
    }

    /// Whether the source, which says that it is gone, has other devices and is to be opened anew at once: not one whose devices come and go all
    /// the time.
    pub(crate) fn is_reopened_at_once(&mut self, limits: &Limits, now: Instant) -> bool {
        let is_settled = |since| now.saturating_duration_since(since) >= limits.first_retry * RETRIES_TO_SETTLE;
        let has_settled = self.open_since().is_some_and(is_settled);
        let launcher = &mut self.source.launcher;
        has_settled && launcher.is_reopened_at_once() && launcher.missing().is_none()
    }

    /// Has other devices and is opened anew; what it said last stands as long as it was going to, or until it says more.
    pub(crate) fn reopen(&mut self) -> Option<Box<dyn Sampler>> {
        self.next_attempt = Some(Instant::now());
        self.close_keeping(true)
    }

    /// Whether some index is that of another device in what was opened now.
    pub(crate) fn has_exchanged(&self, opened: &Opened) -> bool {
        let differ = |before: &str, now: &str| !may_be_same(before.as_bytes(), now.as_bytes());
        let is_another = |before: &Identity, now: &Identity| {
            before.index == now.index && (differ(&before.uuid, &now.uuid) || differ(&before.pci_bus_id, &now.pci_bus_id))
        };
        let before = self.opened.iter().flat_map(|before| &before.devices);
        before.into_iter().any(|before| opened.devices.iter().any(|now| is_another(before, now)))
    }

    /// The sampler has ended; what it said last stands as long as it was going to.
    pub(crate) fn close_dead(&mut self, error: &SamplerError) -> Option<Box<dyn Sampler>> {
        // What a message that cannot be read has left is nobody's word.
        self.close_keeping(!matches!(error, SamplerError::Garbled { .. }))
    }

    fn close_keeping(&mut self, is_whole: bool) -> Option<Box<dyn Sampler>> {
        let withdraw_at = self.withdraw_at;
        let copy = |round: &Round| Round { has_news: false, devices: round.devices.clone(), ..*round };
        let earlier = self.remains.take();
        let remains = earlier.or_else(|| self.state.round().filter(|_| is_whole && withdraw_at.is_some()).map(copy));
        let sampler = self.close();
        (self.withdraw_at, self.remains) = (withdraw_at, remains);
        sampler
    }

    /// What it said is not to be published any more.
    pub(crate) fn forget(&mut self) {
        self.withdraw_at = None;
        self.remains = None;
    }

    /// Is not tried again until it is asked for.
    pub(crate) fn release(&mut self) -> Option<Box<dyn Sampler>> {
        self.next_attempt = None;
        self.first_failure = None;
        self.close()
    }

    /// Is tried again at once.
    pub(crate) fn take_up(&mut self) {
        self.backoff.reset();
        self.first_failure = None;
        self.next_attempt = Some(Instant::now());
    }

    pub(crate) fn try_again(&mut self, noise: u64) {
        let delay = self.backoff.next(noise);
        self.try_again_in(delay);
    }

    /// Has failed so often that the longest delay is right.
    pub(crate) fn try_again_rarely(&mut self, noise: u64) {
        let delay = self.backoff.longest(noise);
        self.try_again_in(delay);
    }

    fn try_again_in(&mut self, delay: Duration) {
        log::debug!("next attempt to open {} in {:.1} s", self.name(), delay.as_secs_f64());
        self.next_attempt = Some(Instant::now() + delay);
    }

    /// Ticks that its samplers skipped since the start.
    pub(crate) fn skipped_ticks(&self) -> u64 {
        self.tally.skipped(self.state.round())
    }

    /// What it did since the last summary.
    pub(crate) fn summarise(&mut self) -> SourceSummary {
        self.tally.summarise(self.state.round())
    }

    /// What keeps the source from being opened has been said.
    pub(crate) fn note_trouble(&mut self, text: String) {
        self.trouble = Some(text);
    }

    /// What keeps it from being opened is said when it is news.
    pub(crate) fn say_trouble(&mut self, text: String) {
        if self.trouble.as_ref() == Some(&text) {
            log::debug!("still: {text}");
        } else {
            log::warn!("{text}");
            self.trouble = Some(text);
        }
    }
}

/// Starts a sampler that may use all of the CPUs that the process was given, not just the publisher's.
fn launch(source: &mut Source, bound: &Option<cpu::Bound>) -> Result<Box<dyn Sampler>, SamplerError> {
    let Some(bound) = bound else { return source.launcher.launch() };
    let failed = |doing| move |source| SamplerError::Io { doing, source };
    bound.previous.apply().map_err(failed("use all CPUs for the sampler"))?;
    let launched = source.launcher.launch();
    cpu::bind_to_lowest().map_err(failed("return to one CPU"))?;
    launched
}

/// Ends a sampler. One that does not end at once takes a while, in which the others' rounds would wait: `aside` it has a thread for that.
pub(crate) fn end(sampler: Option<Box<dyn Sampler>>, aside: bool) {
    let Some(sampler) = sampler else { return };
    if aside {
        // Without a thread the sampler is dropped here. Not joined: it ends in a bounded time.
        drop(thread::Builder::new().name("sampler-end".to_owned()).spawn(move || drop(sampler)));
    }
}

/// Ends samplers side by side: none waits for another that does not end at once.
pub(crate) fn end_all(samplers: impl Iterator<Item = Box<dyn Sampler>>) {
    thread::scope(|scope| {
        let mut samplers = samplers.peekable();
        while let Some(sampler) = samplers.next() {
            if samplers.peek().is_some() {
                drop(thread::Builder::new().name("sampler-end".to_owned()).spawn_scoped(scope, move || drop(sampler)));
            }
        }
    });
}
