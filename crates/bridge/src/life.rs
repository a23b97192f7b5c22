//! The loop: which sampler is running, what becomes of its rounds, and what to do when there is none.
//!
//! At most two samplers run: the active one, whose rounds are published, and a candidate that is opening. A candidate that opens becomes the
//! active one; while the fallback publishes, candidates of the real source go on being tried.

use std::time::{Duration, Instant};

use map_publisher::{Publisher, cpu};
use nix::poll::{PollFd, PollFlags};
use telemetry::OpenError;

use crate::{
    BridgeError, Control, SamplerError,
    backoff::Backoff,
    error::chain,
    limits::Limits,
    outlet::{Outcome, Outlet, SourceKind},
    plan::{Observer, Phase, Plan, Source, Unobserved, WhenUnavailable},
    sampler::{Event, Opened, Sampler},
    wait::wait_until,
};

/// How often the pins are looked after, and so the longest that the loop waits.
const PIN_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// When a turn of the loop takes so much longer than that, the process did not run: it was stopped, or the machine was.
const PAUSE: Duration = Duration::from_secs(2);

/// Publishes `plan.source` until [`Control::stop`], on the calling thread, which is bound to one CPU for that time.
///
/// # Errors
/// When the maps cannot be had, or the source cannot be opened and the plan allows nothing else.
pub fn run(plan: Plan, control: &Control) -> Result<(), BridgeError> {
    run_within(plan, &Limits::default(), control)
}

/// [`run`] with patience of the caller's choice.
///
/// # Errors
/// As [`run`].
pub fn run_within(mut plan: Plan, limits: &Limits, control: &Control) -> Result<(), BridgeError> {
    let observer = std::mem::replace(&mut plan.observer, Box::new(Unobserved));
    let bound = match cpu::bind_to_lowest() {
        Ok(bound) => Some(bound),
        Err(error) => {
            log::warn!("cannot bind the publishing thread to one CPU: {error}; with many processes some may be missing from time to time");
            None
        }
    };
    let publisher = Publisher::open(&plan.maps)?;
    let mut life = Life::new(plan, *limits, publisher, observer, bound);
    let result = life.live(control);
    let closed = life.end();
    result.and(closed)
}

#[derive(Debug)]
struct Life {
    plan: Plan,
    limits: Limits,
    bound: Option<cpu::Bound>,
    outlet: Outlet,
    active: Option<Active>,
    candidate: Option<Candidate>,
    next_attempt: Option<Instant>,
    backoff: Backoff,
    next_pin_check: Instant,
    next_mock_reminder: Option<Instant>,
    /// When the loop last went round.
    last_turn: Instant,
    /// When the active sampler last had news, or was opened.
    last_news: Instant,
    /// When what was published last must not stand any longer.
    withdraw_at: Option<Instant>,
    /// The first attempt to open the source is over, whatever came of it: from now on only the maps' trouble ends the bridge.
    is_settled: bool,
    /// The driver was let go on request.
    is_released: bool,
    /// Since the source last had news.
    failures: u32,
    /// What kept the source from being opened, as it was last said.
    trouble: Option<String>,
    next_summary: Instant,
}

#[derive(Debug)]
struct Active {
    sampler: Box<dyn Sampler>,
    is_fallback: bool,
    since: Instant,
}

#[derive(Debug)]
struct Candidate {
    sampler: Box<dyn Sampler>,
    since: Instant,
}

impl Life {
    fn new(plan: Plan, limits: Limits, publisher: Publisher, observer: Box<dyn Observer>, bound: Option<cpu::Bound>) -> Self {
        let now = Instant::now();
        let outlet = Outlet::new(publisher, &plan, observer);
        // What an earlier bridge left stands for its hold, like the last round of a sampler that died.
        let withdraw_at = Some(now + outlet.hold());
        Self {
            plan,
            limits,
            bound,
            outlet,
            active: None,
            candidate: None,
            next_attempt: Some(now),
            backoff: Backoff::new(&limits),
            next_pin_check: now + PIN_CHECK_INTERVAL,
            next_mock_reminder: None,
            last_turn: now,
            last_news: now,
            withdraw_at,
            is_settled: false,
            is_released: false,
            failures: 0,
            trouble: None,
            next_summary: now + limits.report,
        }
    }

