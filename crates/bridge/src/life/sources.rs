//! What it means for the maps and for the others that a source opens, does not, or is gone.

use std::time::Instant;

use telemetry::{Identity, OpenError};

use super::{Life, Unavailable, picture};
use crate::{
    BridgeError, SamplerError,
    describe::{self, Listed},
    error::chain,
    feed::{self, Feed},
    outlet::SourceKind,
    plan::Phase,
    sampler::Opened,
};

impl Life {
    pub(super) fn opened(&mut self, index: usize, opened: Opened) {
        if self.feeds[index].stands() && self.feeds[index].has_exchanged(&opened) {
            self.take_back(index);
        }
        self.feeds[index].has_opened(opened);
        self.gather.join(index);
        if !self.feeds[index].is_fallback {
            self.end_fallback();
            self.is_fallback_released = false;
            self.next_mock_reminder = None;
            self.tell_who_is_missing();
        }
        self.is_settled = true;
        let moved = self.place(index);
        if let Some(source) = listed(&self.feeds, index, true) {
            self.outlet.announce(&source);
        }
        self.list(&moved);
        self.say_who_has_no_room(&moved);
    }

    /// What stands of a source that was open before is another device's: nobody is to take one for another.
    fn take_back(&mut self, index: usize) {
        if self.others_stand(index) {
            self.feeds[index].forget();
            self.retract(index);
        } else {
            self.withdraw(Phase::Starting, "the source is open");
        }
    }

    /// A device was found to be this one: the state names it, and its records stand.
    pub(super) fn identified(&mut self, index: usize, identity: Identity) {
        let feed = &mut self.feeds[index];
        let place = feed.first_index.saturating_add(identity.index);
        log::info!("device {place} is {}", describe::in_words(&identity));
        feed.has_identified(identity);
        self.list(&[]);
    }

    /// What the fallback invented goes before the first real round.
    fn end_fallback(&mut self) {
        let Some(index) = self.feeds.iter().position(|feed| feed.is_fallback) else { return };
        let is_published = self.feeds[index].is_open();
        self.gather.leave(index);
        drop(self.feeds[index].close());
        self.feeds[index].next_attempt = None;
        if is_published {
            self.withdraw(Phase::Starting, "the source is open");
        }
    }

    /// A source is open: those that could not be opened before it are tried again from time to time.
    fn tell_who_is_missing(&mut self) {
        for index in 0..self.feeds.len() {
            if let Some(error) = self.feeds[index].first_failure.take() {
                self.say_missing(index, &error);
                self.feeds[index].try_again(self.outlet.noise());
            }
        }
    }

    /// The first words on a source that is not there while others are.
    fn say_missing(&mut self, index: usize, error: &OpenError) {
        let feed = &mut self.feeds[index];
        let text = cannot_be_opened(feed, error);
        match error {
            OpenError::NotAvailable(_) => log::info!("{text}; it is tried again from time to time"),
            OpenError::Failed(_) => log::warn!("{text}; it is tried again from time to time"),
        }
        feed.note_trouble(text);
    }

    /// Gives the sources their indices: each begins where the one before it has ever reached. Returns whose devices are where they were not: those of
    /// the source that was opened, and of those that had to make room.
    fn place(&mut self, opened: usize) -> Vec<usize> {
        let mut next = 0;
        let mut firsts = Vec::new();
        for feed in self.sources() {
            firsts.push(next);
            next += feed.reserved;
        }
        let has_moved = |(index, first): (usize, &u32)| {
            let feed = &self.feeds[index];
            (index != opened && feed.opened.is_some() && feed.first_index != *first).then_some(index)
        };
        let moved: Vec<_> = firsts.iter().enumerate().filter_map(has_moved).collect();
        for &index in &moved {
            log::warn!(
                "the devices of {} move from index {} on to {} on, to make room for those of {}",
                self.feeds[index].name(),
                self.feeds[index].first_index,
                firsts[index],
                self.feeds[opened].name()
            );
        }
        if moved.iter().any(|&index| self.feeds[index].stands()) {
            // Nobody is to take one device for another.
            let Self { feeds, gather, outlet, .. } = self;
            outlet.retract(&picture(feeds, gather, |index| moved.contains(&index)), 0..0);
            moved.iter().for_each(|&index| feeds[index].forget());
        }
        // The fallback, the last of the feeds, has none before it.
        for (feed, first) in self.feeds.iter_mut().zip(firsts) {
            feed.first_index = first;
        }
        [opened].into_iter().chain(moved).collect()
    }

