//! From counters to shares, and from regions to one figure.

use super::fdinfo::{ClientMemory, Engine, EngineCounters, Engines, Fdinfo};

/// 100 % in the unit of [`Shares`].
const WHOLE: u32 = 10_000;

/// Shares of time by kind of engine, in hundredths of a percent so that many small ones add up; absent where nothing tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares([Option<u32>; Engine::COUNT]);

impl Shares {
    /// Adds those of another client.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
    }

    /// Whether nothing is known of any engine.
    pub(super) fn is_absent(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Where kernels run, 0–100: the 3D and compute engines together, since they share the same execution units.
    pub(super) fn sm_pct(&self) -> u32 {
        self.sum_pct(&[Engine::Render, Engine::Compute])
    }

    /// Encoders, 0–100.
    pub(super) fn enc_pct(&self) -> u32 {
        self.sum_pct(&[Engine::Encode, Engine::EncodeSecond])
    }

    /// Decoders, 0–100. Intel's video engines both decode and encode and do not tell which; all of their time is here, once: left out, a process
    /// that keeps the video engine busy would look idle, and in both fields it would be there twice.
    pub(super) fn dec_pct(&self) -> u32 {
        self.sum_pct(&[Engine::Decode, Engine::Jpeg, Engine::Video])
    }

    /// The busiest kind of engine, 0–100.
    pub(super) fn busiest_pct(&self) -> Option<u32> {
        self.0.iter().flatten().max().map(|&share| pct(share))
    }

    fn sum_pct(&self, engines: &[Engine]) -> u32 {
        pct(engines.iter().map(|&engine| self.0[engine as usize].unwrap_or(0)).fold(0, u32::saturating_add))
    }
}

fn pct(share: u32) -> u32 {
    (share.min(WHOLE) + WHOLE / 200) / (WHOLE / 100)
}

/// Of `part` in `whole`, in the unit of [`Shares`], at most all of it.
pub(super) fn share_of(part: u64, whole: u64) -> Option<u32> {
    let share = (u128::from(part) * u128::from(WHOLE)).checked_div(u128::from(whole))?;
    Some(u32::try_from(share).map_or(WHOLE, |share| share.min(WHOLE)))
}

/// A share as a percentage, 0–100.
pub(super) fn share_pct(share: u32) -> u32 {
    pct(share)
}

/// A client's counters when they were last read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at_ns: u64,
    engines: Engines,
}

/// What a newer sample adds to what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Between the two.
    pub(super) shares: Shares,
    /// Whether any work ran in between.
    pub(super) is_progress: bool,
}

impl Sample {
    /// The first of a client. Its counters tell of a time of unknown length.
    pub(super) fn first(info: &Fdinfo, at_ns: u64) -> (Self, Step) {
        let told = info.engines.map(|engine| engine.busy_pct.map(|busy_pct| busy_pct * (WHOLE / 100)));
        let sample = Self { at_ns, engines: info.engines };
        (sample, Step { shares: Shares(told), is_progress: sample.has_ever_run() })
    }

    /// Becomes the newer one. A counter that steps back keeps its larger value.
    pub(super) fn advance(&mut self, info: &Fdinfo, at_ns: u64) -> Step {
        let elapsed_ns = at_ns.saturating_sub(self.at_ns);
        let mut step = Step { shares: Shares::default(), is_progress: false };
        for ((before, &read), share) in self.engines.iter_mut().zip(&info.engines).zip(&mut step.shares.0) {
            let after = EngineCounters {
                busy_ns: before.busy_ns.max(read.busy_ns),
                cycles: before.cycles.max(read.cycles),
                total_cycles: before.total_cycles.max(read.total_cycles),
                capacity: read.capacity.or(before.capacity),
                busy_pct: read.busy_pct,
            };
            *share = share_between(before, &after, elapsed_ns);
            step.is_progress |= is_work(before.busy_ns, after.busy_ns) || is_work(before.cycles, after.cycles) || after.busy_pct > Some(0);
            *before = after;
        }
        self.at_ns = at_ns;
        step
    }

    /// Whether any work of the client has ever run.
    pub(super) fn has_ever_run(&self) -> bool {
        self.engines.iter().any(|engine| engine.busy_ns > Some(0) || engine.cycles > Some(0) || engine.busy_pct > Some(0))
    }
}

fn is_work(before: Option<u64>, after: Option<u64>) -> bool {
    after.unwrap_or(0) > before.unwrap_or(0)
}

/// By cycles, which need no clock of ours; where they are not told or stand still, by time; else what the driver itself says.
fn share_between(before: &EngineCounters, after: &EngineCounters, elapsed_ns: u64) -> Option<u32> {
    let capacity = u64::from(after.capacity.unwrap_or(1));
    let by_cycles = || {
        let cycles = after.cycles?.checked_sub(before.cycles?)?;
        let total = after.total_cycles?.checked_sub(before.total_cycles?)?;
        if cycles == 0 { Some(0) } else { share_of(cycles, total.saturating_mul(capacity)) }
    };
    let by_time = || {
        // amdgpu leaves an engine out until the client has used it.
        let busy_ns = after.busy_ns?.checked_sub(before.busy_ns.unwrap_or(0))?;
        share_of(busy_ns, elapsed_ns.saturating_mul(capacity))
    };
    match by_cycles() {
        Some(share) if share > 0 => Some(share),
        cycles => by_time().or(cycles).or_else(|| after.busy_pct.map(|busy_pct| busy_pct * (WHOLE / 100))),
    }
}

/// What a client holds of a GPU's memory: of a GPU without memory of its own (`is_integrated`), also what it has in the system's.
pub(super) fn memory_bytes(memory: &ClientMemory, is_integrated: bool) -> Option<u64> {
    use super::fdinfo::added;

    if is_integrated { added(added(memory.local, memory.gtt), memory.system) } else { memory.local }
}

#[cfg(test)]
mod tests;
