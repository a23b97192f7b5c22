//! What a bridge is to do: given once, at its start.

use std::{fmt::Debug, sync::Arc, time::Duration};

use map_publisher::Options as MapOptions;

use crate::{clock::Clock, sampler::Launch};

/// Everything that [`crate::run`] needs to know.
#[derive(Debug)]
pub struct Plan {
    /// Where the maps are pinned, and how.
    pub maps: MapOptions,
    /// Leave the maps pinned, with their data, at the end.
    pub keep_pins: bool,
    /// Time between ticks; the launchers were given the same.
    pub poll_interval: Duration,
    /// The program's version, for the start line and `gpu_bridge_state`.
    pub version: String,
    /// The machine's clocks.
    pub clock: Arc<dyn Clock>,
    /// The sources to publish, from 1 to 16, in the order of their devices' indices: those of the first have the indices that it gives them, those of
    /// the others follow. Each has a life of its own.
    pub sources: Vec<Source>,
    /// What to do while none of them can be opened.
    pub when_unavailable: WhenUnavailable,
    /// Is told how the bridge is.
    pub observer: Box<dyn Observer>,
}

/// Somebody who wants to know how the bridge is; called from the publishing loop, which it must not hold up.
pub trait Observer: Debug + Send {
    /// The bridge came into this phase; `text` says more, for a person.
    fn phase(&mut self, phase: Phase, text: &str);

    /// The loop goes round: at every tick, and at least once a second. When this stops, the loop hangs.
    fn alive(&mut self);
}

/// Where in its life a bridge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all that is needed is there yet.
    Starting,
    /// The maps are kept fresh.
    Publishing,
    /// For a driver that was there or must come; the maps are empty.
    Waiting,
    /// No GPU, by design; the maps are empty.
    Idle,
    /// On its way out.
    Stopping,
}

/// An observer that does not care.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn phase(&mut self, _phase: Phase, _text: &str) {}

    fn alive(&mut self) {}
}

/// A source and how to start sampling it.
#[derive(Debug)]
pub struct Source {
    /// Its name in messages, as in `nvml`.
    pub name: &'static str,
    /// Whether its data is invented.
    pub is_mock: bool,
    /// Starts its sampler.
    pub launcher: Box<dyn Launch>,
}

/// What to do when no source can be opened at the start.
#[derive(Debug)]
pub enum WhenUnavailable {
    /// End with an error.
    Fail,
    /// Go on trying; publish nothing until then.
    Wait,
    /// Publish another source's data until one of them opens, and go on trying.
    FallBack(Source),
}
