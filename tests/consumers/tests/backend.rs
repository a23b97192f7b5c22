//! The example of a backend builds by itself, outside this workspace, and what it publishes is what its file says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use e2e::{Bpffs, eventually};
use map_reader::{DevicePhase, Metric, Order, Phase, Reader, Source};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const PID: u32 = 4_100_001;

fn build() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/file-backend");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("file-backend");
    // The versions that this workspace has been built with: nothing new is to be fetched.
    fs::copy(folder.join("../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo");
    assert!(built.success(), "the example does not build");
    target.join("debug/file-bridge")
}

struct FileBridge {
    child: Child,
    file: PathBuf,
    folder: TempDir,
}

impl FileBridge {
    fn start(pins: &Bpffs) -> Self {
        let program = build();
        let folder = TempDir::with_prefix("file-backend-").unwrap();
        let file = folder.path().join("machine.json");
        let child = Command::new(program).arg(&file).arg(pins.path()).spawn().unwrap();
        Self { child, file, folder }
    }

    /// Whole at every moment, as a file that others read must be.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new.json");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.file).unwrap();
    }
}

impl Drop for FileBridge {
    fn drop(&mut self) {
        // It may have ended as it was asked to.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_program_publishes_a_source_of_its_own_until_it_is_stopped() {
    let pins = Bpffs::mount();
    let mut bridge = FileBridge::start(&pins);
    let reader = || Reader::open(pins.path());
    eventually("that it waits for its file", || reader().state().ok().filter(|state| state.phase() == Phase::Idle).map(drop));

    let second = r#"{"uuid": "GPU-b", "name": "Second"}"#;
    let first = |sm: u32| {
        format!(
            r#"{{"uuid": "GPU-a", "name": "First", "sm_util_pct": {sm}, "memory_total_bytes": 1000, "memory_used_bytes": 400,
                "processes": [{{"pid": {PID}, "memory_bytes": 300, "sm_util_pct": 49}}]}}"#
        )
    };
    let machine = |devices: &[&str]| format!(r#"{{"devices": [{}]}}"#, devices.join(","));
    bridge.write(&machine(&[&first(71), second]));
    let is_published = |sm: u32| reader().device(0).ok().flatten().filter(|device| device.sm_util_pct == sm);
    let device = eventually("the file's devices", || is_published(71));
    assert_eq!((device.mem_total, device.mem_used, device.power_mw), (1000, 400, 0));
    let process = eventually("the process's sample", || reader().process(PID).unwrap().filter(|process| process.timestamp_ns != 0));
    assert_eq!((process.used_gpu_memory_total, process.sm_util_pct_max, process.gpu_device_primary), (300, 49, 0));
    let state = reader().state().unwrap();
    assert_eq!((state.phase(), state.source(), state.record().helper_pid), (Phase::Publishing, Source::Real, bridge.child.id()));
    let described = state.device(0).unwrap();
    assert_eq!((described.uuid().as_ref(), described.name().as_ref()), ("GPU-a", "First"));
    assert!(described.reports(Metric::SmUtilPct) && !described.reports(Metric::PowerMw), "what the file leaves out is not 0");

    bridge.write(&machine(&[&first(12), second]));
    eventually("the file's new content", || is_published(12));
    bridge.write(&machine(&[&first(12)]));
    let phase = |index| reader().state().ok().and_then(|state| state.device(index).map(|device| device.phase()));
    eventually("that the second device is lost", || (phase(1) == Some(DevicePhase::Lost)).then_some(()));
    fs::remove_file(&bridge.file).unwrap();
    eventually("that the source is gone", || reader().devices().ok().filter(Vec::is_empty).map(drop));
    bridge.write(&machine(&[&first(33), second]));
    eventually("that it is back", || is_published(33));

    let held = reader();
    kill(Pid::from_raw(bridge.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let status = eventually("its end", || bridge.child.try_wait().unwrap());
    assert!(status.success());
    assert_eq!(pins.pins(), [""; 0]);
    assert_eq!((held.devices().unwrap().len(), held.processes(Order::ByKey).unwrap().len()), (0, 0));
}

#[test]
fn the_code_that_the_walk_through_shows_is_the_examples() {
    let page = include_str!("../../../docs/new-backend.md");
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let code = [include_str!("../../../examples/file-backend/src/lib.rs"), include_str!("../../../examples/file-backend/src/main.rs")];
    let code: Vec<_> = code.into_iter().flat_map(lines).collect();
    let shown: Vec<_> = page.split("```rust\n").skip(1).flat_map(|rest| lines(rest.split("```").next().unwrap())).collect();
    // What stands for more code says so in a comment.
    let in_example = |line: &String| line.starts_with("//") || code.iter().any(|of_example| of_example.contains(line.as_str()));
    let strange: Vec<_> = shown.iter().filter(|line| !in_example(line)).collect();
    assert!(shown.len() > 10 && strange.is_empty(), "not in examples/file-backend: {strange:#?}");
}
