//! What a service manager is told, in systemd's protocol (`sd_notify(3)`): readiness, state, and that the loop goes round.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::{Duration, Instant},
};

use bridge::{Observer, Phase};
use thiserror::Error;

/// The environment's part of the protocol. It is the daemon's, and no child's.
pub(crate) const ENVIRONMENT: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// How a service manager wants to hear from its service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manager {
    /// Its socket: a path, or an abstract name after `@`. None: nobody listens.
    pub socket: Option<OsString>,
    /// A service that is silent for this long is ended by it.
    pub watchdog: Option<Duration>,
}

/// Why nobody can be told.
#[derive(Debug, Error)]
#[error("cannot reach the service manager's socket {}", socket.display())]
pub struct NotifyError {
    socket: OsString,
    source: io::Error,
}

impl Manager {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let [socket, watchdog_usec, watchdog_pid] = ENVIRONMENT.map(env::var_os);
        let number = |text: Option<OsString>| text?.to_str()?.parse::<u64>().ok();
        // Set for another process: a wrapper that has handed its environment down.
        let is_ours = watchdog_pid.is_none() || number(watchdog_pid) == Some(process::id().into());
        Self {
            socket: socket.filter(|socket| !socket.is_empty()),
            watchdog: number(watchdog_usec).filter(|usec| *usec > 0 && is_ours).map(Duration::from_micros),
        }
    }
}

/// Tells the service manager how the bridge is.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    waiting_is_ready: bool,
    is_ready: bool,
    /// How often the loop says that it goes round, at most.
    period: Option<Duration>,
    next_alive: Instant,
    /// Messages that the manager did not take go unsaid; said once.
    is_deaf: bool,
}

impl Notifier {
    /// None when nobody listens. `waiting_is_ready`: a bridge that waits for a GPU does what it was started for.
    ///
    /// # Errors
    /// When the socket cannot be reached.
    pub fn new(manager: &Manager, waiting_is_ready: bool) -> Result<Option<Self>, NotifyError> {
        let Some(name) = &manager.socket else { return Ok(None) };
        let socket = connect(name).map_err(|source| NotifyError { socket: name.clone(), source })?;
        // Twice as often as the manager asks for, as its documentation advises.
        let period = manager.watchdog.map(|watchdog| watchdog / 2);
        Ok(Some(Self { socket, waiting_is_ready, is_ready: false, period, next_alive: Instant::now(), is_deaf: false }))
    }

    fn send(&mut self, message: &[u8]) {
        // Never blocks: a manager that does not read must not hold up the loop.
        match self.socket.send(message) {
            Ok(_) => self.is_deaf = false,
            Err(error) if self.is_deaf => log::debug!("the service manager takes no message: {error}"),
            Err(error) => {
                self.is_deaf = true;
                log::warn!("the service manager takes no message: {error}");
            }
        }
    }
}

impl Observer for Notifier {
    fn phase(&mut self, phase: Phase, text: &str) {
        let ready_now = match phase {
            Phase::Publishing => true,
            Phase::Waiting | Phase::Idle => self.waiting_is_ready,
            Phase::Starting | Phase::Stopping => false,
        };
        let mut message = match phase {
            Phase::Stopping => "STOPPING=1\n",
            _ if ready_now && !self.is_ready => "READY=1\n",
            _ => "",
        }
        .to_owned();
        self.is_ready |= ready_now;
        message += "STATUS=";
        // A line break would begin another assignment.
        message.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
        self.send(message.as_bytes());
    }

    fn alive(&mut self) {
        let Some(period) = self.period else { return };
        let now = Instant::now();
        if now >= self.next_alive {
            self.next_alive = now + period;
            self.send(b"WATCHDOG=1");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsString::from_vec(path.to_vec()))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}
