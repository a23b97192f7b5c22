//! The image, built by each engine that people use, on the base that is the default and on another one; and docker's commands of docs/deployment.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use deploy::artifacts::{VERSION, output, source, succeed, tool};
use deploy::container::podman;
use deploy::docker::Docker;
use deploy::page;
use map_reader::Reader;
use test_support::{Bpffs, WAIT, until};

fn xtask(words: &[&str]) -> Command {
    let mut xtask = Command::new(env!("CARGO"));
    xtask.args(["run", "--quiet", "--package", "xtask", "--", "deploy"]).args(words).current_dir(source("."));
    xtask
}

/// Builds an image. One at a time: they have one build context, as people have who type these commands.
#[track_caller]
fn build(command: &mut Command) -> String {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    succeed(command)
}

/// Runs a container for as long as it takes to see it publish.
#[track_caller]
fn check_runs(run: &mut Command, remove: &mut Command, pins: &Bpffs) {
    succeed(run);
    let published = until(WAIT, || Reader::open(pins.path()).meta().ok().filter(|meta| meta.last_update_boottime_ns > 0));
    succeed(remove);
    assert!(published.is_some(), "nothing is published");
}

#[test]
fn make_builds_it_with_the_engine_that_is_there() {
    let [line] = page::commands_like("make gpu-ebpf-bridge-container", 1).try_into().unwrap();
    // No docker daemon answers, so it is podman.
    let said = build(Command::new("sh").args(["-c", &line]).env("DOCKER_HOST", "unix:///nonexistent").current_dir(source(".")));
    assert!(said.contains("podman build ") && said.contains(&format!("built the image gpu-ebpf-bridge:{VERSION}")), "{said}");
    let pins = Bpffs::mount();
    let name = format!("by-podman-{}", std::process::id());
    let mut run = podman();
    run.args(["run", "--detach", "--pull=never", "--privileged", "--network=host", "--pid=host", "--name", &name]);
    run.args(["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1000:1000"]);
    run.arg(format!("--volume={}:/sys/fs/bpf", pins.path().display()))
        .args([&format!("localhost/gpu-ebpf-bridge:{VERSION}"), "--mode=mock"]);
    check_runs(&mut run, podman().args(["rm", "--force", "--time=5", &name]), &pins);
}

#[test]
fn it_can_be_put_on_another_base() {
    const BASE: &str = "localhost/gpu-ebpf-bridge-base:test";
    const IMAGE: &str = "localhost/gpu-ebpf-bridge:on-debian";
    let import = format!("tar --create --directory {} . | podman import --quiet - {BASE}", tool("bullseye").display());
    succeed(Command::new("sh").args(["-c", &import]));
    let [line] = page::commands_like("cargo xtask deploy image --base", 1).try_into().unwrap();
    let [base, tag] = ["--base", "--tag"].map(|flag| line.split(' ').skip_while(|word| *word != flag).nth(1).unwrap().to_owned());
    let line = line.replace(&base, BASE).replace(&tag, IMAGE);
    let said = build(Command::new("sh").args(["-c", &line]).env("DOCKER_HOST", "unix:///nonexistent").current_dir(source(".")));
    assert!(said.contains(&format!("built the image {IMAGE}")), "{said}");

    let in_it = |words: &[&str]| {
        let mut run = podman();
        run.args(["run", "--rm", "--pull=never", "--network=host", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1000:1000"]);
        succeed(run.args(["--entrypoint", words[0], IMAGE]).args(&words[1..]))
    };
    assert!(in_it(&["cat", "/etc/os-release"]).contains("bullseye"));
    assert!(in_it(&["ldd", "--version"]).contains("2.31"), "the base's C library must be the one that is used");
    assert_eq!(in_it(&["/usr/bin/gpu-ebpf-bridge", "--version"]).trim(), format!("gpu-ebpf-bridge {VERSION}"));
    for image in [IMAGE, BASE] {
        succeed(podman().args(["rmi", "--force", image]));
    }
}

/// Up to the last one that the kernel knows.
fn holds_all_capabilities() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let bounding = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapBnd:")?.trim(), 16).ok()).unwrap();
    let last: u32 = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap().trim().parse().unwrap();
    bounding == (2 << last) - 1
}

#[test]
fn docker_builds_it_and_runs_it_as_the_page_says() {
    let docker = Docker::start();
    let tag = format!("gpu-ebpf-bridge:{VERSION}");
    let said = build(xtask(&["image", "--engine", "docker"]).env("DOCKER_HOST", docker.host()));
    assert!(said.contains(&format!("built the image {tag}")), "{said}");

    let health = "docker exec gpu-ebpf-bridge /usr/bin/gpu-ebpf-bridge --health";
    assert!(page::text().contains(&format!("`{health}`")));
    for line in page::commands_like("docker run ", 2) {
        let pins = Bpffs::mount();
        // Pins of the test's own; and the hook that brings a GPU's driver is not here.
        let line = line.replace("--volume=/sys/fs/bpf:", &format!("--volume={}:", pins.path().display())).replace("--gpus=all ", "");
        assert!(line.contains(&tag), "{line}");
        // docker gives all capabilities or fails; a machine that is confined itself has not all of them to give.
        let line = if holds_all_capabilities() {
            line
        } else {
            line.replace("--privileged", "--cap-add=sys_admin --security-opt=seccomp=unconfined")
        };
        let started = output(&mut docker.shell(&line));
        if !started.status.success() {
            // An old one, and what the page says of it.
            let said = String::from_utf8_lossy(&started.stderr);
            assert!(said.contains("unknown capability: \"CAP_BPF\""), "{line}: {said}");
            succeed(&mut docker.shell("docker rm --force gpu-ebpf-bridge"));
            succeed(&mut docker.shell(&line.replace("--cap-add=bpf", "--cap-add=sys_admin")));
        }
        let said = until(WAIT, || {
            let said = output(&mut docker.shell(health));
            said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
        });
        let log = succeed(&mut docker.shell("docker logs gpu-ebpf-bridge 2>&1"));
        assert!(said.as_ref().is_some_and(|said| said.starts_with("idle:")), "{line}: {said:?}\n{log}");
        assert!(!log.contains("not in the host's PID namespace"), "{log}");
        succeed(&mut docker.shell("docker stop gpu-ebpf-bridge && docker rm gpu-ebpf-bridge"));
        assert!(pins.pins().is_empty(), "{:?}", pins.pins());
    }
}
