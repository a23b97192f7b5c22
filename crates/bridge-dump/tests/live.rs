//! The live screen in a real terminal: a pseudo-terminal, read by a terminal emulator.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gpu_types::keys::PidDeviceKey;
use gpu_types::{GpuBridgeState, GpuDeviceMetrics, GpuMeta, GpuPidMetrics, GpuPidMetricsAggregated};
use map_reader::boottime_now_ns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use tempfile::TempDir;
use test_support::{WAIT, until};

#[path = "../../map-reader/tests/support/mod.rs"]
mod maps;
use maps::{Maps, PinDir, put};

const BRIDGE: u32 = 77;
const HOUR_NS: u64 = 3_600_000_000_000;
const OFFSET_NS: i64 = 1_700_000_000_000_000_000;

/// The program in a terminal of its own.
struct Screen {
    child: Child,
    terminal: File,
    /// Keeps the terminal open, and shows its modes.
    line: OwnedFd,
    before: Termios,
    emulator: Arc<Mutex<vt100::Parser>>,
}

fn window(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The program on a terminal of its own: both ends of that, and the modes that it had.
fn start(dir: &Path, columns: u16, rows: u16, arguments: &[&str], environment: &[(&str, &OsStr)]) -> (Child, File, OwnedFd, Termios) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, window(columns, rows)).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let line = File::options().read(true).write(true).open(path).unwrap();
    let before = tcgetattr(&line).unwrap();
    // In a session of its own, so that the terminal's keys and sizes reach it as in a shell.
    let child = Command::new("setsid")
        .args(["--ctty", env!("CARGO_BIN_EXE_bridge-dump"), "--watch=50ms", "--pin-dir"])
        .arg(dir)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(line.try_clone().unwrap())
        .stdout(line.try_clone().unwrap())
        .stderr(line.try_clone().unwrap())
        .spawn()
        .unwrap();
    (child, File::from(terminal), line.into(), before)
}

impl Screen {
    fn open(dir: &Path, columns: u16, rows: u16, arguments: &[&str], no_color: &str) -> Self {
        Self::open_in(dir, columns, rows, arguments, &[("NO_COLOR", no_color.as_ref())])
    }

