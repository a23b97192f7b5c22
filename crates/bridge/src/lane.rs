//! A lane: asks one device what is due and keeps its newest reading.

use std::time::{Duration, Instant};

use telemetry::{Answer, Device, DeviceError, Identity};

use crate::{cadence::Cadence, clock::Clock, sampler::DeviceReading};

/// A lost device is asked again this often.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Lane {
    device: Box<dyn Device>,
    /// Who the device is, as it was last told.
    identity: Identity,
    cadence: Cadence,
    current: DeviceReading,
    epoch: Instant,
    time_in_source: Duration,
    /// So much of it was spent on threads of the device's own.
    time_elsewhere: Duration,
    /// So long its device waited for its turn among the source's devices in the last tick.
    waited: Duration,
    lost: Option<Lost>,
}

#[derive(Debug)]
struct Lost {
    since: Instant,
    retry_at: Instant,
}

/// What became of one tick of a lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The device was asked, or is known to be lost: see [`Lane::current`].
    Done,
    /// The source under all devices is gone.
    SourceGone(String),
}

impl Lane {
    pub(crate) fn new(device: Box<dyn Device>, poll_interval: Duration, rationed: bool) -> Self {
        let cadence = Cadence::new(device.probes().len(), poll_interval, rationed);
        let current = DeviceReading { index: device.identity().index, ..DeviceReading::default() };
        Self {
            identity: device.identity().clone(),
            device,
            cadence,
            current,
            epoch: Instant::now(),
            time_in_source: Duration::ZERO,
            time_elsewhere: Duration::ZERO,
            waited: Duration::ZERO,
            lost: None,
        }
    }

    /// What the device says. While it is lost, only that, and the time spent on it, counts: the rest may be half an answer.
    pub(crate) fn current(&self) -> &DeviceReading {
        &self.current
    }

    /// Who the device is, when that is not what was told before: one that could not be reached, or slept, when its source was opened.
    pub(crate) fn news_of_identity(&mut self) -> Option<Identity> {
        let identity = self.device.identity();
        (*identity != self.identity).then(|| {
            self.identity = identity.clone();
            self.identity.clone()
        })
    }

    /// How long its device waited for its turn among the source's devices in the last tick.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// One tick.
    pub(crate) fn step(&mut self, clock: &dyn Clock) -> Step {
        self.waited = Duration::ZERO;
        let step = self.ask(clock);
        self.current.time_in_source_ns = self.time_in_source.as_nanos() as u64;
        step
    }

    fn ask(&mut self, clock: &dyn Clock) -> Step {
        if let Some(lost) = &self.lost {
            if Instant::now() < lost.retry_at {
                return Step::Done;
            }
            self.cadence.ask_everything();
        }
        if self.lost.is_some() {
            // What it said before it was lost is no part of its new answer.
            self.current = DeviceReading { index: self.current.index, ..DeviceReading::default() };
        }
        let started_boottime_ns = clock.boottime_ns();
        match self.ask_what_is_due(clock) {
            Ok(()) => {
                self.current.answered_boottime_ns = started_boottime_ns;
                self.current.lost = false;
                if let Some(lost) = self.lost.take() {
                    log::info!("{} answers again after {:.1} s", self.describe(), lost.since.elapsed().as_secs_f64());
                }
                Step::Done
            }
            Err(DeviceError::Lost(what)) => {
                self.current.lost = true;
                let now = Instant::now();
                let since = match &self.lost {
                    Some(lost) => lost.since,
                    None => {
                        log::warn!("{} does not answer: {what}; the others go on", self.describe());
                        now
                    }
                };
                self.lost = Some(Lost { since, retry_at: now + RETRY_INTERVAL });
                Step::Done
            }
            Err(DeviceError::SourceGone(what)) => Step::SourceGone(what),
        }
    }

