//! The packages: what is in them, and their life in a clean system.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use deploy::artifacts::{ARCHITECTURES, NEXT_VERSION, PROGRAMS, VERSION, deb, output, rpm, source, succeed, tarball};
use deploy::root::Root;
use map_reader::Reader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::{Bpffs, WAIT, until};

/// What every package installs.
const FILES: [&str; 15] = [
    "/etc/default/gpu-ebpf-bridge",
    "/usr/bin/bridge-dump",
    "/usr/bin/gpu-ebpf-bridge",
    "/usr/include/gadget/gpu_bridge_maps.h",
    "/usr/include/gadget/gpu_types.h",
    "/usr/lib/gpu-ebpf-bridge/after-stop",
    "/usr/lib/gpu-ebpf-bridge/processes-of-other-vendors.conf",
    "/usr/lib/systemd/system/gpu-ebpf-bridge.service",
    "/usr/share/bash-completion/completions/gpu-ebpf-bridge",
    "/usr/share/doc/gpu-ebpf-bridge/LICENSE",
    "/usr/share/doc/gpu-ebpf-bridge/README.md",
    "/usr/share/doc/gpu-ebpf-bridge/docs/contract.md",
    "/usr/share/doc/gpu-ebpf-bridge/sbom.cdx.json",
    "/usr/share/man/man8/bridge-dump.8.gz",
    "/usr/share/man/man8/gpu-ebpf-bridge.8.gz",
];

#[track_caller]
fn check_files(package: &Path, list: &str) {
    let files: BTreeSet<_> = list.lines().collect();
    for file in FILES {
        assert!(files.contains(file), "{} lacks {file}: {list}", package.display());
    }
}

#[test]
fn every_package_has_all_files() {
    for architecture in ARCHITECTURES {
        let package = deb(VERSION, architecture);
        let list = succeed(Command::new("dpkg-deb").arg("--contents").arg(&package));
        let list: String =
            list.lines().filter_map(|line| Some(format!("{}\n", line.split_whitespace().nth(5)?.trim_start_matches('.')))).collect();
        check_files(&package, &list);

        let package = rpm(VERSION, architecture);
        check_files(&package, &succeed(Command::new("rpm").args(["--query", "--list", "--package"]).arg(&package)));

        let package = tarball(architecture);
        let list = succeed(Command::new("tar").arg("--list").arg("--file").arg(&package));
        check_files(&package, &list.replace(&format!("gpu-ebpf-bridge-{VERSION}-{architecture}/"), "/"));
    }
}

#[test]
fn packages_ask_for_no_more_than_the_c_library() {
    for architecture in ARCHITECTURES {
        let control = succeed(Command::new("dpkg-deb").arg("--field").arg(deb(VERSION, architecture)));
        assert!(control.contains("\nDepends: libc6 (>= 2.28)\n"), "{control}");
        let requires = succeed(Command::new("rpm").args(["--query", "--requires", "--package"]).arg(rpm(VERSION, architecture)));
        let strangers: Vec<_> = requires
            .lines()
            .filter(|line| !line.starts_with("rpmlib(") && !line.starts_with("glibc >= 2.28") && *line != "/bin/sh")
            .filter(|line| !line.starts_with("config("))
            .collect();
        assert!(strangers.is_empty(), "{requires}");
    }
}

#[test]
fn nobody_is_named_who_did_not_build_them() {
    for architecture in ARCHITECTURES {
        let deb = succeed(Command::new("dpkg-deb").arg("--field").arg(deb(VERSION, architecture)).arg("Maintainer"));
        let rpm = succeed(Command::new("rpm").args(["--query", "--queryformat=%{PACKAGER}", "--package"]).arg(rpm(VERSION, architecture)));
        assert_eq!(deb.trim(), rpm);
        // A domain that never is anybody's (RFC 2606).
        assert!(rpm.ends_with(".invalid>"), "{rpm}");
    }
}

#[test]
fn lintian_finds_no_error() {
    for architecture in ARCHITECTURES {
        succeed(Command::new("lintian").args(["--fail-on=error", "--allow-root"]).arg(deb(VERSION, architecture)));
    }
}

