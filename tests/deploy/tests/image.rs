//! The image, run as it is deployed, and its maps read from the host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs;
use std::path::Path;
use std::process::{self, Command};
use std::time::Duration;

use deploy::artifacts::{IMAGE, output, succeed};
use deploy::container::{Container, podman, unpacked};
use map_reader::Reader;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nvml_sim::library::{self, Installed};
use nvml_sim::scenario::{Device, Process, Scenario};
use tempfile::TempDir;
use test_support::Bpffs;

const MIB: u64 = 1 << 20;
const USED: u64 = 512 * MIB;
const SIMULATED_MIB: u64 = 15 * 1024;
const MAPS: [&str; 5] = ["gpu_bridge_state", "gpu_device", "gpu_meta", "gpu_per_pid", "gpu_per_pid_per_device"];

/// `--volume` for the pins.
fn pins_at(pins: &Bpffs) -> OsString {
    format!("--volume={}:/sys/fs/bpf", pins.path().display()).into()
}

fn mount(from: &Path, to: &str) -> OsString {
    format!("--volume={}:{to}:ro", from.display()).into()
}

fn privileged() -> Vec<OsString> {
    vec!["--privileged".into()]
}

/// No more than the maps need, and nothing to be written but them. As the chart: without podman's seccomp profile, which allows bpf only together with
/// `CAP_SYS_ADMIN`.
fn least() -> Vec<OsString> {
    [
        "--security-opt=seccomp=unconfined",
        "--cap-drop=all",
        "--cap-add=bpf",
        "--read-only",
        "--read-only-tmpfs=false",
        "--security-opt=no-new-privileges",
    ]
    .map(OsString::from)
    .to_vec()
}

/// A simulated driver with one GPU that this process uses. Its folder is mounted read-only, so it counts elsewhere.
fn driver(folder: &Path) -> Installed {
    let installed = library::install(folder, &[]).unwrap();
    let device = Device::t4().memory(SIMULATED_MIB * MIB, USED, 0).process(Process::compute(process::id(), USED));
    installed.play(&Scenario::new().device(device)).unwrap();
    installed
}

#[track_caller]
fn wait_until_fresh(container: &Container, pins: &Bpffs) -> Reader {
    container.wait_for("a first round", || {
        let reader = Reader::open(pins.path());
        reader.meta().is_ok_and(|meta| meta.last_update_boottime_ns > 0).then_some(reader)
    })
}

/// The simulated GPU is what the maps show, with this process under its own PID.
#[track_caller]
fn check_simulated(container: &Container, pins: &Bpffs) {
    let reader = wait_until_fresh(container, pins);
    let devices = reader.devices().unwrap();
    assert_eq!(devices.len(), 1, "{devices:?}\n{}", container.log());
    assert_eq!(devices[0].1.mem_total, SIMULATED_MIB * MIB);
    let own = container.wait_for("this process in the maps", || reader.process(process::id()).ok().flatten());
    assert_eq!(own.used_gpu_memory_total, USED);
}

/// Stopped, it takes its pins along.
#[track_caller]
fn check_stop(container: &Container, pins: &Bpffs) {
    assert_eq!(pins.pins(), MAPS);
    let (status, took) = container.stop();
    assert_eq!(status, "0", "{}", container.log());
    assert!(took < Duration::from_secs(8), "it took {took:?}, as long as one that was killed");
    assert!(pins.pins().is_empty(), "{:?}", pins.pins());
}

#[track_caller]
fn check_mock(options: Vec<OsString>) {
    let pins = Bpffs::mount();
    let container = Container::start(&[options, vec![pins_at(&pins)]].concat(), &["--mode=mock"]);
    let reader = wait_until_fresh(&container, &pins);
    assert_eq!(reader.devices().unwrap().len(), 2);

    let health = succeed(&mut container.exec(&["/usr/bin/gpu-ebpf-bridge", "--health"]));
    assert!(health.starts_with("publishing:"), "{health}");
    let dump = succeed(&mut container.exec(&["/usr/bin/bridge-dump"]));
    assert!(dump.contains("[device 1]") && dump.contains("[pid 100000]"), "{dump}");
    check_stop(&container, &pins);
}

#[test]
fn mock_data_is_read_from_the_host_in_a_privileged_container() {
    check_mock(privileged());
}

