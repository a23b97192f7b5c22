//! Signals: SIGINT, SIGTERM and SIGHUP stop the bridge, SIGUSR1 and SIGUSR2 have it let go of the driver and take it up again.

use std::{
    fs, io,
    os::fd::AsFd,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

/// How long the bridge may take to stop after the first signal: with a last line in the log, it is gone within a second.
pub const GRACE: Duration = Duration::from_millis(850);

/// A signal that follows the first so soon is the same request: some wrappers signal their child and then its whole group.
const ECHO: Duration = Duration::from_millis(100);

/// How long a line of the log may hold up what a signal asks for: standard error may be a pipe that nobody reads.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// What a signal asks the bridge for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// To empty its maps and end (SIGINT, SIGTERM, and SIGHUP unless nohup had it ignored).
    Stop,
    /// To let go of the driver (SIGUSR1).
    Release,
    /// To take the driver up again (SIGUSR2).
    TakeUp,
}

/// The signals, blocked for this thread and for every one that it starts, and readable.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals and opens them for reading. To be called before any thread is started: a thread without the mask would be
    /// ended by them. Child processes inherit the mask.
    ///
    /// # Errors
    /// When the process has no free file descriptor.
    pub fn block() -> io::Result<Self> {
        let mut set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2]);
        // A closed terminal must not leave pins behind. Where it is to be outlived, the signal comes ignored; blocked, it would arrive all the same.
        if !is_ignored(Signal::SIGHUP) {
            set.add(Signal::SIGHUP);
        }
        set.thread_block()?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// Starts the thread `signals`, which hands what the signals ask for to `ask`. After [`Request::Stop`], a second signal to stop, or
    /// `grace`, calls `end` with an exit status: 128 and the signal's number, or 1. `end` does not return in a real program. The
    /// thread is abandoned when the bridge ends in time.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(
        self,
        grace: Duration,
        mut ask: impl FnMut(Request) + Send + 'static,
        end: impl FnOnce(i32) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let (first, deadline) = loop {
                let Some(signal) = self.wait(None) else { continue };
                let arrived = Instant::now();
                let (request, doing) = match signal {
                    Signal::SIGUSR1 => (Request::Release, "letting go of the driver"),
                    Signal::SIGUSR2 => (Request::TakeUp, "taking the driver up again"),
                    _ => (Request::Stop, "stopping"),
                };
                // Said first: a bridge that stops may be quicker than the line.
                say(format!("{signal} received, {doing}"), log::Level::Info);
                ask(request);
                if request == Request::Stop {
                    break (signal, arrived + grace);
                }
            };
            let taken = Instant::now();
            let second = loop {
                match self.wait(Some(deadline)) {
                    Some(Signal::SIGUSR1 | Signal::SIGUSR2) => {}
                    Some(_) if taken.elapsed() < ECHO => {}
                    second => break second,
                }
            };
            match second {
                Some(second) => {
                    say(format!("{second} received again, ending at once"), log::Level::Warn);
                    end(128 + second as i32);
                }
                None => {
                    say(format!("not stopped {grace:?} after {first}, ending at once"), log::Level::Error);
                    end(1);
                }
            }
        })
    }

    /// The next signal; none when the deadline has passed. When signals cannot be read, nobody could stop the bridge any more: that
    /// counts as one.
    fn wait(&self, deadline: Option<Instant>) -> Option<Signal> {
        loop {
            match self.0.read_signal() {
                Ok(Some(info)) => return i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()),
                Ok(None) | Err(Errno::EINTR) => {}
                Err(error) => return broken(error, deadline),
            }
            let timeout = match deadline {
                None => PollTimeout::NONE,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    None => return None,
                    // Rounded up, or the last millisecond would be spent spinning.
                    Some(left) => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
                },
            };
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return broken(error, deadline),
            }
        }
    }
}

/// Whether this process was started with `signal` ignored. What cannot be read counts as not ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

fn broken(error: Errno, deadline: Option<Instant>) -> Option<Signal> {
    say(format!("cannot read signals: {error}"), log::Level::Error);
    match deadline {
        None => Some(Signal::SIGTERM),
        Some(deadline) => {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
            None
        }
    }
}

