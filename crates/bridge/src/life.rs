//! The loop: what the sources' news means for the maps, for each other, and for the bridge.
//!
//! Each source has a life of its own ([`Feed`]). What they have in common is here: their places in the maps, the fallback while none of them opens, the
//! pins, the phase, and when to give up.

mod sources;

use std::{
    array,
    time::{Duration, Instant},
};

use map_publisher::{Publisher, cpu};
use nix::poll::{PollFd, PollFlags};
use telemetry::OpenError;

use crate::{
    BridgeError, Control,
    error::chain,
    feed::{self, Feed, Heard, NotStarted},
    gather::Gather,
    grid,
    limits::Limits,
    outlet::{Outcome, Outlet},
    picture::{MOST_SOURCES, Picture},
    plan::{Observer, Phase, Plan, Unobserved, WhenUnavailable},
    records::Part,
    sampler::Sampler,
    wait::wait_until,
};

/// How often the pins are looked after.
const PIN_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// So much later will do when the loop goes round anyway; both together are the longest that it waits.
const PIN_CHECK_SLACK: Duration = Duration::from_millis(400);
/// When a turn of the loop takes so much longer than that, the process did not run: it was stopped, or the machine was.
const PAUSE: Duration = Duration::from_secs(2);
/// The sources, and one that stands in for them.
const MOST_FEEDS: usize = MOST_SOURCES + 1;

/// Publishes `plan.sources` until [`Control::stop`], on the calling thread, which is bound to one CPU for that time.
///
/// # Errors
/// When the maps cannot be had, or no source can be opened and the plan allows nothing else.
pub fn run(plan: Plan, control: &Control) -> Result<(), BridgeError> {
    run_within(plan, &Limits::default(), control)
}

/// [`run`] with patience of the caller's choice.
///
/// # Errors
/// As [`run`].
pub fn run_within(mut plan: Plan, limits: &Limits, control: &Control) -> Result<(), BridgeError> {
    let count = plan.sources.len();
    if !(1..=MOST_SOURCES).contains(&count) {
        return Err(BridgeError::Sources { count });
    }
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
    keep_pins: bool,
    poll_interval: Duration,
    when_unavailable: Unavailable,
    limits: Limits,
    bound: Option<cpu::Bound>,
    outlet: Outlet,
    /// The sources in index order; the fallback, if there is one, is the last.
    feeds: Vec<Feed>,
    gather: Gather,
    next_pin_check: Instant,
    next_mock_reminder: Option<Instant>,
    next_summary: Instant,
    /// When the loop last went round.
    last_turn: Instant,
    /// When what an earlier bridge left must not stand any longer.
    leftovers_until: Option<Instant>,
    /// A source has been opened, or it is decided what to do without: from now on only the maps' trouble ends the bridge.
    is_settled: bool,
    /// The driver was let go on request.
    is_released: bool,
    /// The fallback, too; it comes back when no source has opened since.
    is_fallback_released: bool,
    /// Until then a source waits for the first outcome of those before it, which says where its indices begin.
    in_order_until: Instant,
}

/// [`WhenUnavailable`], the fallback being a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unavailable {
    Fail,
    Wait,
    FallBack,
}

impl Life {
    fn new(plan: Plan, limits: Limits, publisher: Publisher, observer: Box<dyn Observer>, bound: Option<cpu::Bound>) -> Self {
        let outlet = Outlet::new(publisher, &plan, observer);
        let (now, lead) = grid::place(plan.poll_interval);
        let mut feeds: Vec<_> = plan.sources.into_iter().map(|source| Feed::new(source, false, &limits, now)).collect();
        let when_unavailable = match plan.when_unavailable {
            WhenUnavailable::Fail => Unavailable::Fail,
            WhenUnavailable::Wait => Unavailable::Wait,
            WhenUnavailable::FallBack(source) => {
                feeds.push(Feed::new(source, true, &limits, now));
                Unavailable::FallBack
            }
        };
        Self {
            keep_pins: plan.keep_pins,
            poll_interval: plan.poll_interval,
            when_unavailable,
            limits,
            bound,
            gather: Gather::new(feeds.len(), now.checked_sub(lead).unwrap_or(now), plan.poll_interval),
            feeds,
            next_pin_check: now + PIN_CHECK_INTERVAL,
            next_mock_reminder: None,
            next_summary: now + limits.report,
            last_turn: now,
            // Like the last round of a sampler that died.
            leftovers_until: Some(now + outlet.hold()),
            outlet,
            is_settled: false,
            is_released: false,
            is_fallback_released: false,
            in_order_until: now + limits.slow_open,
        }
    }

