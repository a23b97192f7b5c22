//! What is done to the bridge, and in which order.

use std::fmt;
use std::time::Duration;

use crate::dice::Dice;

/// How many GPUs there usually are.
pub(crate) const DEVICES: usize = 4;
const MOST_DEVICES: u64 = 6;
/// Every scene is a gentle one but for each so-manieth, beginning with the first: a sampler, too, must live for a while.
const ROUGH_EVERY: u64 = 3;
/// Failures of the source between two that the driver is let go and taken up again, which has the bridge's patience begin anew.
const FAILURES_IN_A_ROW: usize = 2;

/// Something that is done and then undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// More processes than the maps have room for.
    Crowd,
    DeviceLost(usize),
    DeviceHangs(usize),
    EveryCallHangs,
    /// So many of the five pins are removed.
    PinsRemoved(usize),
    /// The daemon is stopped and continued.
    DaemonStopped,
    EverythingUnknown,
    Uninitialized,
    LibraryGone,
    LibraryReplaced,
    SamplerKilled,
    SamplerCrashes,
    /// SIGUSR1, then SIGUSR2 with so many GPUs.
    LetGo(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) act: Act,
    /// Until it is undone.
    pub(crate) lasts: Duration,
}

/// One scene after the other, for ever.
#[derive(Debug)]
pub(crate) struct Script {
    dice: Dice,
    scenes: u64,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed, 1), scenes: 0 }
    }

    /// The next scene: everything that may happen in it, once, in another order each time.
    pub(crate) fn scene(&mut self) -> Vec<Step> {
        let mut acts = Vec::new();
        if self.scenes.is_multiple_of(ROUGH_EVERY) {
            acts.extend(self.failures());
        }
        self.scenes += 1;
        let device = self.dice.below(DEVICES as u64) as usize;
        let other = self.dice.below(DEVICES as u64) as usize;
        let pins = self.dice.between(1, 5) as usize;
        let mut gentle =
            [Act::Crowd, Act::DeviceLost(device), Act::DeviceHangs(other), Act::EveryCallHangs, Act::PinsRemoved(pins), Act::DaemonStopped];
        self.dice.shuffle(&mut gentle);
        acts.extend(gentle);
        acts.into_iter().map(|act| Step { act, lasts: Duration::from_millis(self.dice.between(50, 1_200)) }).collect()
    }

    /// Everything that costs the source. At the end the usual number of GPUs is there.
    fn failures(&mut self) -> Vec<Act> {
        let mut failures =
            [Act::EverythingUnknown, Act::Uninitialized, Act::LibraryGone, Act::LibraryReplaced, Act::SamplerKilled, Act::SamplerCrashes];
        self.dice.shuffle(&mut failures);
        let mut acts = Vec::new();
        for row in failures.chunks(FAILURES_IN_A_ROW) {
            acts.extend(row);
            acts.push(Act::LetGo(self.dice.between(1, MOST_DEVICES) as usize));
        }
        if let Some(last) = acts.last_mut() {
            *last = Act::LetGo(DEVICES);
        }
        acts
    }
}

impl Act {
    /// Without its particulars.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Crowd => "more processes than the maps hold",
            Self::DeviceLost(_) => "a GPU is lost",
            Self::DeviceHangs(_) => "a GPU hangs",
            Self::EveryCallHangs => "every call hangs",
            Self::PinsRemoved(_) => "pins are removed",
            Self::DaemonStopped => "the daemon is stopped",
            Self::EverythingUnknown => "unknown errors from everything",
            Self::Uninitialized => "the library is uninitialized",
            Self::LibraryGone => "driver and library are gone",
            Self::LibraryReplaced => "driver and library are replaced",
            Self::SamplerKilled => "the sampler is killed",
            Self::SamplerCrashes => "the library crashes",
            Self::LetGo(_) => "the driver is let go on request",
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::DeviceLost(number) | Self::DeviceHangs(number) => write!(f, " (number {number})"),
            Self::PinsRemoved(count) => write!(f, " ({count})"),
            Self::LetGo(devices) => write!(f, " (then {devices} GPUs)"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn scenes(seed: u64, count: usize) -> Vec<Vec<Step>> {
        let mut script = Script::new(seed);
        (0..count).map(|_| script.scene()).collect()
    }

    #[test]
    fn a_seed_gives_the_same_scenes_and_another_one_others() {
        assert_eq!(scenes(7, 9), scenes(7, 9));
        assert_ne!(scenes(7, 9), scenes(8, 9));
    }

    #[test]
    fn a_rough_scene_has_everything_and_a_gentle_one_leaves_the_sampler_alone() {
        for seed in 0..50 {
            let scenes = scenes(seed, 4);
            let names = |scene: &[Step]| scene.iter().map(|step| step.act.name()).collect::<BTreeSet<_>>();
            assert_eq!((names(&scenes[0]).len(), names(&scenes[3]).len()), (13, 13));
            assert_eq!((scenes[1].len(), names(&scenes[1]).len()), (6, 6));
            assert!(!names(&scenes[1]).contains(Act::SamplerKilled.name()));
        }
    }

    #[test]
    fn after_the_failures_the_usual_gpus_are_there() {
        for seed in 0..50 {
            let scene = &scenes(seed, 1)[0];
            let last = scene.iter().rfind(|step| matches!(step.act, Act::LetGo(_)));
            assert_eq!(last.map(|step| step.act), Some(Act::LetGo(DEVICES)));
        }
    }
}
