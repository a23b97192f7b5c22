//! Waiting for descriptors until a point in time.

use std::{io, time::Instant};

use nix::{
    errno::Errno,
    poll::{PollFd, ppoll},
    sys::time::TimeSpec,
};

/// Returns when one of `fds` is ready, at `deadline`, or on a signal.
pub(crate) fn wait_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|deadline| TimeSpec::from(deadline.saturating_duration_since(Instant::now())));
    match ppoll(fds, left, None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