#[test]
fn rpmlint_finds_no_error() {
    for architecture in ARCHITECTURES {
        let judged = output(Command::new("rpmlint").arg("--config").arg(source("deploy/rpm/rpmlint.toml")).arg(rpm(VERSION, architecture)));
        let said = String::from_utf8_lossy(&judged.stdout);
        assert!(said.contains(" 0 errors"), "{said}{}", String::from_utf8_lossy(&judged.stderr));
    }
}

#[test]
fn man_pages_are_well_formed() {
    for program in PROGRAMS {
        let page = source(&format!("deploy/manual/{program}.8"));
        let formatted =
            output(Command::new("man").args(["--warnings", "--local-file"]).arg(page).env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8"));
        assert!(formatted.status.success() && formatted.stderr.is_empty(), "{}", String::from_utf8_lossy(&formatted.stderr));
        let text = String::from_utf8(formatted.stdout).unwrap();
        for heading in ["NAME", "SYNOPSIS", "EXIT STATUS", "FILES", "EXAMPLES"] {
            assert!(text.lines().any(|line| line == heading), "{program}: no {heading} in {text}");
        }
    }
}

#[test]
fn completions_are_scripts_of_their_shell() {
    for program in PROGRAMS {
        succeed(Command::new("bash").arg("-n").arg(source(&format!("deploy/manual/{program}.bash"))));
    }
}

struct Running(Child);

impl Running {
    fn start(root: &Root) -> Self {
        let mut command = root.command(&["/usr/bin/gpu-ebpf-bridge", "--mode=mock", "--poll-interval=50ms"]);
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }

    fn stop(mut self) -> bool {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        self.0.wait().unwrap().success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fail for one that has ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[track_caller]
fn wait_for_round_after(pins: &Bpffs, boottime_ns: u64) -> u64 {
    let newer = || Reader::open(pins.path()).meta().ok().map(|meta| meta.last_update_boottime_ns).filter(|stamp| *stamp > boottime_ns);
    until(WAIT, newer).expect("a newer round in the maps")
}

#[test]
fn the_deb_is_installed_upgraded_over_a_running_bridge_and_purged_in_an_old_system() {
    let pins = Bpffs::mount();
    let root = Root::with(&pins);
    for version in [VERSION, NEXT_VERSION] {
        root.put(&deb(version, std::env::consts::ARCH), &format!("{version}.deb"));
    }
    let dpkg = |arguments: &[&str]| succeed(&mut root.command(&[&["dpkg"], arguments].concat()));
    let version_of =
        |field: &str| succeed(&mut root.command(&["dpkg-query", "--show", &format!("--showformat=${{{field}}}"), "gpu-ebpf-bridge"]));

    dpkg(&["--install", &format!("/{VERSION}.deb")]);
    for file in FILES {
        assert!(root.path().join(&file[1..]).exists(), "{file}");
    }
    let glibc = succeed(&mut root.command(&["ldd", "--version"]));
    assert!(glibc.contains("2.31"), "{glibc}");
    for program in PROGRAMS {
        assert_eq!(succeed(&mut root.command(&[program, "--version"])).trim(), format!("{program} {VERSION}"));
    }

    let bridge = Running::start(&root);
    let before = wait_for_round_after(&pins, 0);
    let dump = succeed(&mut root.command(&["bridge-dump"]));
    assert!(dump.contains("[device 1]"), "{dump}");

    let settings = root.path().join("etc/default/gpu-ebpf-bridge");
    fs::write(&settings, "GPU_EBPF_BRIDGE_FLAGS=--log-level=debug\n").unwrap();
    dpkg(&["--install", "--force-confold", &format!("/{NEXT_VERSION}.deb")]);
    assert_eq!(version_of("Version"), NEXT_VERSION);
    assert!(fs::read_to_string(&settings).unwrap().contains("debug"), "an upgrade must leave settings alone");
    let after = wait_for_round_after(&pins, before);
    wait_for_round_after(&pins, after);
    assert!(bridge.stop(), "the bridge of the old version must end cleanly");
    assert!(pins.pins().is_empty(), "{:?}", pins.pins());

    let again = Running::start(&root);
    wait_for_round_after(&pins, after);
    assert!(again.stop());

    dpkg(&["--purge", "gpu-ebpf-bridge"]);
    for file in FILES {
        assert!(!root.path().join(&file[1..]).exists(), "{file} was left behind");
    }
}
