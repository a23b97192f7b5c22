//! The sampler as a child process of the same binary: the vendor's library is its own, with its crashes, leaks and hangs.

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{
    Event, Launch, Round, Sampler,
    frame::{self, Message},
};
use crate::SamplerError;

/// The most that an unprivileged process may ask for: a round of 16 GPUs with 248 processes each is about 150 KB.
const PIPE_BYTES: i32 = 1 << 20;
/// How long to wait for a killed child; one in uninterruptible sleep is left behind.
const END_LIMIT: Duration = Duration::from_millis(200);
/// So many that were left behind may be there at a time.
const MOST_ABANDONED: usize = 3;

/// Starts a child process that samples.
#[derive(Clone, Debug)]
pub struct ChildLauncher {
    program: PathBuf,
    arguments: Vec<OsString>,
    withheld: &'static [&'static str],
    abandoned: Abandoned,
}

/// Children that were killed and did not end.
#[derive(Clone, Debug, Default)]
struct Abandoned(Arc<Mutex<Vec<Child>>>);

impl Abandoned {
    /// How many are left, those that have ended meanwhile being buried.
    fn count(&self) -> usize {
        let mut children = self.lock();
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        children.len()
    }

    fn add(&self, child: Child) {
        self.lock().push(child);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChildLauncher {
    /// Children that run `program` with `arguments`, which must lead to [`super::relay`].
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self { program, arguments, withheld: &[], abandoned: Abandoned::default() }
    }

    /// Keeps these environment variables from the children.
    #[must_use]
    pub fn without_environment(self, names: &'static [&'static str]) -> Self {
        Self { withheld: names, ..self }
    }
}

impl Launch for ChildLauncher {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        match self.abandoned.count() {
            count @ MOST_ABANDONED.. => Err(SamplerError::Abandoned { count }),
            _ => Ok(Box::new(ChildSampler::start(self)?)),
        }
    }
}

/// The parent's end of a sampling child process.
#[derive(Debug)]
pub struct ChildSampler {
    /// None only while it is being dropped.
    child: Option<Child>,
    abandoned: Abandoned,
    readings: File,
    buffer: Vec<u8>,
    /// What of `buffer` holds bytes that were read and not yet decoded.
    filled: std::ops::Range<usize>,
    /// The pipe gave less than there was room for: it need not be asked again at once.
    drained: bool,
    round: Round,
    /// `round` has not been told of.
    has_round: bool,
    /// Rounds that were never told of.
    overtaken: u64,
}

impl ChildSampler {
    fn start(ChildLauncher { program, arguments, withheld, abandoned }: &ChildLauncher) -> Result<Self, SamplerError> {
        let mut command = Command::new(program);
        for name in *withheld {
            command.env_remove(name);
        }
        let mut child = command
            .args(arguments)
            // Its standard input never says anything: that it closes tells the child that its parent is gone.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // A terminal's Ctrl-C is for the parent, which ends its child.
            .process_group(0)
            .spawn()
            .map_err(|source| SamplerError::Spawn { program: program.clone(), source })?;
        let Some(stdout) = child.stdout.take() else { return Err(SamplerError::Garbled { what: "no pipe" }) };
        let readings = File::from(OwnedFd::from(stdout));
        let pipe = |doing| move |errno: nix::Error| SamplerError::Io { doing, source: errno.into() };
        fcntl(&readings, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(pipe("make the sampler's pipe non-blocking"))?;
        // Where the user's pipe quota is used up, rounds arrive in smaller pieces.
        if let Err(errno) = fcntl(&readings, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)) {
            log::debug!("cannot widen the sampler's pipe: {errno}");
        }
        Ok(Self {
            child: Some(child),
            abandoned: abandoned.clone(),
            readings,
            buffer: vec![0; 16 << 10],
            filled: 0..0,
            drained: false,
            round: Round::default(),
            has_round: false,
            overtaken: 0,
        })
    }

    /// Reads what the pipe has; false when that is nothing.
    fn fill(&mut self) -> Result<bool, SamplerError> {
        if self.drained {
            return Ok(false);
        }
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        if self.filled.end == self.buffer.len() {
            // For the whole message and one byte more: that the pipe does not give it says that it is drained. Of a round that grew, a little more.
            let wanted = frame::length(&self.buffer).map_or(0, |length| length + length / 8 + 1);
            self.buffer.reserve_exact(wanted.saturating_sub(self.buffer.len()));
            self.buffer.resize(wanted.max(self.buffer.len() + 1), 0);
        }
        loop {
            let room = &mut self.buffer[self.filled.end..];
            match self.readings.read(room) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => {
                    self.drained = count < room.len();
                    self.filled.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(SamplerError::Io { doing: "read from the sampler's pipe", source }),
            }
        }
    }