    fn say_who_has_no_room(&self, changed: &[usize]) {
        let slots = gpu_types::GPU_MAX_DEVICES;
        for source in changed.iter().filter_map(|&index| listed(&self.feeds, index, false)) {
            let beyond = source.devices().filter(|(index, _)| *index >= slots).count();
            if beyond > 0 {
                log::warn!("{beyond} devices of {} are not published: the maps have room for index 0 to {}", source.name, slots - 1);
            }
        }
    }

    /// Has the sources described; those in `changed` anew.
    fn list(&mut self, changed: &[usize]) {
        let is_falling_back = self.is_falling_back();
        let kind = match self.feeds.iter().find(|feed| feed.is_open()) {
            // What was last said stands.
            None => return,
            Some(_) if is_falling_back => SourceKind::MockFallback,
            Some(feed) if feed.is_mock() => SourceKind::Mock,
            Some(_) => SourceKind::Real,
        };
        let Self { feeds, outlet, .. } = self;
        let shown = (0..feeds.len()).filter(|&index| feeds[index].is_fallback == is_falling_back);
        let sources: Vec<_> = shown.filter_map(|index| listed(feeds, index, changed.contains(&index))).collect();
        outlet.list(&sources, kind);
    }

    /// A source could not be opened: at the start, and only then, that may end the bridge.
    pub(super) fn not_opened(&mut self, index: usize, error: OpenError) -> Result<(), BridgeError> {
        let feed = &mut self.feeds[index];
        if feed.is_fallback {
            return Err(BridgeError::Open { name: feed.name(), source: error });
        }
        if !self.is_settled {
            feed.first_failure = Some(error);
            return if self.sources().all(|feed| feed.first_failure.is_some()) { self.decide() } else { Ok(()) };
        }
        if feed.is_known() {
            let text = cannot_be_opened(feed, &error);
            feed.say_trouble(text);
        } else {
            self.say_missing(index, &error);
        }
        match error {
            OpenError::NotAvailable(_) => {
                self.feeds[index].try_again(self.outlet.noise());
                Ok(())
            }
            OpenError::Failed(_) => self.failed(index, error),
        }
    }

    /// None of the sources can be opened.
    fn decide(&mut self) -> Result<(), BridgeError> {
        let mut failures: Vec<_> = self.sources_mut().filter_map(|feed| Some((feed.name(), feed.first_failure.take()?))).collect();
        let texts: Vec<_> = self.sources().zip(&failures).map(|(feed, (_, error))| cannot_be_opened(feed, error)).collect();
        let text = texts.join("; ");
        match self.when_unavailable {
            Unavailable::Fail => {
                return Err(match failures.pop() {
                    Some((name, source)) if failures.is_empty() => BridgeError::Open { name, source },
                    last => BridgeError::NoneOpen { failures: failures.into_iter().chain(last).collect() },
                });
            }
            Unavailable::Wait => {
                log::warn!("{text}; waiting for it, nothing is published until then");
                let none_is_there = failures.iter().all(|(_, error)| matches!(error, OpenError::NotAvailable(_)));
                self.withdraw(if none_is_there { Phase::Idle } else { Phase::Waiting }, &text);
            }
            Unavailable::FallBack => {
                let fallback = self.feeds.iter_mut().find(|feed| feed.is_fallback);
                let name = fallback.map_or("", |feed| {
                    feed.next_attempt = Some(Instant::now());
                    feed.name()
                });
                log::warn!("{text}; THE PUBLISHED DATA IS INVENTED by the {name} source until it can");
                self.next_mock_reminder = Some(Instant::now() + self.limits.report);
            }
        }
        self.is_settled = true;
        let noise = self.outlet.noise();
        for (feed, text) in self.sources_mut().zip(texts) {
            feed.note_trouble(text);
            feed.try_again(noise);
        }
        Ok(())
    }