    fn ask_what_is_due(&mut self, clock: &dyn Clock) -> Result<(), DeviceError> {
        for probe in 0..self.device.probes().len() {
            let asked_at = Instant::now();
            let asked_ns = (asked_at - self.epoch).as_nanos() as u64;
            if !self.cadence.is_due(probe, self.device.period(probe), asked_ns) {
                continue;
            }
            let now = clock.now();
            let waiting = self.device.time_waiting();
            let answer = self.device.ask(probe, now, &mut self.current.reading);
            let waited = self.device.time_waiting().saturating_sub(waiting);
            self.waited += waited;
            let cost = asked_at.elapsed().saturating_sub(waited);
            self.cadence.asked(probe, asked_ns, cost);
            self.time_in_source += cost;
            let elsewhere = self.device.time_elsewhere();
            if let Some(cost) = elsewhere.checked_sub(self.time_elsewhere).filter(|cost| !cost.is_zero()) {
                self.cadence.spent_elsewhere(asked_ns, cost);
                self.time_in_source += cost;
                self.time_elsewhere = elsewhere;
            }
            match answer? {
                Answer::Answered => self.current.read = Some(now.stamp()),
                Answer::NotSupported => {
                    log::debug!("{} does not report {}", self.describe(), self.device.probes()[probe].name);
                    self.cadence.not_supported(probe);
                }
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let identity = self.device.identity();
        let known: Vec<_> = [&identity.name, &identity.uuid].into_iter().filter(|known| !known.is_empty()).map(String::as_str).collect();
        if known.is_empty() { format!("device {}", identity.index) } else { format!("device {} ({})", identity.index, known.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use telemetry::{Identity, Now, Probe, Reading};

    use super::*;
    use crate::clock::SystemClock;

    /// Answers its one probe as scripted.
    #[derive(Debug)]
    struct Scripted {
        identity: Identity,
        script: VecDeque<Result<Answer, DeviceError>>,
    }

    impl Device for Scripted {
        fn identity(&self) -> &Identity {
            &self.identity
        }

        fn probes(&self) -> &[Probe] {
            &[Probe { name: "utilization", period: Duration::ZERO }]
        }

        fn ask(&mut self, _probe: usize, _now: Now, reading: &mut Reading) -> Result<Answer, DeviceError> {
            let answer = self.script.pop_front().expect("asked once too often");
            reading.metrics.sm_util_pct = answer.as_ref().is_ok_and(|answer| *answer == Answer::Answered).then_some(50);
            answer
        }
    }

    fn lane(script: impl IntoIterator<Item = Result<Answer, DeviceError>>) -> Lane {
        let device = Scripted { identity: Identity { index: 3, ..Identity::default() }, script: script.into_iter().collect() };
        Lane::new(Box::new(device), Duration::from_nanos(1), false)
    }

    #[test]
    fn an_answer_is_kept_with_its_time() {
        let mut lane = lane([Ok(Answer::Answered)]);
        let before = SystemClock.now();
        assert_eq!(lane.step(&SystemClock), Step::Done);
        let current = lane.current();
        assert_eq!((current.index, current.lost, current.reading.metrics.sm_util_pct), (3, false, Some(50)));
        assert!(current.answered_boottime_ns >= before.boottime_ns);
        assert!(current.read.unwrap().boottime_ns() + 1_000_000 >= before.boottime_ns);
    }

    /// Waits for its turn in `ask`, and has a call of its own made elsewhere.
    #[derive(Debug, Default)]
    struct Patient {
        identity: Identity,
        waiting: Duration,
        elsewhere: Duration,
    }

    impl Device for Patient {
        fn identity(&self) -> &Identity {
            &self.identity
        }

        fn probes(&self) -> &[Probe] {
            &[Probe { name: "utilization", period: Duration::ZERO }]
        }

        fn ask(&mut self, _probe: usize, _now: Now, _reading: &mut Reading) -> Result<Answer, DeviceError> {
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            self.waiting += start.elapsed();
            self.elsewhere += Duration::from_millis(7);
            Ok(Answer::Answered)
        }

        fn time_elsewhere(&self) -> Duration {
            self.elsewhere
        }

        fn time_waiting(&self) -> Duration {
            self.waiting
        }
    }

    #[test]
    fn waiting_for_a_turn_costs_nothing_and_calls_made_elsewhere_do() {
        let mut lane = Lane::new(Box::new(Patient::default()), Duration::from_nanos(1), true);
        for asks in 1..=3 {
            assert_eq!(lane.step(&SystemClock), Step::Done);
            let spent = Duration::from_nanos(lane.current().time_in_source_ns);
            let elsewhere = Duration::from_millis(7) * asks;
            // Less than the waits, on a busy machine too.
            assert!((elsewhere..elsewhere + Duration::from_millis(15) * asks).contains(&spent), "{spent:?} after {asks}");
        }
    }

    #[test]
    fn what_is_not_supported_is_asked_once_and_is_no_reading() {
        let mut lane = lane([Ok(Answer::NotSupported)]);
        assert_eq!(lane.step(&SystemClock), Step::Done);
        assert_eq!(lane.step(&SystemClock), Step::Done);
        assert_eq!(lane.current().read, None);
    }

    #[test]
    fn a_lost_device_is_left_alone_for_a_while() {
        let mut lane = lane([Ok(Answer::Answered), Err(DeviceError::Lost("GPU is lost".to_owned()))]);
        assert_eq!(lane.step(&SystemClock), Step::Done);
        assert_eq!(lane.step(&SystemClock), Step::Done);
        assert_eq!(lane.step(&SystemClock), Step::Done, "not asked again at once");
        assert!(lane.current().lost);
    }

    #[test]
    fn a_source_that_is_gone_ends_the_lane() {
        let mut lane = lane([Err(DeviceError::SourceGone("driver not loaded".to_owned()))]);
        assert_eq!(lane.step(&SystemClock), Step::SourceGone("driver not loaded".to_owned()));
    }
}
