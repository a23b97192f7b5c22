//! Power: read as such, or from the growth of an energy counter.

use crate::sysfs::{Attribute, Files};

/// No board of one GPU draws more; what says so is a counter that was set, not energy that was used.
const MOST_MW: u64 = 10_000_000;
/// Counters advance in steps of some milliseconds: a rate over less time is noise.
const SHORTEST_NS: u64 = 20_000_000;

/// Where a card's power is to be had.
#[derive(Debug)]
pub(crate) enum Power {
    /// Files in µW, the first that answers counts.
    Direct(Vec<Attribute>),
    /// Energy counters in µJ, the first that counts at all.
    Energy(EnergyMeter),
}

impl Power {
    pub(crate) fn read_mw(&mut self, files: &dyn Files, now_ns: u64) -> Option<u32> {
        let mw = match self {
            Self::Direct(attributes) => attributes.iter_mut().find_map(|attribute| attribute.unsigned(files, now_ns))? / 1_000,
            Self::Energy(meter) => meter.read_mw(files, now_ns)?,
        };
        u32::try_from(mw).ok().filter(|_| mw <= MOST_MW)
    }

    /// What was measured before does not count any more: the card has slept.
    pub(crate) fn forget(&mut self) {
        if let Self::Energy(meter) = self {
            meter.last = None;
        }
    }
}

/// Turns an energy counter into power.
#[derive(Debug)]
pub(crate) struct EnergyMeter {
    counters: Vec<Attribute>,
    /// The one that has been seen to count.
    chosen: Option<usize>,
    last: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    energy_uj: u64,
    at_ns: u64,
    /// The power over the time before it.
    mw: Option<u64>,
}

impl EnergyMeter {
    pub(crate) const fn new(counters: Vec<Attribute>) -> Self {
        Self { counters, chosen: None, last: None }
    }

    fn read_mw(&mut self, files: &dyn Files, now_ns: u64) -> Option<u64> {
        let Some(energy_uj) = self.energy_uj(files, now_ns) else {
            self.last = None;
            return None;
        };
        let mw = match self.last {
            Some(last) if now_ns.saturating_sub(last.at_ns) < SHORTEST_NS => return last.mw,
            Some(last) => power_mw(last.energy_uj, energy_uj, now_ns - last.at_ns),
            None => None,
        };
        self.last = Some(Sample { energy_uj, at_ns: now_ns, mw });
        mw
    }

    /// Boards leave counters at 0 that are not theirs.
    fn energy_uj(&mut self, files: &dyn Files, now_ns: u64) -> Option<u64> {
        if let Some(chosen) = self.chosen {
            return self.counters[chosen].unsigned(files, now_ns);
        }
        for (place, counter) in self.counters.iter_mut().enumerate() {
            if let Some(energy_uj) = counter.unsigned(files, now_ns).filter(|energy_uj| *energy_uj > 0) {
                self.chosen = Some(place);
                return Some(energy_uj);
            }
        }
        None
    }
}

/// Nothing when the counter stepped back: it was reset, or it wrapped at a width that is not known.
fn power_mw(before_uj: u64, after_uj: u64, elapsed_ns: u64) -> Option<u64> {
    let mw = u128::from(after_uj.checked_sub(before_uj)?) * 1_000_000 / u128::from(elapsed_ns.max(1));
    u64::try_from(mw).ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::sysfs::SystemFiles;

    const SECOND_NS: u64 = 1_000_000_000;

    fn meter(directory: &Path) -> Power {
        Power::Energy(EnergyMeter::new(vec![
            Attribute::new(directory.join("energy1_input")),
            Attribute::new(directory.join("energy2_input")),
        ]))
    }

    fn counters(energy1_uj: u64, energy2_uj: u64) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("energy1_input"), format!("{energy1_uj}\n")).unwrap();
        fs::write(directory.path().join("energy2_input"), format!("{energy2_uj}\n")).unwrap();
        directory
    }

    #[test]
    fn power_is_the_growth_of_energy_and_absent_at_first() {
        let directory = counters(5_000_000, 0);
        let mut power = meter(directory.path());
        assert_eq!(power.read_mw(&SystemFiles, SECOND_NS), None);
        fs::write(directory.path().join("energy1_input"), "30000000").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 2 * SECOND_NS), Some(25_000));
        // Too soon for a figure: the one before stands.
        fs::write(directory.path().join("energy1_input"), "30000001").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 2 * SECOND_NS + 1_000_000), Some(25_000));
        assert_eq!(power.read_mw(&SystemFiles, 3 * SECOND_NS), Some(0));
    }

    /// As a real board shows it: the card's counter stands at 0, the package's counts.
    #[test]
    fn a_counter_at_zero_is_passed_over_for_one_that_counts() {
        let directory = counters(0, 29_523_753_173);
        let mut power = meter(directory.path());
        assert_eq!(power.read_mw(&SystemFiles, SECOND_NS), None);
        fs::write(directory.path().join("energy2_input"), "29523783173").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 2 * SECOND_NS), Some(30));
        // It stays with that one.
        fs::write(directory.path().join("energy1_input"), "7").unwrap();
        fs::write(directory.path().join("energy2_input"), "29523813173").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 3 * SECOND_NS), Some(30));
    }

    #[test]
    fn counters_that_all_stand_at_zero_give_no_power() {
        let directory = counters(0, 0);
        let mut power = meter(directory.path());
        assert_eq!(power.read_mw(&SystemFiles, SECOND_NS), None);
        assert_eq!(power.read_mw(&SystemFiles, 2 * SECOND_NS), None);
    }

    #[test]
    fn a_counter_that_steps_back_gives_no_figure_once() {
        let directory = counters(u64::MAX - 1_000_000, 0);
        let mut power = meter(directory.path());
        assert_eq!(power.read_mw(&SystemFiles, SECOND_NS), None);
        fs::write(directory.path().join("energy1_input"), "1000").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 2 * SECOND_NS), None, "wrapped or reset");
        fs::write(directory.path().join("energy1_input"), "4001000").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 3 * SECOND_NS), Some(4_000));
        fs::write(directory.path().join("energy1_input"), "-5").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 4 * SECOND_NS), None, "no energy");
    }

    #[test]
    fn what_no_board_can_draw_is_no_figure() {
        let directory = counters(1, 0);
        let mut power = meter(directory.path());
        assert_eq!(power.read_mw(&SystemFiles, SECOND_NS), None);
        fs::write(directory.path().join("energy1_input"), u64::MAX.to_string()).unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 2 * SECOND_NS), None);
    }

    #[test]
    fn after_a_sleep_power_starts_anew() {
        let directory = counters(1_000_000, 0);
        let mut power = meter(directory.path());
        assert_eq!(power.read_mw(&SystemFiles, SECOND_NS), None);
        power.forget();
        fs::write(directory.path().join("energy1_input"), "9000000").unwrap();
        assert_eq!(power.read_mw(&SystemFiles, 3_600 * SECOND_NS), None);
    }

    proptest! {
        #[test]
        fn any_counters_give_a_figure_or_none(before: u64, after: u64, elapsed_ns: u64) {
            let mw = power_mw(before, after, elapsed_ns);
            prop_assert!(before <= after || mw.is_none());
        }
    }
}