    /// The driver is gone: what its source published is not true any more.
    pub(super) fn source_gone(&mut self, index: usize, what: &str) -> Result<(), BridgeError> {
        if self.feeds[index].is_reopened_at_once(&self.limits, Instant::now()) {
            self.reopen(index, what);
            return Ok(());
        }
        let stood = self.feeds[index].stands();
        let sampler = self.feeds[index].close();
        self.gather.leave(index);
        self.end_sampler(sampler);
        let name = self.feeds[index].name();
        if self.feeds[index].is_fallback {
            return self.fallback_failed(index, what);
        }
        if self.others_stand(index) {
            log::warn!("{name} is gone: {what}; waiting for it, its slots are empty until then; the others go on");
            if stood {
                self.retract(index);
            }
        } else {
            log::warn!("{name} is gone: {what}; waiting for it, the maps are empty until then");
            self.withdraw(Phase::Waiting, &format!("{name} is gone: {what}"));
        }
        self.list(&[]);
        self.failed(index, OpenError::Failed(what.to_owned()))
    }

    /// A source has other devices than it had, which is no fault of anybody's.
    fn reopen(&mut self, index: usize, what: &str) {
        let sampler = self.feeds[index].reopen();
        self.gather.leave(index);
        // Its successor does not wait for its end.
        feed::end(sampler, true);
        log::info!("{} is opened anew: {what}", self.feeds[index].name());
    }

    /// A sampler that died takes no device with it: its last round stands for its hold.
    pub(super) fn sampler_died(&mut self, index: usize, error: &SamplerError) -> Result<(), BridgeError> {
        let sampler = self.feeds[index].close_dead(error);
        self.gather.leave(index);
        self.end_sampler(sampler);
        let what = chain(error);
        if self.feeds[index].is_fallback {
            return self.fallback_failed(index, &what);
        }
        if self.is_one_of_several() {
            log::warn!("{}: {what}; it is started anew", self.feeds[index].name());
        } else {
            log::warn!("{what}; it is started anew");
        }
        self.failed(index, OpenError::Failed(what))
    }

    fn fallback_failed(&mut self, index: usize, what: &str) -> Result<(), BridgeError> {
        log::warn!("the fallback is started anew: {what}");
        self.attempt(index)
    }

    /// Counts what waiting may not mend, and tries again; news from the source sets the count back. What is a reason to start afresh when nothing else
    /// is published is none to take the others' data away.
    pub(super) fn failed(&mut self, index: usize, source: OpenError) -> Result<(), BridgeError> {
        let feed = &mut self.feeds[index];
        feed.failures += 1;
        let (name, attempts) = (feed.name(), feed.failures);
        if attempts < self.limits.most_failures || self.is_falling_back() {
            self.feeds[index].try_again(self.outlet.noise());
        } else if self.others_publish(index) {
            if attempts == self.limits.most_failures {
                log::warn!("{name} failed {attempts} times in a row; it is tried again rarely, since others are published");
            }
            self.feeds[index].try_again_rarely(self.outlet.noise());
        } else {
            return Err(BridgeError::GaveUp { name, attempts, source });
        }
        Ok(())
    }
}

fn listed(feeds: &[Feed], index: usize, is_new: bool) -> Option<Listed<'_>> {
    let feed = &feeds[index];
    let opened = feed.opened.as_ref()?;
    Some(Listed { name: feed.name(), first_index: feed.first_index, opened, is_open: feed.is_open(), is_new })
}

fn cannot_be_opened(feed: &Feed, error: &OpenError) -> String {
    format!("{} cannot be opened: {error}", feed.name())
}
