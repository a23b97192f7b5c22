//! The questions that a card is asked.

use std::time::Duration;

use telemetry::Probe;

use super::Driver;
use crate::clients::INDEX_PERIOD;

/// Each is a group of files of like cost and rhythm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Who they are: a look through all of /proc, for all cards. Apart from the reading of those that are known, which it would make dear.
    Clients,
    Processes,
    /// Which of them have ended, by a stat for each: when there are so many that reading them is rare, and of a card that may not be read.
    Departures,
    Memory,
    Metrics,
    Utilization,
    Sensors,
    Clocks,
    Pcie,
    Ecc,
}

/// Clients come first, and before them who they are: their work tells whether a card is idle, and Intel's memory is the sum over them. amdgpu's table may have to stand in
/// for its utilization.
pub(super) const QUESTIONS: [Question; 10] = [
    Question::Clients,
    Question::Processes,
    Question::Departures,
    Question::Memory,
    Question::Metrics,
    Question::Utilization,
    Question::Sensors,
    Question::Clocks,
    Question::Pcie,
    Question::Ecc,
];

pub(super) const PROBES: [Probe; QUESTIONS.len()] = {
    let mut probes = [Probe { name: "", period: Duration::ZERO }; QUESTIONS.len()];
    let mut at = 0;
    while at < probes.len() {
        probes[at] = QUESTIONS[at].probe();
        at += 1;
    }
    probes
};

impl Question {
    /// Most files tell the moment's state. Error counters are rarely worth a look, slow to read, and some reset what they count in.
    pub(super) const fn probe(self) -> Probe {
        let (name, period) = match self {
            Self::Clients => ("clients", INDEX_PERIOD),
            Self::Processes => ("processes", Duration::ZERO),
            Self::Departures => ("departures", Duration::ZERO),
            Self::Memory => ("memory", Duration::ZERO),
            Self::Metrics => ("metrics", Duration::ZERO),
            Self::Utilization => ("utilization", Duration::ZERO),
            Self::Sensors => ("sensors", Duration::ZERO),
            Self::Clocks => ("clocks", Duration::ZERO),
            Self::Pcie => ("pcie", Duration::ZERO),
            Self::Ecc => ("ecc", Duration::from_secs(60)),
        };
        Probe { name, period }
    }

    /// Whether the answer comes from the card's clients.
    pub(super) const fn is_of_clients(self, driver: Driver) -> bool {
        match self {
            Self::Clients | Self::Processes | Self::Departures => true,
            Self::Memory | Self::Utilization => driver.is_intel(),
            Self::Metrics | Self::Sensors | Self::Clocks | Self::Pcie | Self::Ecc => false,
        }
    }

    /// Whether it can be answered without a power call in the driver, so that the card may fall asleep all the same.
    pub(super) const fn is_gentle(self, driver: Driver) -> bool {
        match self {
            // Each card is asked by itself whether it may be read.
            Self::Clients => true,
            // The driver has no part in it.
            Self::Departures => true,
            // Of Intel's cards it is the sum over their processes.
            Self::Memory => true,
            Self::Processes => !matches!(driver, Driver::Xe),
            Self::Clocks => matches!(driver, Driver::I915),
            // The lane only looks whether an answer has come.
            Self::Pcie => true,
            Self::Metrics | Self::Utilization | Self::Sensors | Self::Ecc => false,
        }
    }
}