    fn open_in(dir: &Path, columns: u16, rows: u16, arguments: &[&str], environment: &[(&str, &OsStr)]) -> Self {
        let (child, terminal, line, before) = start(dir, columns, rows, arguments, environment);
        let emulator = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut output, sink) = (terminal.try_clone().unwrap(), Arc::clone(&emulator));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                sink.lock().unwrap().process(&bytes[..length]);
            }
        });
        Self { child, terminal, line, before, emulator }
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.emulator.lock().unwrap().screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.terminal, window(columns, rows)).unwrap();
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn lines(&self) -> Vec<String> {
        let emulator = self.emulator.lock().unwrap();
        let columns = emulator.screen().size().1;
        emulator.screen().rows(0, columns).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Whether any character on the screen has a colour.
    fn is_coloured(&self) -> bool {
        let emulator = self.emulator.lock().unwrap();
        let (rows, columns) = emulator.screen().size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let colours = cells.filter_map(|(row, column)| emulator.screen().cell(row, column)).map(|cell| (cell.fgcolor(), cell.bgcolor()));
        colours.into_iter().any(|colours| colours != (vt100::Color::Default, vt100::Color::Default))
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    fn wait_for<T>(&self, what: &str, ask: impl Fn(&[String]) -> Option<T>) -> T {
        until(WAIT, || ask(&self.lines())).unwrap_or_else(|| panic!("waited in vain for {what} on\n{}", self.lines().join("\n")))
    }

    #[track_caller]
    fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |lines| lines.iter().any(|line| line.contains(text)).then_some(()));
    }

    /// The PIDs in the order in which they are shown, once there are as many as `expected`.
    #[track_caller]
    fn wait_for_pids(&self, expected: &[u32]) {
        let pids = |lines: &[String]| -> Vec<u32> {
            let heading = lines.iter().position(|line| line.contains("MEM %")).unwrap_or(lines.len());
            lines[heading..].iter().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
        };
        self.wait_for(&format!("processes {expected:?}"), |lines| (pids(lines) == expected).then_some(()));
    }

    /// Waits for the program's end, and fails when the terminal is not as it was before.
    #[track_caller]
    fn wait_for_end(mut self) -> ExitStatus {
        let status = until(WAIT, || self.child.try_wait().unwrap()).expect("the program's end");
        let left = until(WAIT, || {
            let emulator = self.emulator.lock().unwrap();
            (!emulator.screen().alternate_screen() && !emulator.screen().hide_cursor()).then_some(())
        });
        assert!(left.is_some(), "the alternate screen was not left, or the cursor not shown again");
        let after = tcgetattr(&self.line).unwrap();
        let modes = |termios: &Termios| (termios.input_modes, termios.output_modes, termios.control_modes, termios.local_modes);
        assert_eq!(modes(&after), modes(&self.before));
        status
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A process that can be looked up.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let sleeper = Self(Command::new("sleep").arg("1234").spawn().unwrap());
        // Until then it is still this program.
        until(WAIT, || fs::read(format!("/proc/{}/cmdline", sleeper.0.id())).unwrap().starts_with(b"sleep").then_some(())).unwrap();
        sleeper
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn write_meta(maps: &Maps, stamp_ns: u64) {
    let meta = GpuMeta {
        schema_version: 1,
        last_update_boottime_ns: stamp_ns,
        helper_pid: BRIDGE,
        clock_offset_ns: OFFSET_NS,
        ..Default::default()
    };
    put(&maps.meta, 0u32, meta);
}

fn put_process(maps: &Maps, pid: u32, devices: &[u32], memory: u64, sm_util_pct_max: u32, timestamp_ns: u64) {
    let record = GpuPidMetricsAggregated {
        timestamp_ns,
        used_gpu_memory_total: memory,
        sm_util_pct_max,
        mem_util_pct_max: 7,
        gpu_device_primary: if let [device] = devices { *device as u8 } else { 0xFF },
        device_count: devices.len() as u8,
        ..Default::default()
    };
    put(&maps.per_pid, pid, record);
    for &device in devices {
        put(&maps.per_pid_per_device, PidDeviceKey::new(pid, device), GpuPidMetrics::default());
    }
}

/// `devices` GPUs; all numbers are such that the screen stands still.
fn publish(maps: &Maps, devices: u32, source: u32) {
    let device = GpuDeviceMetrics {
        timestamp_ns: 1,
        sm_util_pct: 50,
        mem_total: 80 << 30,
        mem_used: 20 << 30,
        temp_c: 60,
        power_mw: 300_000,
        throttle_reasons: 0x5,
        pcie_tx_kbps: 1_000_000,
        pcie_rx_kbps: 1_500_000,
        ..Default::default()
    };
    let mut state = GpuBridgeState {
        version: 1,
        phase: 1,
        source,
        n_devices: devices,
        helper_pid: BRIDGE,
        poll_interval_ns: 100_000_000,
        ..Default::default()
    };
    for index in 0..devices {
        put(&maps.device, index, device);
        let described = &mut state.devices[index as usize];
        described.name[..11].copy_from_slice(b"NVIDIA H100");
        described.pci_bus_id[..12].copy_from_slice(b"0000:3B:00.0");
        described.phase = 1;
        // No NVLink.
        described.metrics_present = !(1 << 15 | 1 << 16);
    }
    put(&maps.state, 0u32, state);
    write_meta(maps, boottime_now_ns().unwrap() + HOUR_NS);
}

#[test]
fn everything_is_to_be_seen_at_80_by_24() {
    let (pins, maps) = PinDir::full();
    let sleeper = Sleeper::start();
    publish(&maps, 2, 1);
    // Not older than the clock reading for an hour to come.
    let sampled = boottime_now_ns().unwrap() + HOUR_NS + OFFSET_NS as u64;
    put_process(&maps, sleeper.pid(), &[0, 1], 3 << 29, 38, sampled);
    put_process(&maps, 4_100_000, &[1], 1 << 20, 99, 0);
    let screen = Screen::open(pins.path(), 80, 24, &[], "1");
    screen.wait_for_pids(&[sleeper.pid(), 4_100_000]);
    // Drawn last.
    screen.wait_for_text("q quit");
    let lines = screen.lines();
    assert!(lines[0].starts_with("gpu-ebpf-bridge /tmp/bpffs-") && lines[0].ends_with("  fresh, 0 ms old"), "{lines:#?}");
    let pid = sleeper.pid();
    let expected = [
        "publishing · source real · every 100 ms · 2 GPUs · 2 processes".to_owned(),
        "GPU 0 NVIDIA H100  0000:3B:00.0  slowed: sw_power_cap".to_owned(),
        "  sm   50 % █████·····               ▅  mem 20.0/80.0 GiB   █▊·····           ▃".to_owned(),
        "  temp 60 °C       ▅ power 300 W      █ pcie 2.5 GB/s    █ nvlink -".to_owned(),
        "GPU 1 NVIDIA H100  0000:3B:00.0  slowed: sw_power_cap".to_owned(),
        "  sm   50 % █████·····               ▅  mem 20.0/80.0 GiB   █▊·····           ▃".to_owned(),
        "  temp 60 °C       ▅ power 300 W      █ pcie 2.5 GB/s    █ nvlink -".to_owned(),
        "     PID   GPU     MEMORY▼  SM % MEM %     AGE COMMAND".to_owned(),
        format!("{pid:>8}   0,1     1.5 GiB    38     7    0 ms sleep 1234"),
        " 4100000     1     1.0 MiB     -     -       - -".to_owned(),
    ];
    assert_eq!(lines[1..11], expected);
    assert_eq!(lines[23], "q quit · sort m memory u util p pid c command g gpu r reverse · / filter");
}

#[test]
fn histories_grow_by_one_with_each_round() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 1, 1);
    let screen = Screen::open(pins.path(), 80, 24, &[], "1");
    screen.wait_for_text("               ▅  mem");
    thread::sleep(Duration::from_millis(200));
    put(&maps.device, 0u32, GpuDeviceMetrics { timestamp_ns: 2, sm_util_pct: 100, mem_total: 4, mem_used: 4, ..Default::default() });
    write_meta(&maps, boottime_now_ns().unwrap() + HOUR_NS);
    screen.wait_for_text("              ▅█  mem");
    put(&maps.device, 0u32, GpuDeviceMetrics { timestamp_ns: 3, ..Default::default() });
    write_meta(&maps, boottime_now_ns().unwrap() + HOUR_NS);
    screen.wait_for_text("             ▅█▁  mem");
}

