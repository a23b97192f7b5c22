//! With the capability, and refused all the same: what is in the way is named.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{process::Command, thread};

use common::{BRIDGE, output};
use nix::errno::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use test_support::Bpffs;

/// The system call's number, which is another on each processor.
const SYS_BPF: i64 = if cfg!(target_arch = "aarch64") { 280 } else { 321 };

/// How the bridge ends that is started like this and may not use bpf.
#[track_caller]
fn check_refused(command: &mut Command, pins: &Bpffs, reason: &str) {
    let (status, _, stderr) = output(command.args([BRIDGE, "--mode=mock", "--pin-dir"]).arg(pins.path()));
    assert_eq!(status, Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.contains("not permitted") && last.contains(reason), "{stderr}");
}

#[test]
fn a_seccomp_filter_that_refuses_bpf_is_named() {
    let pins = Bpffs::mount();
    let errno = SeccompAction::Errno(Errno::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new([(SYS_BPF, Vec::new())].into(), SeccompAction::Allow, errno, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    // A filter is its thread's and that thread's children's.
    let refused = thread::spawn(move || {
        seccompiler::apply_filter(&filter).unwrap();
        check_refused(&mut Command::new("env"), &pins, "a seccomp filter is in force");
    });
    refused.join().unwrap();
}

#[test]
fn a_user_namespace_in_which_capabilities_are_worth_nothing_is_named() {
    let pins = Bpffs::mount();
    // Of the bpffs no user of a namespace is the owner, unless it maps the machine's.
    check_refused(Command::new("unshare").args(["--user", "--map-root-user"]), &pins, "in a user namespace");
}
