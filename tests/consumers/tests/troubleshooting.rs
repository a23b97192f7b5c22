//! docs/troubleshooting.md quotes what the programs say: each situation is brought about, and what is said compared with the page.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use e2e::{Bpffs, Bridge, Sim, binary, eventually};
use gpu_types::GpuMeta;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use nvml_sim::scenario::{Code, Device, Process, Scenario};
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../docs/troubleshooting.md");
const GIB: u64 = 1 << 30;

/// What cannot be brought about here, and where else it is. That the programs can say it is looked up in their source.
const ELSEWHERE: [&str; 9] = [
    // GPUs of AMD and Intel: tests of the daemon, processes.rs, and of their source.
    "the processes of GPUs of AMD and Intel are not looked at",
    "not all processes can be looked at",
    // A filter of system calls, and a user namespace: tests of the daemon, refused.rs.
    "a seccomp filter is in force, which seems to refuse bpf",
    "the capability is worth nothing to bpf in a user namespace",
    // Records of another schema: map-reader's own tests.
    "its version is",
    // A loop that stands still: the daemon's own tests of its health.
    "lives and hangs",
    // Before Linux 5.19, or under a container runtime's seccomp profile: tests/vm has the former.
    "this needs CAP_BPF here",
    // A cgroup's device rules: a unit test of the daemon's preflight.
    "the container's device rules forbid it",
    // After eight failures with growing pauses: tests/e2e, with shorter ones.
    "times in a row; giving up, so that a supervisor can start afresh",
];

/// The quotes in the first column of the page's tables: what is in backticks and is no flag, file or function.
fn quotes() -> BTreeSet<&'static str> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ") && !line.contains("what it is, and what helps"));
    let first = rows.map(|row| row.split(" | ").next().unwrap());
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a program says that ends by itself.
#[track_caller]
fn said(command: &mut Command) -> String {
    text(&command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

fn bridge(pin_dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("gpu-ebpf-bridge"));
    command.arg("--pin-dir").arg(pin_dir).args(arguments);
    command
}

fn health(pins: &Bpffs) -> String {
    said(&mut bridge(pins.path(), &["--health"]))
}

fn table(pins: &Bpffs) -> String {
    said(Command::new(binary("bridge-dump")).args(["--output=table", "--pin-dir"]).arg(pins.path()))
}

/// Waits until `ask` says something with `text` in it.
#[track_caller]
fn wait_for(text: &str, mut ask: impl FnMut() -> String) -> String {
    eventually(text, || Some(ask()).filter(|said| said.contains(text)))
}

fn device() -> Device {
    Device::default().utilization(71, 10).memory(80 * GIB, 2 * GIB, 0)
}

fn zeros() -> Vec<String> {
    let pins = Bpffs::mount();
    // The consumer comes first, and nobody else.
    let events = said(Command::new(binary("gpu-events")).args(["--seconds=0", "--pin-dir"]).arg(pins.path()));
    assert!(pins.pin("gpu_meta").exists(), "{events}");
    let unwritten = table(&pins);
    assert!(unwritten.contains("nothing was published yet"), "{unwritten}");

    let idle = Bridge::builder(&pins, "real", "100ms").args(["--idle-if-no-gpu", "--nvml-library-path=/no/such/library"]).start();
    let waiting = wait_for("idle · source none", || table(&pins));
    drop(idle);

    let mut sim = Sim::install(Scenario::new().devices(2, device().process(Process::compute(std::process::id(), GIB))));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    bridge.wait_for_maps(&pins, "the process", |reader| reader.process(std::process::id()).unwrap().map(drop));
    let not_reported = wait_for("71 %", || table(&pins));
    let words: Vec<&str> = not_reported.lines().nth(3).unwrap().split_whitespace().skip(1).collect();
    assert!(words.contains(&"-") && !words.contains(&"0"), "neither power nor fan nor ECC: {not_reported}");
    let process = format!("{} x2 2.0 GiB - - -", std::process::id());
    assert!(not_reported.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == process), "{not_reported}");
    sim.change(1, |device| device.lost(Code::GPU_IS_LOST));
    vec![unwritten, waiting, not_reported, wait_for("GPU 1 LOST", || table(&pins))]
}