    fn live(&mut self, control: &Control) -> Result<(), BridgeError> {
        while !control.is_stopping() {
            self.follow(control);
            self.do_what_is_due(Instant::now())?;
            self.outlet.alive();
            self.wait(control)?;
            if self.candidate.is_some() {
                self.hear_candidate()?;
            }
            if self.active.is_some() {
                self.hear_active()?;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), BridgeError> {
        // The maps first: a sampler may take its time to end.
        let closed = self.outlet.close(self.plan.keep_pins);
        drop(self.active);
        drop(self.candidate);
        Ok(closed?)
    }

    /// Lets the driver go, or takes it up again, when that was asked for.
    fn follow(&mut self, control: &Control) {
        let release = control.is_released();
        if release == self.is_released {
            return;
        }
        self.is_released = release;
        if release {
            log::info!("{} is let go on request; nothing is published until it is to be taken up again", self.plan.source.name);
            self.candidate = None;
            self.next_attempt = None;
            if self.active.as_ref().is_none_or(|active| !active.is_fallback) {
                self.active = None;
                self.withdraw_at = None;
                self.outlet.withdraw(Phase::Waiting, "the driver is let go on request");
            }
        } else {
            log::info!("{} is taken up again on request", self.plan.source.name);
            self.backoff.reset();
            self.next_attempt = Some(Instant::now());
        }
    }

    fn wait(&self, control: &Control) -> Result<(), BridgeError> {
        let timers = [
            Some(self.next_pin_check),
            Some(self.next_summary),
            self.next_attempt,
            self.next_mock_reminder,
            self.active.as_ref().and_then(|active| active.sampler.deadline()),
            self.withdraw_at,
            self.candidate.as_ref().map(|candidate| candidate.since + self.limits.open),
            self.candidate.as_ref().and_then(|candidate| candidate.sampler.deadline()),
        ];
        // A sampler that is not there is stood in for by the control, whose descriptor is waited for anyway.
        let requests = control.as_fd();
        let active = self.active.as_ref().map_or(requests, |active| active.sampler.as_fd());
        let candidate = self.candidate.as_ref().map_or(requests, |candidate| candidate.sampler.as_fd());
        let mut fds = [requests, active, candidate].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        wait_until(&mut fds, timers.into_iter().flatten().min()).map_err(BridgeError::Wait)?;
        if fds[0].any().unwrap_or(false) {
            control.clear();
        }
        Ok(())
    }

    fn do_what_is_due(&mut self, now: Instant) -> Result<(), BridgeError> {
        self.note_turn(now);
        if now >= self.next_pin_check {
            self.next_pin_check = now + PIN_CHECK_INTERVAL;
            self.outlet.check_pins();
        }
        if now >= self.next_summary {
            self.next_summary = now + self.limits.report;
            self.outlet.summarise(self.active.as_ref().map(|active| active.sampler.round()));
        }
        if self.next_mock_reminder.is_some_and(|at| now >= at) {
            log::warn!("the published data is still invented: {} cannot be opened", self.plan.source.name);
            self.next_mock_reminder = Some(now + self.limits.report);
        }
        if self.candidate.as_ref().is_some_and(|candidate| now >= candidate.since + self.limits.open) {
            self.candidate = None;
            self.not_opened(OpenError::Failed(format!("it did not open within {:?}", self.limits.open)))?;
        }
        if self.next_attempt.is_some_and(|at| now >= at) {
            self.attempt()?;
        }
        if self.withdraw_at.is_some_and(|at| now >= at) {
            self.withdraw_at = None;
            self.outdated(now);
        }
        let stuck_limit = self.limits.stuck.max(self.plan.poll_interval.saturating_mul(20));
        if self.active.is_some() && now.saturating_duration_since(self.last_news) >= stuck_limit {
            self.source_gone(&format!("no device has answered for {stuck_limit:?}"))?;
        }
        Ok(())
    }

    /// Time in which this process did not run is no time in which others did not answer.
    fn note_turn(&mut self, now: Instant) {
        let pause = now.saturating_duration_since(self.last_turn);
        self.last_turn = now;
        if pause < PIN_CHECK_INTERVAL + PAUSE {
            return;
        }
        log::warn!("the bridge did not run for {:.1} s", pause.as_secs_f64());
        self.last_news = (self.last_news + pause).min(now);
        if let Some(candidate) = &mut self.candidate {
            candidate.since = (candidate.since + pause).min(now);
        }
    }

    /// What is in the maps was last confirmed longer ago than it may stand.
    fn outdated(&mut self, now: Instant) {
        if self.outlet.phase() == Phase::Publishing {
            log::warn!("no device has answered for {:.1} s: the maps are empty until one does", (now - self.last_news).as_secs_f64());
            self.outlet.withdraw(Phase::Waiting, "no device answers");
        } else {
            // An earlier bridge's.
            self.outlet.withdraw(self.outlet.phase(), "the source is being opened");
        }
    }

    fn attempt(&mut self) -> Result<(), BridgeError> {
        self.next_attempt = None;
        match launch(&mut self.plan.source, &self.bound) {
            Ok(sampler) => self.candidate = Some(Candidate { sampler, since: Instant::now() }),
            Err(source) if self.is_settled => {
                let failure = OpenError::Failed(chain(&source));
                self.say_trouble(format!("cannot start the {} sampler: {failure}", self.plan.source.name));
                self.count_failure(failure)?;
                self.try_again();
            }
            Err(source) => return Err(BridgeError::Launch { name: self.plan.source.name, source }),
        }
        Ok(())
    }

    /// What keeps the source from being opened is said when it is news.
    fn say_trouble(&mut self, text: String) {
        if self.trouble.as_ref() == Some(&text) {
            log::debug!("still: {text}");
        } else {
            log::warn!("{text}");
            self.trouble = Some(text);
        }
    }

    fn try_again(&mut self) {
        let delay = self.backoff.next(self.outlet.noise());
        log::debug!("next attempt to open {} in {:.1} s", self.plan.source.name, delay.as_secs_f64());
        self.next_attempt = Some(Instant::now() + delay);
    }

    fn hear_candidate(&mut self) -> Result<(), BridgeError> {
        let Some(mut candidate) = self.candidate.take() else { return Ok(()) };
        match candidate.sampler.receive() {
            Ok(Event::Opened(opened)) => self.opened(candidate.sampler, &opened, false),
            Ok(Event::OpenFailed(error)) => self.not_opened(error)?,
            Ok(Event::SourceGone(what)) => self.not_opened(OpenError::Failed(what))?,
            Ok(Event::Nothing | Event::Round) => self.candidate = Some(candidate),
            Err(error) => self.not_opened(OpenError::Failed(chain(&error)))?,
        }
        Ok(())
    }

    fn opened(&mut self, sampler: Box<dyn Sampler>, opened: &Opened, is_fallback: bool) {
        if self.active.take().is_some() {
            // What the fallback invented goes before the first real round.
            self.outlet.withdraw(Phase::Starting, "the source is open");
        }
        self.is_settled = true;
        if !is_fallback {
            self.next_mock_reminder = None;
            self.trouble = None;
        }
        let kind = match (is_fallback, self.plan.source.is_mock) {
            (true, _) => SourceKind::MockFallback,
            (false, true) => SourceKind::Mock,
            (false, false) => SourceKind::Real,
        };
        self.outlet.opened(opened, kind);
        self.last_news = Instant::now();
        self.active = Some(Active { sampler, is_fallback, since: self.last_news });
    }

    /// The source could not be opened: the first time, and only then, that may end the bridge.
    fn not_opened(&mut self, error: OpenError) -> Result<(), BridgeError> {
        let name = self.plan.source.name;
        if self.is_settled {
            self.say_trouble(format!("{name} cannot be opened: {error}"));
            if matches!(error, OpenError::Failed(_)) {
                self.count_failure(error)?;
            }
            self.try_again();
            return Ok(());
        }
        let text = format!("{name} cannot be opened: {error}");
        match &self.plan.when_unavailable {
            WhenUnavailable::Fail => return Err(BridgeError::Open { name, source: error }),
            WhenUnavailable::Wait => {
                log::warn!("{text}; waiting for it, nothing is published until then");
                self.is_settled = true;
                let phase = if matches!(error, OpenError::NotAvailable(_)) { Phase::Idle } else { Phase::Waiting };
                self.withdraw_at = None;
                self.outlet.withdraw(phase, &text);
            }
            WhenUnavailable::FallBack(fallback) => {
                log::warn!("{text}; THE PUBLISHED DATA IS INVENTED by the {} source until it can", fallback.name);
                self.fall_back()?;
            }
        }
        self.trouble = Some(text);
        self.try_again();
        Ok(())
    }

    fn fall_back(&mut self) -> Result<(), BridgeError> {
        let WhenUnavailable::FallBack(fallback) = &mut self.plan.when_unavailable else { return Ok(()) };
        let name = fallback.name;
        let launched = launch(fallback, &self.bound);
        let mut sampler = launched.map_err(|source| BridgeError::Launch { name, source })?;
        match sampler.receive() {
            Ok(Event::Opened(opened)) => self.opened(sampler, &opened, true),
            Ok(Event::OpenFailed(source)) => return Err(BridgeError::Open { name, source }),
            Ok(other) => {
                let source = OpenError::Failed(format!("it answered {other:?}"));
                return Err(BridgeError::Open { name, source });
            }
            Err(source) => return Err(BridgeError::Launch { name, source }),
        }
        self.next_mock_reminder = Some(Instant::now() + self.limits.report);
        Ok(())
    }

    fn hear_active(&mut self) -> Result<(), BridgeError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        match active.sampler.receive() {
            Ok(Event::Round) => {
                let outcome = self.outlet.publish(active.sampler.round());
                if outcome == Outcome::Nothing {
                    return Ok(());
                }
                self.last_news = Instant::now();
                self.withdraw_at = Some(self.last_news + self.outlet.hold());
                if outcome == Outcome::Published && !active.is_fallback {
                    self.failures = 0;
                    if self.last_news - active.since >= self.limits.steady_after {
                        self.backoff.reset();
                    }
                }
            }
            Ok(Event::SourceGone(what)) => self.source_gone(&what)?,
            Ok(Event::Nothing | Event::Opened(_) | Event::OpenFailed(_)) => {}
            Err(error) => self.sampler_died(&error)?,
        }
        Ok(())
    }

    /// The driver is gone: what was published is not true any more.
    fn source_gone(&mut self, what: &str) -> Result<(), BridgeError> {
        if self.active.take_if(|active| active.is_fallback).is_some() {
            return self.fallback_failed(what);
        }
        let name = self.plan.source.name;
        log::warn!("{name} is gone: {what}; waiting for it, the maps are empty until then");
        self.active = None;
        self.withdraw_at = None;
        self.outlet.withdraw(Phase::Waiting, &format!("{name} is gone: {what}"));
        self.count_failure(OpenError::Failed(what.to_owned()))?;
        self.try_again();
        Ok(())
    }

    /// A sampler that died takes no device with it: its last round stands for its hold.
    fn sampler_died(&mut self, error: &SamplerError) -> Result<(), BridgeError> {
        if self.active.take_if(|active| active.is_fallback).is_some() {
            return self.fallback_failed(&chain(error));
        }
        log::warn!("{}; it is started anew", chain(error));
        self.active = None;
        self.count_failure(OpenError::Failed(chain(error)))?;
        self.try_again();
        Ok(())
    }

    fn fallback_failed(&mut self, what: &str) -> Result<(), BridgeError> {
        log::warn!("the fallback is started anew: {what}");
        self.fall_back()
    }

    /// Counts what waiting may not mend; news from the source sets the count back.
    fn count_failure(&mut self, source: OpenError) -> Result<(), BridgeError> {
        self.failures += 1;
        if self.failures < self.limits.most_failures || self.active.is_some() {
            return Ok(());
        }
        Err(BridgeError::GaveUp { name: self.plan.source.name, attempts: self.failures, source })
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
