//! Whether a card may be read now: a sleeping one is left asleep, and an idle one is left alone for long enough to fall asleep.
//!
//! Reading a sensor resumes the GPU on older kernels, and on all kernels counts as use: whoever reads more often than
//! `autosuspend_delay_ms` keeps the card awake for ever. xe does so for every file and every client's fdinfo.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use crate::{
    parse::trimmed,
    sysfs::{Attribute, Files},
};

const SECOND_NS: u64 = 1_000_000_000;
/// One look at the status serves all questions of one tick.
const STATUS_HOLDS_NS: u64 = 2_000_000;
/// `power/control` is for administrators and their daemons to set.
const SETTINGS_HOLD_NS: u64 = 5 * SECOND_NS;
/// How long a card is read on after its last sign of work.
const PROGRESS_HOLDS_NS: u64 = 2 * SECOND_NS;
/// How long each question may be asked once, when an idle card that did not fall asleep is looked at.
const PEEK_NS: u64 = SECOND_NS;
/// Where the delay cannot be read: the longest of the three drivers' own (amdgpu 5 s, xe 1 s, i915 10 s).
const DEFAULT_DELAY_MS: i64 = 10_000;

/// What may be read of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It sleeps: nothing.
    Asleep,
    /// It is idle and may fall asleep: only what makes no power call.
    Gentle,
    /// It is idle and did not fall asleep: everything once, that is what was not read since `since_ns`.
    Peek { since_ns: u64 },
    /// Everything.
    Full,
}

/// Watches one card's runtime power management. Shared by whoever reads of the card.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Reading its clients wakes the card, and only they tell of work: a look at the card waits for one at them.
    waits_for_clients: bool,
    files: Arc<dyn Files>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: Attribute,
    control: Attribute,
    delay: Attribute,
    /// `None` for a card that is never put to sleep; else how long it is to be left alone.
    quiet_ns: Option<u64>,
    settings_due_ns: u64,
    access: Access,
    looked_ns: Option<u64>,
    is_asleep: bool,
    progress_ns: u64,
    touched_ns: u64,
    peek_ns: Option<u64>,
    is_gone: bool,
}

impl Gate {
    /// For the card whose PCI device lies in `device`.
    pub(crate) fn new(waits_for_clients: bool, device: &Path, files: Arc<dyn Files>) -> Self {
        let power = device.join("power");
        let state = State {
            status: Attribute::new(power.join("runtime_status")),
            control: Attribute::new(power.join("control")),
            delay: Attribute::new(power.join("autosuspend_delay_ms")),
            quiet_ns: None,
            settings_due_ns: 0,
            access: Access::Asleep,
            looked_ns: None,
            is_asleep: true,
            progress_ns: 0,
            touched_ns: 0,
            peek_ns: None,
            is_gone: false,
        };
        Self { waits_for_clients, files, state: Mutex::new(state) }
    }

    /// What may be read at `now_ns`; looks at the card's status, unless it has just done so.
    pub(crate) fn access(&self, now_ns: u64) -> Access {
        let mut state = self.lock();
        if state.looked_ns.is_none_or(|looked_ns| now_ns < looked_ns || now_ns - looked_ns >= STATUS_HOLDS_NS) {
            state.looked_ns = Some(now_ns);
            let access = state.look(&*self.files, now_ns);
            state.access = if access == Access::Gentle && !self.waits_for_clients { state.peek(now_ns) } else { access };
        }
        state.access
    }

    /// Whether the fdinfo of the card's clients may be read at `now_ns`.
    pub(crate) fn may_read_clients(&self, now_ns: u64) -> bool {
        let access = self.access(now_ns);
        if !self.waits_for_clients || access == Access::Asleep {
            return access != Access::Asleep;
        }
        let mut state = self.lock();
        if access == Access::Gentle {
            state.access = state.peek(now_ns);
        }
        let may_read = matches!(state.access, Access::Peek { .. } | Access::Full);
        if may_read {
            // The caller is about to.
            state.touched_ns = now_ns;
        }
        may_read
    }

