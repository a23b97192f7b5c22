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
    released: AtomicBool,
    wake: EventFd,
}

impl Control {
    /// A control for one bridge.
    ///
    /// # Errors
    /// When the process may not open another descriptor.
    pub fn new() -> io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { shared: Arc::new(Shared { stop: AtomicBool::new(false), released: AtomicBool::new(false), wake }) })
    }

    /// Asks the bridge to empty its maps and end.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Asks the bridge to let go of the driver: its sampler ends, the maps are emptied, and nothing is opened until [`Control::take_up`].
    /// For replacing a driver or resetting a GPU.
    pub fn release(&self) {
        self.shared.released.store(true, Ordering::Release);
        self.wake();
    }

    /// Takes the driver up again after [`Control::release`].
    pub fn take_up(&self) {
        self.shared.released.store(false, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.shared.released.load(Ordering::Acquire)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Makes the descriptor unreadable until the next request.
    pub(crate) fn clear(&self) {
        // Nothing to read is what is wanted.
        let _ = self.shared.wake.read();
    }

    fn wake(&self) {
        // The counter cannot overflow with so few writes, and a bridge that has ended needs no waking.
        let _ = self.shared.wake.write(1);
    }
}
