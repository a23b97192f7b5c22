//! How often a device is asked each of its questions.
//!
//! One rule for every probe: it is asked at the longest of the poll interval, the probe's own period, and its measured cost ÷ its share of
//! wall time. So a slow driver costs the workload no more than a fast one, without a table of exceptions.

use std::time::Duration;

/// Share of wall time that one probe may spend.
const PROBE_SHARE: f64 = 0.004;
/// Share of wall time that a device's probes may spend together.
const DEVICE_SHARE: f64 = 0.01;
/// A probe is first asked this many times in a row and the cheapest counts: first calls do one-time work.
const LEARNING_ASKS: u32 = 3;
/// How far one measurement may lie above the running cost before it is cut: a preempted thread is no dear call.
const OUTLIER_FACTOR: f64 = 8.0;
/// Weight of a new measurement in the running cost.
const WEIGHT: f64 = 0.125;
/// How early a tick may be, as a fraction of the poll interval, and still count for a probe that is asked at every tick, and for one that is
/// asked at a multiple: ticks jitter, and a multiple missed by a hair would be late by a whole interval.
const EARLY_EVERY_TICK: f64 = 0.5;
const EARLY_MULTIPLE: f64 = 0.05;
/// What a device spends beside its lane is averaged over this long: it comes in rare, dear calls.
const ELSEWHERE_AVERAGED_NS: f64 = 10e9;
/// What is left to the lane at least, whatever is spent beside it.
const LEAST_SHARE: f64 = DEVICE_SHARE / 4.0;

/// The timetable of one device's probes. Times are nanoseconds on one steady clock.
#[derive(Debug)]
pub(crate) struct Cadence {
    poll_interval_ns: f64,
    rationed: bool,
    probes: Vec<Timetable>,
    elsewhere: Elsewhere,
}

/// The share of time that a device spends beside its lane, when it last spent some.
#[derive(Clone, Copy, Debug, Default)]
struct Elsewhere {
    share: f64,
    at_ns: f64,
}

#[derive(Clone, Debug, Default)]
struct Timetable {
    asks: u32,
    asked_ns: Option<f64>,
    /// When the last ask was due as far as its cost goes: the next one's cost is counted from there, not from the tick that came after, so
    /// that an interval of 1.1 ticks is not one of 2.
    paid_ns: f64,
    cost_ns: f64,
    period_ns: f64,
    not_supported: bool,
}

impl Cadence {
    /// A timetable for `probes` probes, none asked yet. With `rationed` off, costs are measured but do not count.
    pub(crate) fn new(probes: usize, poll_interval: Duration, rationed: bool) -> Self {
        Self {
            poll_interval_ns: poll_interval.as_nanos() as f64,
            rationed,
            probes: vec![Timetable::default(); probes],
            elsewhere: Elsewhere::default(),
        }
    }

    /// Whether `probe` is to be asked now; `period` is the shortest at which its answer can change.
    pub(crate) fn is_due(&mut self, probe: usize, period: Duration, now_ns: u64) -> bool {
        self.probes[probe].period_ns = period.as_nanos() as f64;
        let timetable = &self.probes[probe];
        if timetable.not_supported {
            return false;
        }
        let Some(asked_ns) = timetable.asked_ns else { return true };
        // Both are looked at anew: a period that ends early, or a cost that was learned, counts at once.
        let has_passed = |since_ns: f64, interval_ns: f64| {
            let early = if interval_ns <= self.poll_interval_ns { EARLY_EVERY_TICK } else { EARLY_MULTIPLE };
            now_ns as f64 >= since_ns + interval_ns - early * self.poll_interval_ns
        };
        has_passed(asked_ns, self.wanted_ns(timetable)) && has_passed(timetable.paid_ns, self.interval_ns(probe, now_ns as f64))
    }

    /// Takes note of an ask that began at `asked_ns` and took `cost`.
    pub(crate) fn asked(&mut self, probe: usize, asked_ns: u64, cost: Duration) {
        let timetable = &mut self.probes[probe];
        let cost_ns = cost.as_nanos() as f64;
        timetable.cost_ns = match timetable.asks {
            0 => cost_ns,
            asks if asks < LEARNING_ASKS => timetable.cost_ns.min(cost_ns),
            _ => {
                let measured = cost_ns.min(timetable.cost_ns.max(1_000.0) * OUTLIER_FACTOR);
                timetable.cost_ns + WEIGHT * (measured - timetable.cost_ns)
            }
        };
        timetable.asks = timetable.asks.saturating_add(1);
        let is_first = timetable.asked_ns.is_none();
        let asked_ns = asked_ns as f64;
        timetable.asked_ns = Some(asked_ns);
        let interval_ns = self.interval_ns(probe, asked_ns);
        let timetable = &mut self.probes[probe];
        // What was missed by more than one interval is not made up.
        timetable.paid_ns = if is_first { asked_ns } else { (timetable.paid_ns + interval_ns).max(asked_ns - interval_ns) };
    }