fn processes() -> Vec<String> {
    let pins = Bpffs::mount();
    let mut foreign = Command::new("unshare");
    foreign
        .args(["--pid", "--fork", "--kill-child"])
        .arg(binary("gpu-ebpf-bridge"))
        .args(["--mode=real", "--nvml-library-path=/no/library"]);
    let namespace = said(foreign.arg("--pin-dir").arg(pins.path()));

    let crowd = (0..4_000).fold(device(), |device, index| device.process(Process::compute(4_000_000 + index, GIB + u64::from(index))));
    let sim = Sim::install(Scenario::new().device(crowd));
    let mut bridge = sim.bridge(&pins, "100ms").start();
    let left_out = bridge.wait_for_log("do not fit into the maps");
    let kept = bridge.wait_for_maps(&pins, "the processes", |reader| reader.process(4_003_999).unwrap().map(drop));
    assert_eq!(kept.processes(map_reader::Order::Unsorted).unwrap().len(), 3_968);
    vec![namespace, left_out]
}

fn stale() -> Vec<String> {
    let pins = Bpffs::mount();
    let mut sim = Sim::install(Scenario::new().device(device()));
    let mut bridge = sim.bridge(&pins, "50ms").start();
    bridge.wait_until_published(&pins);
    let mut said = vec![];
    bridge.signal(Signal::SIGSTOP);
    said.push(wait_for("is suspended", || health(&pins)));
    bridge.signal(Signal::SIGCONT);
    wait_for("publishing:", || health(&pins));
    bridge.signal(Signal::SIGUSR1);
    said.push(wait_for("waiting for the driver", || health(&pins)));
    bridge.signal(Signal::SIGUSR2);
    wait_for("publishing:", || health(&pins));
    sim.change(0, |device| device.lost(Code::GPU_IS_LOST));
    said.push(wait_for("stale: waiting for the driver; the newest round is", || health(&pins)));
    said.push(bridge.wait_for_log("no device has answered for"));
    bridge.stop(Signal::SIGKILL);
    said.push(wait_for("is gone", || health(&pins)));

    let mut slow = Bridge::builder(&pins, "mock", "500ms").arg("--keep-pins").start();
    slow.wait_until_published(&pins);
    assert!(slow.log().contains("consumers that call data older than 300ms stale"), "{}", slow.log());
    said.push(health(&pins));
    said.push(slow.log());
    slow.stop(Signal::SIGTERM);
    said.push(wait_for("the bridge has stopped", || health(&pins)));
    said
}

/// As a user without any privilege.
fn as_nobody(command: &Command) -> Command {
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"])
        .arg(command.get_program())
        .args(command.get_args());
    setpriv
}

