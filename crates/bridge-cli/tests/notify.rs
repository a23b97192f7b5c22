//! The service manager's side of `sd_notify`: a real datagram socket, the real daemon and the real loop.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    fs,
    os::{
        fd::BorrowedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use bridge::{
    Control, MapOptions, Observer, Phase, Plan, SamplerError, Source, WhenUnavailable,
    clock::SystemClock,
    sampler::{Event, LaneLauncher, Launch, Round, Sampler},
};
use bridge_cli::notify::{Manager, Notifier};
use common::{BRIDGE, Daemon, NO_LIBRARY, Sim};
use map_reader::{Freshness, Reader, boottime_now_ns};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Code, Device, Scenario};
use telemetry::mock::MockSource;
use tempfile::TempDir;
use test_support::Bpffs;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A service manager's socket.
struct Listener {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Listener {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        Self { socket, folder }
    }

    fn manager(&self, watchdog: Option<Duration>) -> Manager {
        Manager { socket: Some(self.folder.path().join("notify").into()), watchdog }
    }

    fn start(&self, pins: &Bpffs, arguments: &[&str]) -> Daemon {
        let mut command = Command::new(BRIDGE);
        command.arg("--pin-dir").arg(pins.path()).args(arguments);
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify")).env("WATCHDOG_USEC", "200000").env_remove("WATCHDOG_PID");
        Daemon::spawn(&mut command)
    }

    /// The next message within this time.
    fn next(&self, limit: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(limit)).unwrap();
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).unwrap())
    }

    /// The next message that is more than a sign of life.
    #[track_caller]
    fn news(&self, daemon: &Daemon) -> String {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.next(Duration::from_secs(1)) {
                Some(message) if message != "WATCHDOG=1" => return message,
                _ => {}
            }
        }
        panic!("no news in {PATIENCE:?}: {}", daemon.log());
    }

    #[track_caller]
    fn news_with(&self, daemon: &Daemon, part: &str) -> String {
        loop {
            let news = self.news(daemon);
            if news.contains(part) {
                return news;
            }
        }
    }
}

fn one_gpu() -> Scenario {
    Scenario::new().device(Device::t4())
}

#[test]
fn ready_comes_with_the_first_round_and_the_status_follows_the_driver() {
    let (listener, pins, sim) = (Listener::new(), Bpffs::mount(), Sim::install(&one_gpu()));
    let mut daemon = listener.start(&pins, &["--mode=real", "--poll-interval=50ms", &sim.flag()]);
    let first = listener.news(&daemon);
    let meta = Reader::open(pins.path()).meta().unwrap();
    let freshness = Freshness::of(&meta, boottime_now_ns().unwrap(), PATIENCE);
    assert!(first.starts_with("READY=1\nSTATUS=publishing 1 devices of nvml"), "{first:?}");
    assert!(meta.helper_pid == daemon.pid() && freshness.is_fresh(), "ready before the first round: {meta:?}");

    let sampler = daemon.sampler();
    let environment = fs::read(format!("/proc/{sampler}/environ")).unwrap();
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC"] {
        assert!(!String::from_utf8_lossy(&environment).contains(name), "the sampler was given {name}");
    }

    sim.library.play(&Scenario::new().device(Device::t4().lost(Code::GPU_IS_LOST))).unwrap();
    assert_eq!(listener.news(&daemon), "STATUS=no device answers");
    sim.library.play(&one_gpu()).unwrap();
    let back = listener.news_with(&daemon, "publishing");
    assert!(back.starts_with("STATUS=publishing 1 devices"), "READY is said once: {back:?}");
    daemon.signal(Signal::SIGTERM);
    let last = listener.news(&daemon);
    assert!(last.starts_with("STOPPING=1\n"), "{last:?}");
}

#[test]
fn a_bridge_that_waits_by_design_is_ready() {
    let (listener, pins) = (Listener::new(), Bpffs::mount());
    let daemon = listener.start(&pins, &["--mode=real", "--idle-if-no-gpu", NO_LIBRARY]);
    let first = listener.news(&daemon);
    assert!(first.starts_with("READY=1\nSTATUS=nvml cannot be opened: ") && !first[8..].contains('\n'), "{first:?}");
    assert!(daemon.log().contains("WARN  the service manager's watchdog of 200ms is short"), "{}", daemon.log());
    // The loop goes round while there is nothing to publish.
    let end = Instant::now() + PATIENCE;
    let mut signs = 0;
    while signs < 3 {
        assert!(Instant::now() < end, "{signs} signs of life: {}", daemon.log());
        signs += u32::from(listener.next(Duration::from_secs(2)).is_some_and(|message| message == "WATCHDOG=1"));
    }
}

#[test]
fn a_fallback_is_ready_and_says_that_its_data_is_invented() {
    let (listener, pins) = (Listener::new(), Bpffs::mount());
    let daemon = listener.start(&pins, &["--mode=auto", NO_LIBRARY]);
    let first = listener.news(&daemon);
    assert!(first.starts_with("READY=1\n") && first.contains("INVENTED"), "{first:?}");
}

#[test]
fn a_manager_that_cannot_be_reached_is_told_of_and_does_no_harm() {
    let pins = Bpffs::mount();
    let mut command = Command::new(BRIDGE);
    command.args(["--mode=mock", "--pin-dir"]).arg(pins.path()).env("NOTIFY_SOCKET", "/nowhere/notify");
    let mut daemon = Daemon::spawn(&mut command);
    daemon.publishing(&pins);
    assert!(daemon.log().contains("WARN  cannot reach the service manager's socket /nowhere/notify"), "{}", daemon.log());
    assert_eq!(daemon.end(Signal::SIGTERM).0, Some(0));
}

