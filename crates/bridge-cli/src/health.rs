//! `--health`: one line and an exit status about the bridge that publishes in a pin directory.
//!
//! Reads as `--dump` does: the pins are opened read-only, nothing is locked, nobody is disturbed.

mod process;
#[cfg(test)]
mod tests;

use std::{fmt, io, path::Path, time::Duration};

use map_reader::{BridgeState, DevicePhase, Error as MapError, Freshness, Map, Phase, Reader, Source, boottime_now_ns, default_max_age};

use self::process::Process;
use crate::chain;

/// The loop goes round once a second at least; this leaves room for a machine under load.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// What was found out, and the line that says so.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    health: Health,
    text: String,
}

/// How the bridge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// It publishes, and the newest round is young enough.
    Publishing,
    /// It lives and has no GPU, as its user expects.
    Idle,
    /// The records must not be believed: the bridge is gone, stuck, waiting for a driver, or has not published yet.
    Stale,
    /// There are no maps, or not all.
    NoMaps,
    /// The maps are there and cannot be read, or are no bridge's.
    Unreadable,
}

impl Verdict {
    pub(crate) const fn exit_status(&self) -> i32 {
        match self.health {
            Health::Publishing | Health::Idle => 0,
            Health::Unreadable => 1,
            Health::Stale => 3,
            Health::NoMaps => 4,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.health {
            Health::Publishing => "publishing",
            Health::Idle => "idle",
            Health::Stale => "stale",
            Health::NoMaps => "no maps",
            Health::Unreadable => "unknown",
        };
        write!(f, "{word}: {}", self.text)
    }
}

/// How the bridge in `pin_dir` is. `max_age`: how old the newest round may be; None: as the bridge's poll interval suggests.
///
/// # Errors
/// When this process may not read the clock.
pub(crate) fn look(pin_dir: &Path, max_age: Option<Duration>) -> io::Result<Verdict> {
    let reader = Reader::open(pin_dir);
    // One that somebody should look at before one that is just not there.
    if let Some(error) = Map::CONTRACT.into_iter().filter_map(|map| reader.status(map).err()).min_by_key(MapError::is_absent) {
        return Ok(Verdict::of_error(&error));
    }
    let meta = match reader.meta() {
        Ok(meta) => meta,
        Err(error) => return Ok(Verdict::of_error(&error)),
    };
    // Bridges need not have it: then gpu_meta speaks alone.
    let state = reader.state().ok();
    let max_age = max_age.unwrap_or_else(|| default_max_age(state.as_ref().and_then(BridgeState::poll_interval)));
    // After the maps: a stamp must not be later.
    let now_boottime_ns = boottime_now_ns()?;
    let facts = Facts {
        devices: meta.n_devices,
        helper_pid: meta.helper_pid,
        freshness: Freshness::of(&meta, now_boottime_ns, max_age),
        max_age,
        state: state.as_ref().map(|state| State::of(state, now_boottime_ns)),
    };
    Ok(facts.judge(process::look))
}

/// What the maps say.
#[derive(Clone, Debug)]
struct Facts {
    devices: u32,
    helper_pid: u32,
    freshness: Freshness,
    max_age: Duration,
    state: Option<State>,
}

/// Of `gpu_bridge_state`, what matters here.
#[derive(Clone, Debug)]
struct State {
    phase: Phase,
    source: Source,
    helper_pid: u32,
    started_boottime_ns: u64,
    /// For how long the loop has not gone round.
    silent: Duration,
    lost: usize,
    late: usize,
}

impl State {
    fn of(state: &BridgeState, now_boottime_ns: u64) -> Self {
        let count = |phase| state.devices().filter(|device| device.phase() == phase).count();
        Self {
            phase: state.phase(),
            source: state.source(),
            helper_pid: state.record().helper_pid,
            started_boottime_ns: state.record().started_boottime_ns,
            silent: Duration::from_nanos(now_boottime_ns.saturating_sub(state.record().alive_boottime_ns)),
            lost: count(DevicePhase::Lost),
            late: count(DevicePhase::Late),
        }
    }
}

impl Facts {
    /// `look_at` looks at the process of that PID that was there at that time (`CLOCK_BOOTTIME`).
    fn judge(&self, look_at: impl FnOnce(u32, u64) -> Process) -> Verdict {
        let age = self.age();
        // What another bridge left there says nothing about the one that publishes now.
        let state = self.state.as_ref().filter(|state| state.helper_pid == self.helper_pid || !self.freshness.is_fresh());
        let (health, text) = match state {
            Some(state) if state.phase == Phase::Idle => match self.trouble(Some(state), look_at) {
                None => (Health::Idle, format!("no GPU, by design; helper_pid {}", state.helper_pid)),
                Some(trouble) => (Health::Stale, format!("it had no GPU, and {trouble}")),
            },
            Some(state) if state.phase == Phase::Stopping => (Health::Stale, format!("the bridge has stopped; {age}")),
            Some(state) if state.phase == Phase::Waiting => {
                (Health::Stale, self.with_trouble(format!("waiting for the driver; {age}"), Some(state), look_at))
            }
            state if self.freshness.is_fresh() => {
                (Health::Publishing, format!("{}, {age}, helper_pid {}{}", self.devices(state), self.helper_pid, invented(state)))
            }
            state => (Health::Stale, self.with_trouble(age, state, look_at)),
        };
        Verdict { health, text }
    }