    fn ended(&mut self) -> SamplerError {
        let status = match self.child.as_mut().and_then(|child| wait(child, END_LIMIT)) {
            Some(status) => status.to_string(),
            None => "its pipe closed".to_owned(),
        };
        SamplerError::Ended { status }
    }
}

/// A child's exit status, waited for not longer than `limit`.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Ok(status) => return status,
            Err(error) => {
                log::debug!("cannot wait for the sampler process: {error}");
                return None;
            }
        }
    }
}

impl Sampler for ChildSampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readings.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn receive(&mut self) -> Result<Event, SamplerError> {
        self.drained = false;
        loop {
            match frame::decode(&self.buffer[self.filled.clone()], &mut self.round)? {
                Some((message, length)) => {
                    self.filled.start += length;
                    match message {
                        // Only the newest round counts: one that waited in the pipe is the past, and its tick is skipped.
                        Message::Round => {
                            self.overtaken += u64::from(std::mem::replace(&mut self.has_round, true));
                            self.round.skipped_ticks = self.round.skipped_ticks.saturating_add(self.overtaken);
                        }
                        Message::Opened(opened) => return Ok(Event::Opened(opened)),
                        Message::OpenFailed(error) => return Ok(Event::OpenFailed(error)),
                        Message::Identified(identity) => return Ok(Event::Identified(identity)),
                        Message::SourceGone(what) => return Ok(Event::SourceGone(what)),
                    }
                }
                None => {
                    if !self.fill()? {
                        return Ok(if std::mem::take(&mut self.has_round) { Event::Round } else { Event::Nothing });
                    }
                }
            }
        }
    }

    fn round(&self) -> &Round {
        &self.round
    }
}

impl Drop for ChildSampler {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        if let Err(error) = child.kill() {
            log::warn!("cannot end the sampler process {}: {error}", child.id());
        }
        if wait(&mut child, END_LIMIT).is_none() {
            // In uninterruptible sleep not even SIGKILL reaches it.
            log::warn!("the sampler process {} does not end and is left behind", child.id());
            self.abandoned.add(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Instant};

    use telemetry::Identity;

    use super::{
        super::{DeviceReading, Opened, board::Head, frame::Encoder},
        *,
    };

    fn next(sampler: &mut dyn Sampler) -> Event {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match sampler.receive().unwrap() {
                Event::Nothing if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                event => return event,
            }
        }
    }

    #[test]
    fn a_round_before_other_news_is_not_lost_and_one_that_is_overtaken_is_a_skipped_tick() {
        let mut encoder = Encoder::default();
        let mut round = |started_boottime_ns, skipped_ticks| {
            let reading = DeviceReading::default();
            encoder.round(Head { started_boottime_ns, has_news: true, skipped_ticks }, [(&reading, false)].into_iter()).to_vec()
        };
        let rounds = [round(1, 0), round(2, 0), round(3, 5)];
        let identity = Identity { uuid: "found".to_owned(), ..Identity::default() };
        let identified = encoder.identified(&identity).to_vec();
        let opened = encoder.opened(&Opened::default()).to_vec();
        // The first round waits behind news of another kind, the second one is overtaken by the third.
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, [&opened, &rounds[0], &identified, &rounds[1], &rounds[2]].map(Vec::as_slice).concat()).unwrap();
        let script = format!("cat {}; exec sleep 60", file.path().display());
        let mut sampler = ChildLauncher::new("/bin/sh".into(), vec!["-c".into(), script.into()]).launch().unwrap();

        assert!(matches!(next(sampler.as_mut()), Event::Opened(_)));
        assert!(matches!(next(sampler.as_mut()), Event::Identified(found) if found == identity));
        assert!(matches!(next(sampler.as_mut()), Event::Round));
        assert_eq!((sampler.round().started_boottime_ns, sampler.round().skipped_ticks), (3, 5 + 2));
        assert!(matches!(sampler.receive().unwrap(), Event::Nothing), "told once");
    }
}
