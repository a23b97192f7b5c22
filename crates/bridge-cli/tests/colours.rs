//! Colours of the log: on a terminal, and nowhere else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod common;

use std::{
    fs::File,
    io::{ErrorKind, Read},
    process::{Command, Stdio},
};

use common::{BRIDGE, output};
use nix::pty::openpty;

/// One that warns of its flags at start, finds that proc is no place for maps, and ends.
fn bridge(environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(BRIDGE);
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(name);
    }
    command.args(["--mode=mock", "--source=nvml", "--pin-dir=/proc"]).env("TERM", "xterm-256color");
    command.envs(environment.iter().copied());
    command
}

fn on_a_terminal(environment: &[(&str, &str)]) -> String {
    let terminal = openpty(None, None).unwrap();
    let mut command = bridge(environment);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // It has the terminal's other end, too.
    drop(command);
    let (mut master, mut log, mut bytes) = (File::from(terminal.master), Vec::new(), [0; 4096]);
    loop {
        match master.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => log.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // What Linux says when the other end is closed.
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    String::from_utf8(log).unwrap()
}

#[track_caller]
fn check(log: &str, is_coloured: bool) {
    let warning = log.lines().find(|line| line.contains("--source has no effect")).unwrap_or_else(|| panic!("no warning: {log:?}"));
    assert_eq!(warning.contains(" \u{1b}[33mWARN \u{1b}[0m "), is_coloured, "{warning:?}");
    assert_eq!(log.contains('\u{1b}'), is_coloured, "{log:?}");
}

#[test]
fn levels_have_colours_on_a_terminal() {
    check(&on_a_terminal(&[]), true);
    check(&on_a_terminal(&[("NO_COLOR", "")]), true);
}

#[test]
fn a_terminal_without_colours_shows_none() {
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        check(&on_a_terminal(&[variable]), false);
    }
}

#[test]
fn what_is_no_terminal_never_gets_colours() {
    for environment in [&[][..], &[("CLICOLOR_FORCE", "1")], &[("CI", "true")]] {
        let (status, _, log) = output(&mut bridge(environment));
        assert_eq!(status, Some(1), "{log}");
        check(&log, false);
    }
}