/// The mock source's sampler, whose owner hangs in it while the gate is shut.
#[derive(Debug)]
struct Gated {
    inner: LaneLauncher,
    gate: Arc<Mutex<()>>,
}

impl Launch for Gated {
    fn launch(&mut self) -> Result<Box<dyn Sampler>, SamplerError> {
        Ok(Box::new(GatedSampler { inner: self.inner.launch()?, gate: Arc::clone(&self.gate) }))
    }
}

#[derive(Debug)]
struct GatedSampler {
    inner: Box<dyn Sampler>,
    gate: Arc<Mutex<()>>,
}

impl Sampler for GatedSampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }

    fn deadline(&self) -> Option<Instant> {
        self.inner.deadline()
    }

    fn receive(&mut self) -> Result<Event, SamplerError> {
        let _open = self.gate.lock().unwrap();
        self.inner.receive()
    }

    fn round(&self) -> &Round {
        self.inner.round()
    }
}

#[test]
fn the_watchdog_is_fed_by_the_loop_and_starves_with_it() {
    let (listener, pins) = (Listener::new(), Bpffs::mount());
    let watchdog = Duration::from_millis(100);
    let notifier = Notifier::new(&listener.manager(Some(watchdog)), false).unwrap().unwrap();
    let interval = Duration::from_millis(10);
    let clock: Arc<dyn bridge::clock::Clock> = Arc::new(SystemClock);
    let gate = Arc::new(Mutex::new(()));
    let inner = LaneLauncher::new(|| Box::new(MockSource::default()), interval, Arc::clone(&clock));
    let launcher = Box::new(Gated { inner, gate: Arc::clone(&gate) });
    let plan = Plan {
        maps: MapOptions::new(pins.path(), std::process::id(), boottime_now_ns().unwrap()),
        keep_pins: false,
        poll_interval: interval,
        version: "test".to_owned(),
        clock,
        sources: vec![Source { name: "mock", is_mock: true, launcher }],
        when_unavailable: WhenUnavailable::Fail,
        observer: Box::new(notifier),
    };
    let control = Control::new().unwrap();
    let running = {
        let control = control.clone();
        thread::spawn(move || bridge::run(plan, &control))
    };
    let wait_for = |expected: &str| {
        let deadline = Instant::now() + PATIENCE;
        while !listener.next(Duration::from_secs(1)).is_some_and(|message| message.starts_with(expected)) {
            assert!(Instant::now() < deadline, "no {expected} in {PATIENCE:?}");
        }
    };
    wait_for("READY=1");
    let began = Instant::now();
    for _ in 0..10 {
        wait_for("WATCHDOG=1");
    }
    // Ten at no less than half the watchdog's time apart; the first may have waited in the socket.
    assert!(began.elapsed() >= watchdog / 2 * 8, "ten signs of life in {:?}", began.elapsed());

    let shut = gate.lock().unwrap();
    // What was said before the loop came to the gate.
    while listener.next(watchdog * 3).is_some() {}
    assert_eq!(listener.next(watchdog * 10), None, "a sign of life from a loop that hangs");
    drop(shut);
    wait_for("WATCHDOG=1");
    control.stop();
    wait_for("STOPPING=1");
    running.join().unwrap().unwrap();
}

#[test]
fn a_manager_that_does_not_read_holds_nobody_up() {
    let listener = Listener::new();
    let mut notifier = Notifier::new(&listener.manager(Some(Duration::from_nanos(1))), false).unwrap().unwrap();
    // Far more than the socket takes.
    for _ in 0..10_000 {
        notifier.alive();
    }
    assert_eq!(listener.next(PATIENCE).as_deref(), Some("WATCHDOG=1"));
}

#[test]
fn ready_is_said_once_and_a_status_is_one_line() {
    let listener = Listener::new();
    let mut notifier = Notifier::new(&listener.manager(None), false).unwrap().unwrap();
    notifier.phase(Phase::Waiting, "not by design");
    notifier.phase(Phase::Publishing, "one\nREADY=1");
    notifier.phase(Phase::Waiting, "lost");
    notifier.phase(Phase::Publishing, "again");
    notifier.alive();
    notifier.phase(Phase::Stopping, "stopping");
    let expected = ["STATUS=not by design", "READY=1\nSTATUS=one READY=1", "STATUS=lost", "STATUS=again", "STOPPING=1\nSTATUS=stopping"];
    for message in expected {
        assert_eq!(listener.next(PATIENCE).as_deref(), Some(message));
    }
}

#[test]
fn abstract_sockets_are_reached_and_no_socket_means_nobody() {
    let name = format!("gpu-ebpf-bridge-test-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let manager = Manager { socket: Some(format!("@{name}").into()), watchdog: None };
    Notifier::new(&manager, true).unwrap().unwrap().phase(Phase::Idle, "no GPU");
    let mut buffer = [0; 64];
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"READY=1\nSTATUS=no GPU");
    assert!(Notifier::new(&Manager::default(), true).unwrap().is_none());
    let unreachable = Manager { socket: Some("relative-and-missing".into()), watchdog: None };
    assert!(Notifier::new(&unreachable, true).is_err());
}