fn permissions() -> Vec<String> {
    let pins = Bpffs::mount();
    let mut owner = Bridge::builder(&pins, "mock", "100ms").start();
    owner.wait_until_published(&pins);
    // What others may reach, and no more.
    let programs = TempDir::with_prefix("programs-").unwrap();
    fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // By a program: a child that another thread starts would hold the copy open for writing, and nobody could run it.
    let copy = |name| {
        assert!(Command::new("cp").arg(binary(name)).arg(programs.path()).status().expect("cp").success());
        programs.path().join(name)
    };
    let (dump, daemon) = (copy("bridge-dump"), copy("gpu-ebpf-bridge"));
    let mut reader = Command::new(dump);
    reader.arg("--pin-dir").arg(pins.path());
    fs::set_permissions(pins.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let forbidden = said(&mut as_nobody(&reader));
    drop(owner);

    let mut helped = Bridge::builder(&pins, "mock", "100ms").args(["--pin-mode=0640", "--pin-group=65534"]).start();
    helped.wait_until_published(&pins);
    assert!(said(&mut as_nobody(&reader)).contains("[device 0]"), "the group reads, as the page says");
    drop(helped);

    let other = Bpffs::mount();
    fs::set_permissions(other.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut start = Command::new(daemon);
    start.arg("--mode=mock").arg("--pin-dir").arg(other.path());
    let incapable = said(&mut as_nobody(&start));
    // With CAP_BPF, and the directory somebody else's.
    let mut capable = Command::new("setpriv");
    capable.args(["--inh-caps=+bpf", "--ambient-caps=+bpf"]).args(as_nobody(&start).get_args().filter(|word| *word != "--inh-caps=-all"));
    let not_mine = said(&mut capable);

    mount(None::<&str>, other.path(), None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>).unwrap();
    let read_only = said(&mut bridge(other.path(), &["--mode=mock"]));
    vec![forbidden, incapable, not_mine, read_only]
}

fn mock_data() -> Vec<String> {
    let pins = Bpffs::mount();
    let mut auto = Bridge::builder(&pins, "auto", "100ms").arg("--nvml-library-path=/no/such/library").start();
    auto.wait_until_published(&pins);
    auto.wait_for_log("THE PUBLISHED DATA IS INVENTED");
    assert!(health(&pins).contains("INVENTED") && table(&pins).contains("INVENTED"), "{}", health(&pins));
    let missing = auto.log();
    drop(auto);

    let fails = |code| {
        let sim = Sim::install(Scenario::new().device(device()).init_fails(code));
        let library = format!("--nvml-library-path={}", sim.library().display());
        said(&mut bridge(pins.path(), &["--mode=real", &library]))
    };
    let not_loaded = fails(Code::DRIVER_NOT_LOADED);
    let other_version = fails(Code::LIB_RM_VERSION_MISMATCH);
    let not_permitted = fails(Code::NO_PERMISSION);

    // A host whose library is another processor's, and then one whose devices are not linked.
    let host = TempDir::with_prefix("host-").unwrap();
    let folder = host.path().join("usr/lib64");
    fs::create_dir_all(&folder).unwrap();
    let sim = Sim::install(Scenario::new().device(device()).init_fails(Code::DRIVER_NOT_LOADED));
    let mut library = fs::read(sim.library()).unwrap();
    // e_machine: MIPS.
    (library[18], library[19]) = (8, 0);
    fs::write(folder.join("libnvidia-ml.so.1"), library).unwrap();
    let host_path = format!("--host-path={}", host.path().display());
    let other_processor = said(&mut bridge(pins.path(), &["--mode=real", &host_path]));

    fs::create_dir(host.path().join("dev")).unwrap();
    fs::write(host.path().join("dev/nvidiactl"), "").unwrap();
    let library = format!("--nvml-library-path={}", sim.library().display());
    let without_devices = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"";
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "private", "sh", "-c", without_devices, "sh"]).arg(binary("gpu-ebpf-bridge"));
    let not_linked = said(container.args(["--mode=real", &host_path, &library, "--pin-dir"]).arg(pins.path()));
    vec![missing, not_loaded, other_version, not_permitted, other_processor, not_linked]
}

fn starts() -> Vec<String> {
    let pins = Bpffs::mount();
    let folder = TempDir::new().unwrap();
    let no_bpffs = said(&mut bridge(folder.path(), &["--mode=mock"]));
    let mut first = Bridge::builder(&pins, "mock", "100ms").start();
    first.wait_until_published(&pins);
    let second = said(&mut bridge(pins.path(), &["--mode=mock"]));
    assert!(second.contains(&first.pid().to_string()), "the other one is named: {second}");
    first.stop(Signal::SIGTERM);

    let create = ["map", "create"].map(Into::into).into_iter().chain([pins.pin("gpu_per_pid").into_os_string()]);
    let kind = ["type", "hash", "key", "8", "value", "32", "entries", "128", "name", "gpu_per_pid"].map(Into::into);
    assert!(Command::new("bpftool").args(create.chain(kind)).status().expect("bpftool").success());
    let foreign = said(&mut bridge(pins.path(), &["--mode=mock"]));
    let consumer = said(Command::new(binary("gpu-events")).args(["--seconds=1", "--pin-dir"]).arg(pins.path()));
    vec![no_bpffs, second, foreign, consumer]
}

