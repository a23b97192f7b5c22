//! The binary's answers to command lines that end it before it touches anything.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{
    fs::{self, File},
    process::{Command, Output, Stdio},
};

use bridge_cli::args::command;
use tempfile::TempDir;

fn bridge(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-ebpf-bridge"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    bridge(arguments).output().unwrap()
}

#[track_caller]
fn check(arguments: &[&str], stdout: impl Fn(&str) -> bool) {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert!(stdout(&String::from_utf8(output.stdout.clone()).unwrap()), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
}

/// Exit status 2, one line on standard error that holds all of `parts`, nothing on standard output.
#[track_caller]
fn check_refused(arguments: &[&str], parts: &[&str]) {
    let output = output(arguments);
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    assert!(stderr.starts_with("gpu-ebpf-bridge: ") && stderr.ends_with('\n') && stderr.lines().count() == 1, "{arguments:?}: {stderr:?}");
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: {stderr:?} does not say {part:?}");
    }
}

#[test]
fn help_names_every_flag_with_its_default_and_goes_to_stdout() {
    for arguments in [&["--help"][..], &["-help"], &["-h"], &["--mode=mock", "--help", "--nonsense"]] {
        check(arguments, |stdout| {
            command().get_arguments().all(|argument| stdout.contains(&format!("--{}", argument.get_long().unwrap())))
                && ["[default: auto]", "[default: 100ms]", "/sys/fs/bpf", "[default: info]", "Examples:", "Signals:", "Exit status:"]
                    .iter()
                    .all(|part| stdout.contains(part))
                && stdout.lines().all(|line| line.len() <= 100)
        });
    }
}

#[test]
fn the_version_goes_to_stdout() {
    let expected = format!("gpu-ebpf-bridge {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in [&["--version"][..], &["-version"], &["--version=true"], &["--mode", "real", "--version=1"], &["--dump", "--version"]]
    {
        check(arguments, |stdout| stdout == expected);
    }
}

#[test]
fn help_and_version_end_quietly_when_nobody_reads() {
    for flag in ["--help", "--version"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bridge(&[flag]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{flag}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = bridge(&["--version"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("standard output"), "{stderr}");
}

#[test]
fn what_cannot_be_used_ends_with_status_2_and_one_line() {
    check_refused(&["--nonsense"], &["--nonsense", "--mode, --poll-interval"]);
    check_refused(&["--poll-intervall=1s"], &["did you mean --poll-interval?"]);
    check_refused(&["--mode=fast"], &["--mode", "\"fast\"", "auto, real, mock"]);
    check_refused(&["--log-level", "loud"], &["--log-level", "\"loud\"", "debug, info, warn, error"]);
    check_refused(&["--poll-interval", "-5s"], &["--poll-interval", "\"-5s\"", "greater than zero"]);
    check_refused(&["-poll-interval=2h"], &["--poll-interval", "\"2h\"", "at most 1h"]);
    check_refused(&["--keep-pins=maybe"], &["--keep-pins", "\"maybe\"", "true, false"]);
    check_refused(&["start"], &["\"start\""]);
    check_refused(&["--mode=mock", "--", "start"], &["\"start\""]);
    check_refused(&["--symlink-nvidia-devs"], &["--symlink-nvidia-devs", "--host-path"]);
    check_refused(&["--nvml-library-path="], &["--nvml-library-path", "absolute"]);
    check_refused(&["--nvml-library-path=libnvidia-ml.so.1"], &["--nvml-library-path", "absolute"]);
    check_refused(&["--host-path=host"], &["--host-path", "absolute"]);
    check_refused(&["--pin-dir="], &["--pin-dir", "/sys/fs/bpf"]);
    check_refused(&["--mode"], &["--mode", "auto, real, mock"]);
    check_refused(&["--dump", "two\nlines"], &["\"two\\nlines\""]);
}

#[test]
fn what_cannot_be_used_touches_nothing() {
    let directory = TempDir::new().unwrap();
    let pins = directory.path().join("pins");
    let pin_dir = format!("--pin-dir={}", pins.display());
    for bad in ["--nonsense", "--mode=fast", "--poll-interval=0", "--symlink-nvidia-devs", "start", "--nvml-library-path="] {
        check_refused(&["--mode=mock", &pin_dir, bad], &[]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{bad}");
    }
}

#[test]
fn a_refusal_without_anybody_to_read_it_keeps_its_status() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(bridge(&["--nonsense"]).stderr(writer).status().unwrap().code(), Some(2));
}

#[test]
fn the_manual_has_a_row_for_every_flag() {
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for argument in command().get_arguments() {
        let flag = format!("| `--{}`", argument.get_long().unwrap());
        let row = manual.lines().find(|line| line.starts_with(&flag)).unwrap_or_else(|| panic!("docs/cli.md has no row for {flag}"));
        for default in argument.get_default_values() {
            assert!(row.contains(&format!("| `{}` |", default.to_str().unwrap())), "{row}");
        }
    }
}