    /// Takes note of time that the device spent in its source on a thread of its own: it leaves less for the lane.
    pub(crate) fn spent_elsewhere(&mut self, now_ns: u64, cost: Duration) {
        let now_ns = now_ns as f64;
        let share = self.share_elsewhere(now_ns) + cost.as_nanos() as f64 / ELSEWHERE_AVERAGED_NS;
        self.elsewhere = Elsewhere { share, at_ns: now_ns };
    }

    fn share_elsewhere(&self, now_ns: f64) -> f64 {
        let Elsewhere { share, at_ns } = self.elsewhere;
        share * libm::exp((at_ns - now_ns) / ELSEWHERE_AVERAGED_NS)
    }

    /// Everything that is supported is due now: what was answered before does not count any more.
    pub(crate) fn ask_everything(&mut self) {
        for timetable in &mut self.probes {
            timetable.asked_ns = None;
        }
    }

    /// The device does not report this: it is not asked again.
    pub(crate) fn not_supported(&mut self, probe: usize) {
        self.probes[probe].not_supported = true;
    }

    /// The interval at which `probe` is asked at `now_ns`.
    #[cfg(test)]
    fn interval(&self, probe: usize, now_ns: u64) -> Duration {
        Duration::from_nanos(self.interval_ns(probe, now_ns as f64) as u64)
    }

    fn interval_ns(&self, probe: usize, now_ns: f64) -> f64 {
        let timetable = &self.probes[probe];
        if !self.rationed || timetable.asks < LEARNING_ASKS {
            return self.wanted_ns(timetable);
        }
        let rationed = self.rationed_ns(timetable);
        let share = (DEVICE_SHARE - self.share_elsewhere(now_ns)).max(LEAST_SHARE);
        // The whole device's share is kept by stretching what is dear; what costs next to nothing stays as it is.
        let next_to_nothing = share / (2 * self.probes.len()) as f64;
        let load = |t: &Timetable| t.cost_ns / self.rationed_ns(t);
        if load(timetable) <= next_to_nothing {
            return rationed;
        }
        let (mut cheap, mut dear) = (0.0, 0.0);
        for load in self.probes.iter().filter(|t| !t.not_supported).map(load) {
            if load <= next_to_nothing { cheap += load } else { dear += load }
        }
        rationed * (dear / (share - cheap)).max(1.0)
    }

    fn wanted_ns(&self, timetable: &Timetable) -> f64 {
        self.poll_interval_ns.max(timetable.period_ns)
    }