fn replaced() -> Vec<String> {
    let pins = Bpffs::mount();
    let dir = pins.path().join("gpu");
    let start = || {
        let bridge = Bridge::at(&dir).args(["--mode=mock", "--poll-interval=100ms"]).start();
        let is_its = |meta: &GpuMeta| meta.helper_pid == bridge.pid();
        eventually("a round", || map_reader::Reader::open(&dir).meta().ok().filter(is_its));
        bridge
    };
    let mut first = start();
    // Else it might take the directory first.
    first.signal(Signal::SIGSTOP);
    fs::rename(&dir, pins.path().join("moved")).unwrap();
    let second = start();
    first.signal(Signal::SIGCONT);
    let held = first.wait_for_log("another bridge publishes there");
    drop(second);
    first.wait_for_log("taken again");
    vec![held]
}

fn screens() -> Vec<String> {
    let pins = Bpffs::mount();
    let mut watch = Command::new(binary("bridge-dump"));
    watch.arg("--watch").arg("--pin-dir").arg(pins.path());
    let no_terminal = said(&mut watch);
    // Maps without a bridge.
    said(Command::new(binary("gpu-events")).args(["--seconds=0", "--pin-dir"]).arg(pins.path()));
    // On a terminal, in a PID namespace with the /proc of that.
    let dump = binary("bridge-dump");
    let watch =
        format!("stty columns 100 rows 24; timeout --foreground 1 {} --watch=50ms --pin-dir {}", dump.display(), pins.path().display());
    let mut namespace = Command::new("unshare");
    let terminal = ["python3", "-c", "import pty, sys; pty.spawn(sys.argv[1:])", "sh", "-c", &watch];
    namespace.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).args(terminal).env("TERM", "xterm");
    let drawn = said(&mut namespace);
    let mut screen = vt100::Parser::new(24, 100, 0);
    // Up to where it leaves its screen.
    screen.process(drawn.split("\u{1b}[?1049l").next().unwrap().as_bytes());
    vec![no_terminal, screen.screen().contents()]
}

fn collect_sources(folder: &Path, code: &mut String) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect_sources(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_quote_on_the_page_is_what_is_said_in_that_situation() {
    let situations: [fn() -> Vec<String>; 8] = [zeros, processes, stale, permissions, mock_data, starts, replaced, screens];
    let said: Vec<String> = situations.map(thread::spawn).into_iter().flat_map(|situation| situation.join().unwrap()).collect();
    let quotes = quotes();
    assert!(quotes.len() > 30 && ELSEWHERE.iter().all(|quote| quotes.contains(quote)), "{quotes:?}");
    // The page names where to look in the same way.
    let commands = ["--keep-pins"];
    let unsaid: Vec<_> = quotes
        .into_iter()
        .filter(|quote| !ELSEWHERE.contains(quote) && !commands.contains(quote) && !said.iter().any(|said| said.contains(quote)))
        .collect();
    assert!(unsaid.is_empty(), "nobody says {unsaid:#?} among {said:#?}");

    let mut code = String::new();
    collect_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates"), &mut code);
    // A message may be broken over lines by a backslash.
    let code = code.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(ELSEWHERE.iter().all(|quote| code.contains(quote)), "no source says one of {ELSEWHERE:?}");
}

#[test]
fn a_program_that_holds_the_maps_keeps_them_over_a_restart_only_with_keep_pins() {
    let pins = Bpffs::mount();
    for (arguments, kept) in [(&[][..], false), (&["--keep-pins"][..], true)] {
        let mut first = Bridge::builder(&pins, "mock", "50ms").args(arguments).start();
        let held = first.wait_until_published(&pins);
        first.stop(Signal::SIGTERM);
        let mut second = Bridge::builder(&pins, "mock", "50ms").args(arguments).start();
        second.wait_until_published(&pins);
        let follows = held.meta().unwrap().helper_pid == second.pid();
        assert_eq!(follows, kept, "{arguments:?}");
        second.stop(Signal::SIGTERM);
        for pin in pins.pins() {
            fs::remove_file(pins.pin(&pin)).unwrap();
        }
    }
}