/// Logs from a thread of its own and waits for it briefly: whoever has to end the process must not hang in a log.
fn say(line: String, level: log::Level) {
    let (done, wait) = mpsc::sync_channel(1);
    let logged = thread::Builder::new().name("last-words".to_owned()).spawn(move || {
        log::log!(level, "{line}");
        // The other side may have gone on.
        let _: Result<(), mpsc::SendError<()>> = done.send(());
    });
    if logged.is_ok() {
        let _: Result<(), mpsc::RecvTimeoutError> = wait.recv_timeout(LAST_WORDS);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::thread::JoinHandleExt,
        sync::mpsc::{self, Receiver, RecvTimeoutError},
        thread::JoinHandle,
        time::{Duration, Instant},
    };

    use nix::sys::{pthread::pthread_kill, signal::Signal};

    use super::{ECHO, Request, Signals};

    #[derive(Debug, PartialEq, Eq)]
    enum Call {
        Ask(Request),
        End(i32),
    }

    /// Far longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// The other threads of the test's process do not block the signals: they go to the watching thread alone.
    fn watch(grace: Duration) -> (JoinHandle<()>, Receiver<Call>) {
        let (stopped, calls) = mpsc::channel();
        let ended = stopped.clone();
        let thread = Signals::block()
            .unwrap()
            .watch(grace, move |request| stopped.send(Call::Ask(request)).unwrap(), move |status| ended.send(Call::End(status)).unwrap())
            .unwrap();
        (thread, calls)
    }

    #[track_caller]
    fn check(first: Signal, second: Signal, status: i32) {
        let (thread, calls) = watch(PATIENCE * 10);
        pthread_kill(thread.as_pthread_t(), first).unwrap();
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(Call::Ask(Request::Stop)));
        // An echo of the first.
        pthread_kill(thread.as_pthread_t(), first).unwrap();
        assert_eq!(calls.recv_timeout(2 * ECHO), Err(RecvTimeoutError::Timeout));
        pthread_kill(thread.as_pthread_t(), second).unwrap();
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(Call::End(status)));
        thread.join().unwrap();
    }

    #[test]
    fn the_first_signal_stops_and_the_second_ends() {
        check(Signal::SIGINT, Signal::SIGINT, 130);
        check(Signal::SIGTERM, Signal::SIGTERM, 143);
        check(Signal::SIGTERM, Signal::SIGINT, 130);
        check(Signal::SIGINT, Signal::SIGTERM, 143);
        check(Signal::SIGHUP, Signal::SIGTERM, 143);
    }

    #[test]
    fn a_bridge_that_does_not_stop_is_ended_after_the_grace() {
        let grace = Duration::from_millis(300);
        let (thread, calls) = watch(grace);
        let sent = Instant::now();
        pthread_kill(thread.as_pthread_t(), Signal::SIGTERM).unwrap();
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(Call::Ask(Request::Stop)));
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(Call::End(1)));
        assert!(sent.elapsed() >= grace, "ended {:?} after the signal", sent.elapsed());
        thread.join().unwrap();
    }

    #[test]
    fn the_driver_is_released_and_taken_up_as_often_as_asked_until_the_end() {
        let (thread, calls) = watch(Duration::from_millis(300));
        let requests = [
            (Signal::SIGUSR1, Request::Release),
            (Signal::SIGUSR2, Request::TakeUp),
            (Signal::SIGUSR1, Request::Release),
            (Signal::SIGTERM, Request::Stop),
        ];
        for (signal, request) in requests {
            pthread_kill(thread.as_pthread_t(), signal).unwrap();
            assert_eq!(calls.recv_timeout(PATIENCE), Ok(Call::Ask(request)));
        }
        // Too late for these: neither a request nor a second signal to end by.
        pthread_kill(thread.as_pthread_t(), Signal::SIGUSR1).unwrap();
        pthread_kill(thread.as_pthread_t(), Signal::SIGUSR2).unwrap();
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(Call::End(1)));
        thread.join().unwrap();
    }
}