    fn rationed_ns(&self, timetable: &Timetable) -> f64 {
        self.wanted_ns(timetable).max(timetable.cost_ns / PROBE_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Ticks for `seconds` at 100 ms with probes of the given costs (µs) and periods (ms); returns how often each was asked.
    fn asks(seconds: u64, rationed: bool, probes: &[(u64, u64)]) -> Vec<u64> {
        let mut cadence = Cadence::new(probes.len(), Duration::from_millis(100), rationed);
        let mut asks = vec![0; probes.len()];
        for tick in 0..seconds * 10 {
            let mut now = tick * 100 * MS;
            for (probe, &(cost_us, period_ms)) in probes.iter().enumerate() {
                if cadence.is_due(probe, Duration::from_millis(period_ms), now) {
                    cadence.asked(probe, now, Duration::from_micros(cost_us));
                    now += cost_us * 1_000;
                    asks[probe] += 1;
                }
            }
        }
        asks
    }

    #[track_caller]
    fn check(probe: (u64, u64), asks_in_100_s: std::ops::RangeInclusive<u64>) {
        let asked = asks(100, true, &[probe])[0];
        assert!(asks_in_100_s.contains(&asked), "asked {asked} times");
    }

    #[test]
    fn a_cheap_probe_is_asked_at_every_tick() {
        check((1, 0), 1000..=1000);
    }

    #[test]
    fn a_probes_own_period_is_kept() {
        check((1, 1000), 95..=105);
    }

    #[test]
    fn dear_probes_are_asked_as_often_as_their_share_allows() {
        check((200, 0), 1000..=1000);
        check((1_700, 0), 230..=245);
        check((4_500, 0), 87..=95);
        check((21_000, 0), 19..=24);
    }

    #[test]
    fn an_interval_between_one_tick_and_two_is_kept_on_average() {
        // 0.44 ms ÷ 0.4 % is 110 ms.
        check((440, 0), 905..=915);
    }

    #[test]
    fn a_period_that_ends_early_counts_at_once() {
        let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
        let hour = Duration::from_secs(3_600);
        assert!(cadence.is_due(0, hour, 0));
        cadence.asked(0, 0, Duration::from_micros(1_700));
        assert!(!cadence.is_due(0, hour, 5_000 * MS));
        assert!(cadence.is_due(0, Duration::ZERO, 5_100 * MS));
    }

    #[test]
    fn a_period_is_counted_from_the_asking() {
        let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
        cadence.asked(0, 0, Duration::from_micros(1));
        cadence.asked(0, 5_000 * MS, Duration::from_micros(1));
        assert!(!cadence.is_due(0, Duration::from_millis(700), 5_600 * MS));
        assert!(cadence.is_due(0, Duration::from_millis(700), 5_700 * MS));
    }

    #[test]
    fn what_is_spent_beside_the_lane_counts_for_the_device() {
        let mut cadence = Cadence::new(2, Duration::from_millis(100), true);
        let (mut spent_us, mut elsewhere_us) = (0, 0);
        for tick in 0..3_000 {
            let now = tick * 100 * MS;
            // A blocking call of 21 ms about every 5 s.
            if tick % 53 == 0 {
                cadence.spent_elsewhere(now, Duration::from_millis(21));
                elsewhere_us += 21_000;
            }
            for probe in 0..2 {
                if cadence.is_due(probe, Duration::ZERO, now) {
                    cadence.asked(probe, now, Duration::from_micros(400));
                    spent_us += 400;
                }
            }
        }
        assert!(elsewhere_us > 1_100_000, "{elsewhere_us} µs");
        assert!((2_800_000..=3_050_000).contains(&(spent_us + elsewhere_us)), "{spent_us} + {elsewhere_us} µs in 300 s");
    }

    #[test]
    fn after_a_long_pause_nothing_is_made_up() {
        let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
        cadence.asked(0, 0, Duration::from_micros(1));
        let mut asks = 0;
        for tick in 600..610 {
            let now = tick * 100 * MS;
            if cadence.is_due(0, Duration::from_millis(300), now) {
                cadence.asked(0, now, Duration::from_micros(1));
                asks += 1;
            }
        }
        assert!(asks <= 5, "asked {asks} times in a second");
    }

    #[test]
    fn unrationed_probes_are_asked_at_every_tick_whatever_they_cost() {
        assert_eq!(asks(10, false, &[(5_000, 0)]), [100]);
    }

    #[test]
    fn one_preemption_does_not_make_a_cheap_probe_rare() {
        let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
        for tick in 0..10 {
            cadence.asked(0, tick * 100 * MS, Duration::from_micros(2));
        }
        cadence.asked(0, 1_000 * MS, Duration::from_millis(30));
        assert_eq!(cadence.interval(0, 1_000 * MS), Duration::from_millis(100));
    }

    #[test]
    fn a_call_that_became_dear_is_asked_less_often() {
        let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
        for tick in 0..40 {
            let cost = if tick < 10 { 2 } else { 20_000 };
            cadence.asked(0, tick * 100 * MS, Duration::from_micros(cost));
        }
        let interval = cadence.interval(0, 4_000 * MS);
        assert!(interval > Duration::from_secs(4), "{interval:?}");
    }

    #[test]
    fn what_is_not_supported_is_never_due_again() {
        let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
        assert!(cadence.is_due(0, Duration::ZERO, 0));
        cadence.not_supported(0);
        assert!(!cadence.is_due(0, Duration::ZERO, 1_000_000 * MS));
    }

    #[test]
    fn published_costs_stay_under_one_per_cent_of_wall_time() {
        // utilization & co, memory, compute list, graphics list, fan, PCIe counters, process utilization
        let probes = [(8, 0), (3, 0), (200, 0), (130, 0), (400, 0), (400, 0), (1_700, 1_000)];
        let spent: u64 = asks(100, true, &probes).iter().zip(probes).map(|(asks, (cost_us, _))| asks * cost_us).sum();
        assert!(spent <= 1_000_000 + 100_000, "{spent} µs in 100 s");
    }

    proptest! {
        #[test]
        fn for_any_costs_periods_and_lateness_each_probe_is_asked_and_never_ahead_of_its_interval(
            cost_us in 0_u64..50_000,
            ticks in prop::collection::vec((0_u64..250, 0_u64..3_000), 10..400),
        ) {
            let mut cadence = Cadence::new(1, Duration::from_millis(100), true);
            let (mut now, mut last) = (0, None);
            for (late_ms, period_ms) in ticks {
                now += (100 + late_ms) * MS;
                let period = Duration::from_millis(period_ms);
                let is_due = cadence.is_due(0, period, now);
                if let Some(last) = last {
                    let gap = Duration::from_nanos(now - last);
                    prop_assert!(!is_due || gap + Duration::from_millis(5) >= period, "{gap:?} of {period:?}");
                    let longest = period.max(cadence.interval(0, now)) * 2 + Duration::from_millis(350);
                    prop_assert!(is_due || gap < longest, "{gap:?} of {period:?}");
                }
                if is_due {
                    cadence.asked(0, now, Duration::from_micros(cost_us));
                    last = Some(now);
                }
            }
        }

        #[test]
        fn for_any_costs_the_devices_share_is_kept(probes in prop::collection::vec((0_u64..50_000, 0_u64..2_000), 1..14)) {
            let spent: u64 = asks(600, true, &probes).iter().zip(&probes).map(|(asks, (cost_us, _))| asks * cost_us).sum();
            let learning: u64 = probes.iter().map(|(cost_us, _)| cost_us * u64::from(LEARNING_ASKS)).sum();
            // Asks may come a twentieth of an interval early.
            prop_assert!(spent - learning.min(spent) <= 600 * 10_500, "{} µs a second", spent / 600);
        }
    }
}
