//! The end of the process.

use nix::libc;

/// Ends the process now: no destructors of libraries, which can hang, and no wait for threads.
///
/// What stands in a buffer is lost; write to standard output with a flush.
pub fn now(status: i32) -> ! {
    #[expect(unsafe_code, reason = "nix has no _exit")]
    // SAFETY: `_exit` takes any int and does not return; it touches no memory of ours.
    unsafe {
        libc::_exit(status)
    }
}
