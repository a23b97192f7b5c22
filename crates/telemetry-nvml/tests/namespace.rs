//! What is said where PIDs may not be the host's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{env, io::Write as _, process::Command, sync::Once};

use nvml_sim::{
    library,
    scenario::{Board, Scenario},
};
use telemetry::TelemetrySource as _;
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};

const OPEN: &str = "a_source_is_opened_twice";

/// Writes warnings to stderr, past the test runner.
struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            std::io::stderr().write_all(format!("WARN {}\n", record.args()).as_bytes()).unwrap();
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_source_is_opened_twice() {
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| log::set_logger(&Warnings).map(|()| log::set_max_level(log::LevelFilter::Warn)).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let nvml = library::install(directory.path(), &[]).unwrap();
    nvml.play(&Scenario::new().device(Board::T4)).unwrap();
    let mut source = NvmlSource::new(NvmlOptions { library: LibraryChoice::Path(nvml.path()) });
    for _ in 0..2 {
        assert_eq!(source.open().unwrap().devices.len(), 1);
    }
}

#[track_caller]
fn warnings(program: &str, arguments: &[&str]) -> usize {
    let test = env::current_exe().unwrap();
    let output = Command::new(program).args(arguments).arg(test).args(["--exact", OPEN]).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{}: this test needs root\n{text}", output.status);
    text.lines().filter(|line| line.contains("not in the host's PID namespace: some drivers")).count()
}

#[test]
fn a_pid_namespace_is_warned_of_once_however_often_the_source_is_opened() {
    assert_eq!(warnings("unshare", &["--pid", "--fork", "--mount-proc", "--"]), 1);
    // Where the test itself runs in the initial one.
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let expected = usize::from(link.to_str() != Some("pid:[4026531836]"));
    assert_eq!(warnings("env", &[]), expected);
}