#[test]
fn keys_sort_filter_scroll_and_quit() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 2, 1);
    for (pid, device, memory, sm) in [(4_100_001, 1, 30, 1), (4_100_002, 0, 10, 3), (4_100_003, 1, 20, 2)] {
        put_process(&maps, pid, &[device], memory << 20, sm, 5);
    }
    let mut screen = Screen::open(pins.path(), 80, 24, &[], "1");
    let [first, second, third] = [4_100_001, 4_100_002, 4_100_003];
    screen.wait_for_pids(&[first, third, second]);
    screen.press("u");
    screen.wait_for_pids(&[second, third, first]);
    screen.press("r");
    screen.wait_for_pids(&[first, third, second]);
    screen.press("p");
    screen.wait_for_pids(&[first, second, third]);
    screen.press("g");
    screen.wait_for_pids(&[second, first, third]);
    screen.press("/q003");
    screen.wait_for_text("filter: q003");
    screen.wait_for_pids(&[]);
    screen.press("\x7f\x7f\x7f\x7f003\r");
    screen.wait_for_pids(&[third]);
    screen.wait_for_text("filter \"003\" (Esc drops it)");
    screen.press("\x1b");
    screen.wait_for_pids(&[second, first, third]);
    screen.press(" ");
    screen.wait_for_text(" PAUSED ");
    put_process(&maps, 4_100_004, &[0], 1, 1, 0);
    thread::sleep(Duration::from_millis(200));
    screen.wait_for_pids(&[second, first, third]);
    screen.press(" ");
    screen.wait_for_pids(&[second, 4_100_004, first, third]);
    screen.resize(80, 11);
    screen.wait_for_text("MEM %");
    screen.press("G\x1b[F");
    screen.wait_for("the last process", |lines| lines.iter().any(|line| line.contains("4100003")).then_some(()));
    screen.press("q");
    assert_eq!(screen.wait_for_end().code(), Some(0));
}