    /// Something that counts as use of the card was read.
    pub(crate) fn touched(&self, now_ns: u64) {
        self.lock().touched_ns = now_ns;
    }

    /// The card was seen to work.
    pub(crate) fn has_worked(&self, now_ns: u64) {
        let mut state = self.lock();
        state.progress_ns = now_ns;
        if state.access != Access::Asleep {
            state.access = Access::Full;
        }
    }

    /// Whether the status file said that its device is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.lock().is_gone
    }

    /// Whether the card sleeps now, asked without a timetable.
    pub(crate) fn is_asleep(&self) -> bool {
        let mut state = self.lock();
        let is_asleep = state.sleeps(&*self.files, 0);
        state.status.retry_by(0);
        is_asleep
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, files: &dyn Files, now_ns: u64) -> Access {
        let was_asleep = self.is_asleep;
        self.is_asleep = self.sleeps(files, now_ns);
        if self.is_asleep {
            return Access::Asleep;
        }
        if was_asleep {
            // Somebody woke it, presumably to use it.
            (self.progress_ns, self.peek_ns) = (now_ns, None);
        }
        if now_ns >= self.settings_due_ns {
            self.settings_due_ns = now_ns.saturating_add(SETTINGS_HOLD_NS);
            self.quiet_ns = self.read_settings(files, now_ns);
        }
        if self.quiet_ns.is_none() {
            return Access::Full;
        }
        if now_ns.saturating_sub(self.progress_ns) < PROGRESS_HOLDS_NS {
            self.peek_ns = None;
            return Access::Full;
        }
        if let Some(peek_ns) = self.peek_ns {
            if now_ns.saturating_sub(peek_ns) < PEEK_NS {
                return Access::Peek { since_ns: peek_ns };
            }
            self.peek_ns = None;
        }
        Access::Gentle
    }

    /// What may be read of an idle card: everything once, when it has been left alone for long enough.
    fn peek(&mut self, now_ns: u64) -> Access {
        if self.quiet_ns.is_none_or(|quiet_ns| now_ns.saturating_sub(self.touched_ns) < quiet_ns) {
            return Access::Gentle;
        }
        self.peek_ns = Some(now_ns);
        Access::Peek { since_ns: now_ns }
    }

    /// A card that wakes up is left alone until it is awake: a read would wait for it.
    fn sleeps(&mut self, files: &dyn Files, now_ns: u64) -> bool {
        let mut buffer = [0; 32];
        match self.status.read(files, now_ns, &mut buffer) {
            Ok(status) => {
                self.is_gone = false;
                matches!(trimmed(status), b"suspended" | b"suspending" | b"resuming")
            }
            Err(error) => {
                self.is_gone = matches!(error, Errno::NODEV | Errno::NOENT | Errno::NXIO);
                // A status that cannot be read is no sleep, and is not left unread: the next tick's may be another. One that is not there may
                // have been somewhere else for a moment.
                self.status.retry_by(if error == Errno::NOENT { now_ns.saturating_add(SECOND_NS) } else { 0 });
                false
            }
        }
    }

    fn read_settings(&mut self, files: &dyn Files, now_ns: u64) -> Option<u64> {
        let mut buffer = [0; 32];
        let is_managed = self.control.read(files, now_ns, &mut buffer).is_ok_and(|control| trimmed(control) == b"auto");
        let delay_ms = self.delay.number(files, now_ns).unwrap_or(DEFAULT_DELAY_MS);
        // A negative delay means never.
        let delay_ms = u64::try_from(delay_ms).ok().filter(|_| is_managed)?;
        // The kernel's timer may be late by a quarter of the delay, and falling asleep takes its time.
        Some(delay_ms.saturating_mul(1_500_000).saturating_add(SECOND_NS / 2))
    }
}