#[test]
fn cap_bpf_alone_and_a_read_only_root_are_enough() {
    check_mock(least());
}

#[test]
fn another_user_may_run_it_where_that_user_may_pin() {
    let pins = Bpffs::mount();
    let own = pins.path().join("own");
    fs::create_dir(&own).unwrap();
    nix::unistd::chown(&own, Some(65534.into()), Some(65534.into())).unwrap();
    let options = [least(), vec!["--user=65534:65534".into(), pins_at(&pins)]].concat();
    let container = Container::start(&options, &["--mode=mock", "--pin-dir=/sys/fs/bpf/own"]);
    let reader = container.wait_for("a first round", || {
        let reader = Reader::open(&own);
        reader.meta().is_ok_and(|meta| meta.last_update_boottime_ns > 0).then_some(reader)
    });
    assert_eq!(reader.devices().unwrap().len(), 2);
    assert_eq!(container.stop().0, "0", "{}", container.log());
    assert!(test_support::names(&own).is_empty());
}

#[test]
fn without_cap_bpf_it_says_so_and_ends() {
    let pins = Bpffs::mount();
    let container = Container::start(&["--cap-drop=all".into(), pins_at(&pins)], &["--mode=mock"]);
    assert_eq!(container.status(), "1");
    assert!(container.log().contains("neither CAP_BPF nor CAP_SYS_ADMIN"), "{}", container.log());
}

#[test]
fn a_runtime_whose_profile_refuses_bpf_is_named() {
    let pins = Bpffs::mount();
    let container = Container::start(&["--cap-drop=all".into(), "--cap-add=bpf".into(), pins_at(&pins)], &["--mode=mock"]);
    // Newer profiles allow it with CAP_BPF.
    let allowed = container.wait_for("a first round or an end", || {
        let fresh = Reader::open(pins.path()).meta().is_ok_and(|meta| meta.last_update_boottime_ns > 0);
        (fresh || container.log().contains("not permitted")).then_some(fresh)
    });
    assert!(allowed || container.log().contains("a seccomp filter is in force"), "{}", container.log());
}

#[test]
fn without_the_hosts_bpffs_it_says_so_and_ends() {
    let folder = TempDir::new().unwrap();
    let option = format!("--volume={}:/sys/fs/bpf", folder.path().display());
    let container = Container::start(&["--privileged".to_owned(), option], &["--mode=mock"]);
    assert_eq!(container.status(), "1");
    assert!(container.log().contains("not a BPF file system"), "{}", container.log());
}

#[test]
fn without_a_driver_it_idles_and_is_healthy() {
    let pins = Bpffs::mount();
    let container = Container::start(&[least(), vec![pins_at(&pins)]].concat(), &["--mode=real", "--idle-if-no-gpu"]);
    let said = container.wait_for("an idle bridge", || {
        let health = output(&mut container.exec(&["/usr/bin/gpu-ebpf-bridge", "--health"]));
        health.status.success().then(|| String::from_utf8(health.stdout).unwrap())
    });
    assert!(said.starts_with("idle:"), "{said}");
    assert!(container.log().contains("libnvidia-ml.so.1"), "{}", container.log());
    assert_eq!(container.stop().0, "0");
}

/// As NVIDIA's container toolkit does it: single files, mounted where this image's loader looks.
#[track_caller]
fn check_toolkit(folder: &str, options: Vec<OsString>) {
    let (pins, host) = (Bpffs::mount(), TempDir::new().unwrap());
    let installed = driver(host.path());
    let options = [
        options,
        vec![
            pins_at(&pins),
            mount(&installed.path(), &format!("{folder}/libnvidia-ml.so.1")),
            mount(&installed.scenario_path(), "/scenario.json"),
            format!("--env={}=/scenario.json", nvml_sim::SCENARIO_VARIABLE).into(),
        ],
    ];
    let container = Container::start(
        &options.concat(),
        &["--mode=real", "--pin-dir=/sys/fs/bpf", "--poll-interval=500ms", "--log-level=info", "--keep-pins=false", "--idle-if-no-gpu"],
    );
    check_simulated(&container, &pins);
    check_stop(&container, &pins);
}