#[test]
fn the_screen_follows_the_terminals_size() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 16, 1);
    put_process(&maps, 4_100_001, &[0], 1, 1, 0);
    let screen = Screen::open(pins.path(), 80, 24, &[], "1");
    // A line each, and the process is still there.
    screen.wait_for("16 GPUs in a line each", |lines| {
        (lines[2].starts_with(" 0 NVIDIA H100") && lines[17].starts_with("15 NVIDIA H100") && lines[19].contains("4100001")).then_some(())
    });
    screen.resize(100, 70);
    screen.wait_for("16 cards", |lines| (lines[2].starts_with("GPU 0 ") && lines[47].starts_with("GPU 15 ")).then_some(()));
    screen.resize(60, 12);
    screen.wait_for_text("… 12 more GPUs");
    for (columns, rows) in [(20, 5), (3, 2), (1, 1)] {
        screen.resize(columns, rows);
        thread::sleep(Duration::from_millis(100));
    }
    screen.resize(80, 24);
    screen.wait_for("16 GPUs again", |lines| lines[17].starts_with("15 NVIDIA H100").then_some(()));
}

#[test]
fn the_terminal_is_as_before_after_every_signal_and_interrupt() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 1, 1);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let screen = Screen::open(pins.path(), 80, 24, &[], "");
        screen.wait_for_text("NVIDIA H100");
        assert!(screen.emulator.lock().unwrap().screen().alternate_screen());
        screen.signal(signal);
        assert_eq!(screen.wait_for_end().code(), Some(0), "{signal}");
    }
    let mut screen = Screen::open(pins.path(), 80, 24, &[], "");
    screen.wait_for_text("NVIDIA H100");
    screen.press("\x03");
    assert_eq!(screen.wait_for_end().code(), Some(0), "the interrupt key");
}

/// Stands before the C library's function, and fails once the file is there: the standard library, which trusts that clock, panics.
const FAILING_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	const char *file = getenv("CLOCK_FAILS_WITH");

	if (clock == CLOCK_MONOTONIC && file && access(file, F_OK) == 0) {
		errno = EINVAL;
		return -1;
	}
	return syscall(SYS_clock_gettime, clock, now);
}
"#;

#[test]
fn the_terminal_is_as_before_after_a_panic_and_shows_its_message() {
    let folder = TempDir::with_prefix("failing-clock-").unwrap();
    let [source, library, trigger] = ["clock.c", "clock.so", "now"].map(|name| folder.path().join(name));
    fs::write(&source, FAILING_CLOCK).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).args([&library, &source]).status();
    assert!(built.expect("a C compiler").success());

    let (pins, maps) = PinDir::full();
    publish(&maps, 1, 1);
    let environment = [("LD_PRELOAD", library.as_os_str()), ("CLOCK_FAILS_WITH", trigger.as_os_str()), ("RUST_BACKTRACE", "0".as_ref())];
    let screen = Screen::open_in(pins.path(), 80, 24, &[], &environment);
    screen.wait_for_text("NVIDIA H100");
    assert!(screen.emulator.lock().unwrap().screen().alternate_screen());
    fs::write(&trigger, "").unwrap();
    let emulator = Arc::clone(&screen.emulator);
    assert_eq!(screen.wait_for_end().code(), Some(101), "the exit status of a panic");
    let shown = until(WAIT, || Some(emulator.lock().unwrap().screen().contents()).filter(|text| text.contains("panicked at")));
    assert!(shown.is_some_and(|text| !text.contains("NVIDIA H100")), "{}", emulator.lock().unwrap().screen().contents());
}

#[test]
fn it_ends_with_its_terminal() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 1, 1);
    let (mut child, mut terminal, line, _) = start(pins.path(), 80, 24, &[], &[]);
    let mut emulator = vt100::Parser::new(24, 80, 0);
    let mut bytes = [0; 4096];
    while !emulator.screen().contents().contains("NVIDIA H100") {
        let length = terminal.read(&mut bytes).unwrap();
        emulator.process(&bytes[..length]);
    }
    drop((terminal, line));
    let end = until(WAIT, || child.try_wait().unwrap());
    drop(child.kill());
    assert!(end.is_some(), "it goes on without a terminal");
}

#[test]
fn colours_are_off_when_they_are_not_wanted() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 1, 1);
    let coloured = Screen::open(pins.path(), 80, 24, &[], "");
    coloured.wait_for_text("NVIDIA H100");
    assert!(coloured.is_coloured());
    let plain = Screen::open(pins.path(), 80, 24, &[], "1");
    plain.wait_for_text("NVIDIA H100");
    assert!(!plain.is_coloured());
}

