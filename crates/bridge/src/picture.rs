//! The rounds of all sources side by side, without memory of its own to ask for.

use std::ops::Deref;

use crate::{
    records::{News, Part},
    sampler::Round,
};

/// So many sources can have a device with a slot each.
pub(crate) const MOST_SOURCES: usize = gpu_types::GPU_MAX_DEVICES as usize;

static NOTHING: Round = Round { started_boottime_ns: 0, has_news: false, skipped_ticks: 0, devices: Vec::new() };

/// A part a source, in index order.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    parts: [Part<'a>; MOST_SOURCES],
    count: usize,
}

impl<'a> FromIterator<Part<'a>> for Picture<'a> {
    /// Of more than [`MOST_SOURCES`] the first.
    fn from_iter<I: IntoIterator<Item = Part<'a>>>(parts: I) -> Self {
        let mut picture = Self { parts: [Part { first_index: 0, news: News::Nothing, round: &NOTHING }; MOST_SOURCES], count: 0 };
        for (place, part) in picture.parts.iter_mut().zip(parts) {
            *place = part;
            picture.count += 1;
        }
        picture
    }
}

impl<'a> Deref for Picture<'a> {
    type Target = [Part<'a>];

    fn deref(&self) -> &[Part<'a>] {
        &self.parts[..self.count]
    }
}
