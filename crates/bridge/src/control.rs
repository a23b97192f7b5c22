//! How the rest of the program talks to the running loop.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A handle on a running bridge; clones speak to the same one.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    wake: EventFd,
}

impl Control {
    /// A control for one bridge.
    ///
    /// # Errors
    /// When the process may not open another descriptor.
    pub fn new() -> io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { shared: Arc::new(Shared { stop: AtomicBool::new(false), wake }) })
    }

    /// Asks the bridge to empty its maps and end.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        // The counter cannot overflow with so few writes, and a bridge that has ended needs no waking.
        let _ = self.shared.wake.write(1);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }
}