    /// When a source is to be tried next.
    fn attempt_at(&self, index: usize) -> Option<Instant> {
        let at = self.feeds[index].next_attempt?;
        let waits = self.feeds[..index].iter().any(|earlier| !earlier.has_outcome());
        Some(if waits { at.max(self.in_order_until) } else { at })
    }

    fn live(&mut self, control: &Control) -> Result<(), BridgeError> {
        while !control.is_stopping() {
            self.follow(control);
            self.do_what_is_due(Instant::now())?;
            self.outlet.alive();
            let ready = self.wait(control)?;
            self.hear(ready)?;
            let now = Instant::now();
            if self.gather.is_due(now) {
                self.publish(now);
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), BridgeError> {
        // The maps first: a sampler may take its time to end.
        let closed = self.outlet.close(self.keep_pins);
        feed::end_all(self.feeds.iter_mut().filter_map(Feed::close));
        Ok(closed?)
    }

    /// Lets the drivers go, or takes them up again, when that was asked for.
    fn follow(&mut self, control: &Control) {
        let release = control.is_released();
        if release == self.is_released {
            return;
        }
        self.is_released = release;
        let sources = self.names();
        if release {
            log::info!("{sources} let go on request; nothing is published until it is to be taken up again");
            self.is_fallback_released = self.feeds.iter().any(|feed| feed.is_fallback && feed.is_wanted());
            self.next_mock_reminder = None;
            for (index, feed) in self.feeds.iter_mut().enumerate() {
                self.gather.leave(index);
                feed::end(feed.release(), false);
            }
            self.withdraw(Phase::Waiting, "the driver is let go on request");
        } else {
            log::info!("{sources} taken up again on request");
            self.sources_mut().for_each(Feed::take_up);
        }
    }

    /// Waits for something to do. Returns whose descriptor is readable, a bit each.
    fn wait(&self, control: &Control) -> Result<u32, BridgeError> {
        // A look at the pins wakes nobody up while rounds come in anyway.
        let mut deadline = (self.next_pin_check + PIN_CHECK_SLACK).min(self.next_summary);
        let timers = [self.next_mock_reminder, self.leftovers_until, self.gather.deadline()];
        let attempts = (0..self.feeds.len()).filter_map(|index| self.attempt_at(index)).map(Some);
        let feeds = self.feeds.iter().flat_map(|feed| [feed.withdraw_at, feed.open_deadline(&self.limits), feed.deadline()]);
        for timer in timers.into_iter().chain(attempts).chain(feeds).flatten() {
            deadline = deadline.min(timer);
        }

        let mut fds: [_; 1 + MOST_FEEDS] = array::from_fn(|_| PollFd::new(control.as_fd(), PollFlags::POLLIN));
        let mut owners = [0; MOST_FEEDS];
        let running = self.feeds.iter().enumerate().filter_map(|(index, feed)| Some((index, feed.as_fd()?)));
        let mut count = 0;
        for ((index, fd), (slot, owner)) in running.zip(fds[1..].iter_mut().zip(&mut owners)) {
            *slot = PollFd::new(fd, PollFlags::POLLIN);
            *owner = index;
            count += 1;
        }
        wait_until(&mut fds[..=count], Some(deadline)).map_err(BridgeError::Wait)?;
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        if is_ready(&fds[0]) {
            control.clear();
        }
        Ok(fds[1..=count].iter().zip(owners).map(|(fd, owner)| u32::from(is_ready(fd)) << owner).sum())
    }

    fn do_what_is_due(&mut self, now: Instant) -> Result<(), BridgeError> {
        self.note_turn(now);
        if now >= self.next_pin_check {
            self.next_pin_check = now + PIN_CHECK_INTERVAL;
            self.outlet.check_pins();
        }
        if now >= self.next_summary {
            self.next_summary = now + self.limits.report;
            self.summarise();
        }
        if self.next_mock_reminder.is_some_and(|at| now >= at) {
            let names: Vec<_> = self.sources().map(Feed::name).collect();
            log::warn!("the published data is still invented: {} cannot be opened", names.join(" and "));
            self.next_mock_reminder = Some(now + self.limits.report);
        }
        if self.leftovers_until.is_some_and(|at| now >= at) {
            self.leftovers_until = None;
            self.outlet.withdraw(self.outlet.phase(), "the source is being opened");
        }
        let stuck_limit = self.limits.stuck.max(self.poll_interval.saturating_mul(20));
        for index in 0..self.feeds.len() {
            let feed = &mut self.feeds[index];
            feed.note_slow_opening(&self.limits, now);
            if feed.open_deadline(&self.limits).is_some_and(|at| now >= at) {
                let hanging = feed.close();
                self.end_sampler(hanging);
                self.not_opened(index, OpenError::Failed(format!("it did not open within {:?}", self.limits.open)))?;
            }
            if self.attempt_at(index).is_some_and(|at| now >= at) {
                self.attempt(index)?;
            }
            if self.feeds[index].withdraw_at.is_some_and(|at| now >= at) {
                self.outdated(index, now);
            }
            let feed = &self.feeds[index];
            if feed.is_open() && now.saturating_duration_since(feed.last_news) >= stuck_limit {
                self.source_gone(index, &format!("no device has answered for {stuck_limit:?}"))?;
            }
        }
        if self.is_fallback_released && !self.is_released && self.sources().all(|feed| feed.is_closed_until_later(now)) {
            self.is_fallback_released = false;
            self.next_mock_reminder = Some(now + self.limits.report);
            self.feeds.iter_mut().filter(|feed| feed.is_fallback).for_each(Feed::take_up);
        }
        Ok(())
    }

    /// Time in which this process did not run is no time in which others did not answer.
    fn note_turn(&mut self, now: Instant) {
        let pause = now.saturating_duration_since(self.last_turn);
        self.last_turn = now;
        if pause < PIN_CHECK_INTERVAL + PIN_CHECK_SLACK + PAUSE {
            return;
        }
        log::warn!("the bridge did not run for {:.1} s", pause.as_secs_f64());
        self.feeds.iter_mut().for_each(|feed| feed.note_pause(pause, now));
    }

    fn summarise(&mut self) {
        let is_told = |feed: &Feed| feed.opened.is_some() && (!feed.is_fallback || feed.is_open());
        let mut summaries: Vec<_> =
            self.feeds.iter_mut().filter_map(|feed| is_told(feed).then(|| (feed.name(), feed.summarise()))).collect();
        if summaries.is_empty() {
            summaries.extend(self.feeds.first_mut().map(|feed| (feed.name(), feed.summarise())));
        }
        self.outlet.summarise(&summaries);
    }

    /// What one source published last was confirmed longer ago than it may stand.
    fn outdated(&mut self, index: usize, now: Instant) {
        let feed = &mut self.feeds[index];
        feed.forget();
        let silent = (now - feed.last_news).as_secs_f64();
        if self.others_stand(index) {
            let name = self.feeds[index].name();
            log::warn!("no device of {name} has answered for {silent:.1} s: its slots are empty until one does; the others go on");
            self.retract(index);
        } else {
            log::warn!("no device has answered for {silent:.1} s: the maps are empty until one does");
            self.withdraw(Phase::Waiting, "no device answers");
        }
    }

    fn attempt(&mut self, index: usize) -> Result<(), BridgeError> {
        let feed = &mut self.feeds[index];
        let name = feed.name();
        match feed.attempt(&self.bound) {
            Ok(()) => Ok(()),
            Err(NotStarted::Missing(what)) => self.not_opened(index, OpenError::NotAvailable(what)),
            Err(NotStarted::Failed(source)) if feed.is_fallback || (!self.is_settled && self.sources().count() == 1) => {
                Err(BridgeError::Launch { name, source })
            }
            Err(NotStarted::Failed(source)) if !self.is_settled => {
                self.not_opened(index, OpenError::Failed(format!("cannot start its sampler: {}", chain(&source))))
            }
            Err(NotStarted::Failed(source)) => {
                let failure = OpenError::Failed(chain(&source));
                self.feeds[index].say_trouble(format!("cannot start the {name} sampler: {failure}"));
                self.failed(index, failure)
            }
        }
    }

    fn hear(&mut self, ready: u32) -> Result<(), BridgeError> {
        for index in 0..self.feeds.len() {
            // A deadline may be "now": it is asked for before the time is.
            let is_due = |at: Instant| at <= Instant::now();
            if ready & 1 << index == 0 && !self.feeds[index].deadline().is_some_and(is_due) {
                continue;
            }
            loop {
                match self.feeds[index].hear() {
                    Heard::Nothing => break,
                    // It may have sent a round with it.
                    Heard::Opened(opened) => self.opened(index, opened),
                    Heard::Identified(identity) => self.identified(index, identity),
                    Heard::Round(has_news) => {
                        self.gather.deliver(index, has_news, Instant::now());
                        break;
                    }
                    Heard::NotOpened(error, sampler) => {
                        self.end_sampler(Some(sampler));
                        return self.not_opened(index, error);
                    }
                    Heard::Gone(what) => return self.source_gone(index, &what),
                    Heard::Died(error) => return self.sampler_died(index, &error),
                }
            }
        }
        Ok(())
    }

    /// Publishes what the sources have delivered.
    fn publish(&mut self, now: Instant) {
        let Self { feeds, gather, outlet, .. } = self;
        let skipped_ticks = feeds.iter().map(Feed::skipped_ticks).sum();
        let tick = outlet.publish(&picture(feeds, gather, |_| false), skipped_ticks);
        gather.take();
        if tick.outcome != Outcome::Nothing {
            self.leftovers_until = None;
        }
        let (hold, published) = (self.outlet.hold(), tick.outcome == Outcome::Published);
        let shown = self.feeds.iter_mut().filter(|feed| feed.has_round());
        for (_, feed) in (0..).zip(shown).filter(|(part, _)| tick.answered & 1 << part != 0) {
            feed.has_news(now, hold, published && !feed.is_fallback, &self.limits);
        }
    }

    /// Takes one source's records out of the maps, and leaves the others'.
    fn retract(&mut self, index: usize) {
        let Self { feeds, gather, outlet, .. } = self;
        let feed = &feeds[index];
        let lost = feed.first_index..feed.first_index.saturating_add(feed.reserved);
        outlet.retract(&picture(feeds, gather, |other| other == index), lost);
    }

    /// Empties the maps.
    fn withdraw(&mut self, phase: Phase, text: &str) {
        self.leftovers_until = None;
        self.feeds.iter_mut().for_each(Feed::forget);
        self.outlet.withdraw(phase, text);
    }

    fn end_sampler(&self, sampler: Option<Box<dyn Sampler>>) {
        feed::end(sampler, self.feeds.iter().any(Feed::is_open));
    }

    /// Whether records of other sources are in the maps.
    fn others_stand(&self, index: usize) -> bool {
        self.feeds.iter().enumerate().any(|(other, feed)| other != index && feed.stands())
    }

    /// Whether other sources are publishing.
    fn others_publish(&self, index: usize) -> bool {
        self.feeds.iter().enumerate().any(|(other, feed)| other != index && feed.stands() && feed.is_open())
    }

    fn is_falling_back(&self) -> bool {
        self.feeds.iter().any(|feed| feed.is_fallback && (feed.is_open() || feed.is_opening()))
    }

    fn is_one_of_several(&self) -> bool {
        self.sources().filter(|feed| feed.opened.is_some()).count() > 1
    }

    fn sources(&self) -> impl Iterator<Item = &Feed> {
        self.feeds.iter().filter(|feed| !feed.is_fallback)
    }

    fn sources_mut(&mut self) -> impl Iterator<Item = &mut Feed> {
        self.feeds.iter_mut().filter(|feed| !feed.is_fallback)
    }

    /// `nvml is`, or `nvml and drm are`: the sources that have been open, or all when none has.
    fn names(&self) -> String {
        let mut names: Vec<_> = self.sources().filter(|feed| feed.opened.is_some()).map(Feed::name).collect();
        if names.is_empty() {
            names.extend(self.sources().map(Feed::name));
        }
        format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
    }
}

/// What the sources have to say, but for some.
fn picture<'a>(feeds: &'a [Feed], gather: &Gather, is_left_out: impl Fn(usize) -> bool) -> Picture<'a> {
    let shown = feeds.iter().enumerate().filter(|(index, _)| !is_left_out(*index));
    let part = |(index, feed): (usize, &'a Feed)| {
        let news = gather.news(index);
        Some(Part { first_index: feed.first_index, news, round: feed.round(news)? })
    };
    shown.filter_map(part).collect()
}