    fn age(&self) -> String {
        match self.freshness {
            Freshness::NeverPublished => "nothing was published yet".to_owned(),
            Freshness::Fresh { age } => format!("the newest round is {} ms old", age.as_millis()),
            Freshness::Stale { age } => {
                format!("the newest round is {} ms old, more than {} ms", age.as_millis(), self.max_age.as_millis())
            }
            // No reading of the map gives another.
            _ => "how old the newest round is cannot be told".to_owned(),
        }
    }

    fn devices(&self, state: Option<&State>) -> String {
        let mut text = format!("{} {}", self.devices, if self.devices == 1 { "device" } else { "devices" });
        let (lost, late) = state.map_or((0, 0), |state| (state.lost, state.late));
        for (count, what) in [(lost, "lost"), (late, "late")] {
            if count > 0 {
                text += &format!(" ({count} {what})");
            }
        }
        text
    }

    fn with_trouble(&self, text: String, state: Option<&State>, look_at: impl FnOnce(u32, u64) -> Process) -> String {
        match self.trouble(state, look_at) {
            Some(trouble) => format!("{text}; {trouble}"),
            None => text,
        }
    }

    /// What can be seen to be wrong with the bridge's process; None when it lives, or is not known.
    fn trouble(&self, state: Option<&State>, look_at: impl FnOnce(u32, u64) -> Process) -> Option<String> {
        let (pid, seen_boottime_ns) = state.map_or((self.helper_pid, u64::MAX), |state| (state.helper_pid, state.started_boottime_ns));
        if pid == 0 {
            return None;
        }
        match look_at(pid, seen_boottime_ns) {
            Process::Living => match state.map(|state| state.silent) {
                Some(silent) if silent > LONGEST_TURN => {
                    Some(format!("the bridge, process {pid}, lives and hangs: its loop has not gone round for {} s", silent.as_secs()))
                }
                _ => None,
            },
            Process::Stopped => Some(format!("the bridge, process {pid}, is suspended")),
            Process::Gone => Some(format!("the bridge, process {pid}, is gone")),
        }
    }
}

impl Verdict {
    fn of_error(error: &MapError) -> Self {
        let health = if error.is_absent() { Health::NoMaps } else { Health::Unreadable };
        Self { health, text: chain(error) }
    }
}

/// That data is invented is never left unsaid.
fn invented(state: Option<&State>) -> &'static str {
    match state.map(|state| state.source) {
        Some(Source::Mock) => "; THE DATA IS INVENTED by the mock source",
        Some(Source::MockFallback) => "; THE DATA IS INVENTED by the mock source, since the real one cannot be opened",
        _ => "",
    }
}