#[test]
fn a_library_mounted_by_the_toolkit_is_used_in_debians_folder() {
    check_toolkit(&format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH), least());
}

#[test]
fn a_library_mounted_by_the_toolkit_is_used_in_rhels_folder() {
    check_toolkit("/usr/lib64", privileged());
}

/// The driver's library and device files below `/host`, in a layout that a distribution has.
#[track_caller]
fn check_host_path(folder: &str) {
    let (pins, host) = (Bpffs::mount(), TempDir::new().unwrap());
    let usr = host.path().join("usr");
    driver(&usr.join(folder));
    let dev = host.path().join("dev");
    fs::create_dir(&dev).unwrap();
    // Device files of the null device: nothing here opens a GPU.
    for name in ["nvidiactl", "nvidia0"] {
        mknod(&dev.join(name), SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 3)).unwrap();
    }
    let options = [privileged(), vec!["--read-only".into(), pins_at(&pins), mount(&usr, "/host/usr"), mount(&dev, "/host/dev")]].concat();
    let container = Container::start(&options, &["--mode=real", "--idle-if-no-gpu", "--host-path=/host", "--symlink-nvidia-devs"]);
    check_simulated(&container, &pins);
    let log = container.log();
    assert!(log.contains("linked 2 of 2 NVIDIA device files of /host/dev"), "{log}");
    check_stop(&container, &pins);
}

#[test]
fn a_host_path_of_debian_is_searched() {
    check_host_path(&format!("lib/{}-linux-gnu", std::env::consts::ARCH));
}

#[test]
fn a_host_path_of_rhel_is_searched() {
    check_host_path("lib64");
}

#[test]
fn the_folder_of_another_processor_is_searched_too() {
    // A library of that processor would be told by its ELF header; one of this processor is taken wherever it lies.
    let other = if std::env::consts::ARCH == "x86_64" { "aarch64" } else { "x86_64" };
    check_host_path(&format!("lib/{other}-linux-gnu"));
}

#[test]
fn it_holds_the_programs_and_what_they_need_and_nothing_of_nvidia() {
    const LIMIT_BYTES: u64 = 15_000_000;
    let root = unpacked();
    let list = succeed(Command::new("find").arg(root.path()).args(["-mindepth", "1", "-printf", "%y %s /%P\n"]));
    let mut size = 0;
    let mut files = BTreeSet::new();
    for line in list.lines() {
        let mut fields = line.splitn(3, ' ');
        let (kind, bytes, path) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        assert!(!path.to_lowercase().contains("nvidia"), "{path}");
        if kind == "f" {
            size += bytes.parse::<u64>().unwrap();
            files.insert(path.to_owned());
        }
    }
    assert!(size < LIMIT_BYTES, "{size} bytes: {list}");
    for file in ["/usr/bin/gpu-ebpf-bridge", "/usr/bin/bridge-dump", "/etc/debian_version", "/usr/share/doc/gpu-ebpf-bridge/LICENSE"] {
        assert!(files.contains(file), "{list}");
    }
    let strangers: Vec<_> = files
        .iter()
        .filter(|file| {
            !file.contains("/lib") && !file.starts_with("/usr/bin/") && !file.starts_with("/etc/") && !file.starts_with("/usr/share/doc/")
        })
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert!(CString::new(fs::read(root.path().join("etc/debian_version")).unwrap()).is_ok());
}

#[test]
fn its_labels_and_entry_point_are_set() {
    let text = succeed(podman().args(["image", "inspect", IMAGE]));
    let image: serde_json::Value = serde_json::from_str(&text).unwrap();
    let config = &image[0]["Config"];
    assert_eq!(config["Entrypoint"], serde_json::json!(["/usr/bin/gpu-ebpf-bridge"]));
    for (label, expected) in [("title", "gpu-ebpf-bridge"), ("licenses", "Apache-2.0"), ("version", env!("CARGO_PKG_VERSION"))] {
        assert_eq!(config["Labels"][format!("org.opencontainers.image.{label}")], expected, "{config}");
    }
    for label in ["description", "source", "revision"] {
        let value = config["Labels"][format!("org.opencontainers.image.{label}")].as_str().unwrap_or_default();
        assert!(!value.is_empty() && value != "unknown", "{label}: {config}");
    }
}