#[test]
fn data_that_must_not_be_believed_is_called_so() {
    let (pins, maps) = PinDir::full();
    let screen = Screen::open(pins.path(), 80, 24, &[], "1");
    screen.wait_for_text(" NOTHING PUBLISHED YET");
    publish(&maps, 1, 3);
    screen.wait_for_text(" INVENTED DATA  fresh, 0 ms old");
    write_meta(&maps, 1);
    screen.wait_for_text(" STALE, ");
    pins.remove("gpu_meta");
    screen.wait_for_text(" NO DATA");
    screen.wait_for_text("gpu_meta is not pinned in ");
    let meta = pins.create(&gpu_types::maps::META);
    put(
        &meta,
        0u32,
        GpuMeta {
            schema_version: 1,
            last_update_boottime_ns: boottime_now_ns().unwrap() + HOUR_NS,
            helper_pid: BRIDGE,
            ..Default::default()
        },
    );
    screen.wait_for_text("fresh, 0 ms old");
}

#[test]
fn why_a_map_cannot_be_read_is_told_to_the_end() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("loop");
    std::os::unix::fs::symlink(&dir, &dir).unwrap();
    let screen = Screen::open(&dir, 130, 24, &[], "1");
    screen.wait_for_text(&format!("cannot open {}/gpu_meta: Too many levels of symbolic links (os error 40)", dir.display()));
}

#[test]
fn each_device_has_its_vendor_once_and_one_that_is_lost_is_named() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 3, 1);
    let mut state = GpuBridgeState { version: 1, phase: 1, source: 1, n_devices: 3, helper_pid: BRIDGE, ..Default::default() };
    for (index, (name, vendor_id, phase)) in
        [("NVIDIA H100", 0x10de, 1), ("Instinct", 0x1002, 1), ("Arc", 0x8086, 3)].into_iter().enumerate()
    {
        let described = &mut state.devices[index];
        described.name[..name.len()].copy_from_slice(name.as_bytes());
        // Nothing but its utilization.
        (described.vendor_id, described.phase, described.metrics_present) = (vendor_id, phase, 0b11);
    }
    put(&maps.state, 0u32, state);
    put(&maps.device, 2u32, GpuDeviceMetrics::default());
    let screen = Screen::open(pins.path(), 80, 24, &[], "1");
    screen.wait_for_text("q quit");
    let lines = screen.lines();
    assert_eq!(lines[1], "publishing · source real · 2 GPUs · 0 processes · GPU 2 lost");
    assert_eq!((lines[2].as_str(), lines[5].as_str()), ("GPU 0 NVIDIA H100", "GPU 1 AMD Instinct"));
    let absent = |line: &str| line.split(char::is_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    assert!(absent(&lines[6]).starts_with("sm 50 % █████·····") && absent(&lines[6]).contains(" mem - "), "{lines:#?}");
    assert_eq!(absent(&lines[7]), "temp - power - pcie - nvlink -", "what is not reported is not 0");
    drop(screen);
    let screen = Screen::open(pins.path(), 80, 24, &["--device=0"], "1");
    screen.wait_for_text("publishing · source real · 1 GPU · 0 processes");
    assert!(!screen.lines()[1].contains("lost"), "nobody asked for it");
}

#[test]
fn only_what_was_asked_for_is_shown() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 2, 1);
    put_process(&maps, 4_100_001, &[0], 1, 1, 0);
    put_process(&maps, 4_100_002, &[1], 1, 1, 0);
    let screen = Screen::open(pins.path(), 80, 24, &["--device=1"], "1");
    screen.wait_for_pids(&[4_100_002]);
    screen.wait_for("the device", |lines| lines[2].starts_with("GPU 1 ").then_some(()));
}

#[test]
fn what_a_terminal_would_obey_is_not_shown() {
    let (pins, maps) = PinDir::full();
    publish(&maps, 1, 1);
    let mut state = GpuBridgeState { version: 1, n_devices: 1, helper_pid: BRIDGE, ..Default::default() };
    state.devices[0].name[..9].copy_from_slice(b"H\x1b[2J\x1b[5m");
    put(&maps.state, 0u32, state);
    let screen = Screen::open(pins.path(), 80, 24, &[], "1");
    screen.wait_for_text("GPU 0 H?[2J?[5m");
}
