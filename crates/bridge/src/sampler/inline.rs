//! A source that is asked on the thread that publishes: no other thread, nothing to wake up and nothing to hand over.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use telemetry::{Identity, OpenError, TelemetrySource};

use super::{DeviceReading, Event, Opened, Round, Sampler, board::Schedule};
use crate::{
    SamplerError,
    clock::Clock,
    lane::{Lane, Step},
};

/// Lanes that are asked by whoever receives.
#[derive(Debug)]
pub(super) struct InlineSampler {
    announcement: Option<Result<Opened, OpenError>>,
    lanes: Vec<Lane>,
    schedule: Schedule,
    /// The tick that comes next.
    tick: u64,
    clock: Arc<dyn Clock>,
    round: Round,
    /// Devices that were found to be others, not told of yet; the round that was read then comes after them.
    identified: VecDeque<Identity>,
    /// The outcome of asking, not told of yet.
    asked: Option<Result<(), String>>,
    /// A sampler has a descriptor; this one's is never readable.
    never: EventFd,
}

impl InlineSampler {
    pub(super) fn start(source: &mut dyn TelemetrySource, poll_interval: Duration, clock: Arc<dyn Clock>) -> Result<Self, SamplerError> {
        let never = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)
            .map_err(|errno| SamplerError::Io { doing: "make an event descriptor", source: errno.into() })?;
        let (announcement, devices) = match super::open(source) {
            Ok((opened, devices)) => (Ok(opened), devices),
            Err(error) => (Err(error), Vec::new()),
        };
        let rationed = !source.is_free();
        Ok(Self {
            announcement: Some(announcement),
            round: Round { devices: devices.iter().map(|device| DeviceReading::of(device.identity())).collect(), ..Round::default() },
            lanes: devices.into_iter().map(|device| Lane::new(device, poll_interval, rationed)).collect(),
            schedule: Schedule::begin(poll_interval),
            tick: 0,
            identified: VecDeque::new(),
            asked: None,
            clock,
            never,
        })
    }

    /// Asks every device; what happened when the source is gone.
    fn ask(&mut self) -> Result<(), String> {
        let started_boottime_ns = self.clock.boottime_ns();
        self.round.has_news = false;
        for (lane, device) in self.lanes.iter_mut().zip(&mut self.round.devices) {
            if let Step::SourceGone(what) = lane.step(self.clock.as_ref()) {
                return Err(what);
            }
            self.identified.extend(lane.news_of_identity());
            device.update_from(lane.current());
            self.round.has_news |= !device.lost;
        }
        if self.round.has_news {
            self.round.started_boottime_ns = started_boottime_ns;
        }
        Ok(())
    }
}

impl Sampler for InlineSampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        match self.announcement {
            Some(_) => Some(Instant::now()),
            None if self.asked.is_some() => Some(Instant::now()),
            None => Some(self.schedule.start(self.tick)),
        }
    }

    fn receive(&mut self) -> Result<Event, SamplerError> {
        match self.announcement.take() {
            Some(Ok(opened)) => return Ok(Event::Opened(opened)),
            Some(Err(error)) => return Ok(Event::OpenFailed(error)),
            None => {}
        }
        if self.asked.is_none() && Instant::now() >= self.schedule.start(self.tick) {
            self.asked = Some(self.ask());
            let next = self.schedule.next_tick(Instant::now()).max(self.tick + 1);
            self.round.skipped_ticks += next - self.tick - 1;
            self.tick = next;
        }
        if let Some(identity) = self.identified.pop_front() {
            return Ok(Event::Identified(identity));
        }
        Ok(match self.asked.take() {
            None => Event::Nothing,
            Some(Ok(())) => Event::Round,
            Some(Err(what)) => Event::SourceGone(what),
        })
    }

    fn round(&self) -> &Round {
        &self.round
    }
}

#[cfg(test)]
mod tests {
    use telemetry::{Answer, Device, DeviceError, Now, OpenSource, Probe, Reading, SourceInfo, mock::MockSource};

    use super::*;
    use crate::clock::SystemClock;

    const INTERVAL: Duration = Duration::from_millis(10);

    fn open(source: MockSource) -> InlineSampler {
        let mut source = source;
        let mut sampler = InlineSampler::start(&mut source, INTERVAL, Arc::new(SystemClock)).unwrap();
        assert!(sampler.deadline().unwrap() <= Instant::now());
        let Event::Opened(opened) = sampler.receive().unwrap() else { panic!("not opened") };
        assert_eq!(opened.devices.len(), sampler.round().devices.len());
        sampler
    }

    #[test]
    fn each_tick_is_a_round_at_its_time() {
        let mut sampler = open(MockSource::new(3, 2));
        assert!(matches!(sampler.receive().unwrap(), Event::Round), "the first is asked for at once");
        let mut last = sampler.round().started_boottime_ns;
        for _ in 0..5 {
            let deadline = sampler.deadline().unwrap();
            if Instant::now() < deadline {
                assert!(matches!(sampler.receive().unwrap(), Event::Nothing));
            }
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            assert!(matches!(sampler.receive().unwrap(), Event::Round));
            let round = sampler.round();
            assert!(round.has_news && round.started_boottime_ns > last);
            assert!(round.devices.iter().all(|device| device.answered_boottime_ns >= round.started_boottime_ns));
            assert_eq!(round.devices.iter().map(|device| device.reading.processes.len()).collect::<Vec<_>>(), [2, 2, 2]);
            last = round.started_boottime_ns;
        }
    }

    /// Its name is known once it was asked.
    #[derive(Debug, Default)]
    struct Sleeper(Identity);

    impl Device for Sleeper {
        fn identity(&self) -> &Identity {
            &self.0
        }

        fn probes(&self) -> &[Probe] {
            &[Probe { name: "utilization", period: Duration::ZERO }]
        }

        fn ask(&mut self, _probe: usize, _now: Now, _reading: &mut Reading) -> Result<Answer, DeviceError> {
            self.0.name = "awake".to_owned();
            Ok(Answer::Answered)
        }
    }

    struct Bedroom;

    impl TelemetrySource for Bedroom {
        fn open(&mut self) -> Result<OpenSource, OpenError> {
            Ok(OpenSource { info: SourceInfo::default(), devices: vec![Box::new(Sleeper::default())] })
        }
    }

    #[test]
    fn who_a_device_is_found_to_be_is_told_before_what_it_reads() {
        let mut sampler = InlineSampler::start(&mut Bedroom, INTERVAL, Arc::new(SystemClock)).unwrap();
        assert!(matches!(sampler.receive().unwrap(), Event::Opened(_)));
        assert!(matches!(sampler.receive().unwrap(), Event::Identified(identity) if identity.name == "awake"));
        assert!(sampler.deadline().unwrap() <= Instant::now(), "the round is there");
        assert!(matches!(sampler.receive().unwrap(), Event::Round));
    }

    #[test]
    fn no_more_devices_are_read_than_have_a_slot() {
        assert_eq!(open(MockSource::new(20, 0)).round().devices.len(), 16);
    }

    #[test]
    fn what_was_missed_is_skipped_and_counted() {
        let mut sampler = open(MockSource::new(1, 0));
        assert!(matches!(sampler.receive().unwrap(), Event::Round));
        let skipped = sampler.round().skipped_ticks;
        std::thread::sleep(INTERVAL * 4);
        assert!(matches!(sampler.receive().unwrap(), Event::Round));
        assert!(sampler.round().skipped_ticks >= skipped + 2, "{} after {skipped}", sampler.round().skipped_ticks);
        assert!(sampler.deadline().unwrap() > Instant::now() - INTERVAL, "not made up");
    }
}
