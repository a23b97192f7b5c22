//! The reading of process lists under valgrind: a driver that writes wider rows than its header says must not write, nor be read, outside the
//! buffer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::{env, process::Command};

use nvml_sim::{
    library,
    scenario::{Board, Device, Process, Scenario},
};
use telemetry::{Answer, Now, Reading, TelemetrySource as _};
use telemetry_nvml::{LibraryChoice, NvmlOptions, NvmlSource};

const READ: &str = "wide_rows_are_read";

/// Forty processes, and as many as the buffer must grow for.
#[test]
fn wide_rows_are_read() {
    for count in [40, 300] {
        let directory = tempfile::tempdir().unwrap();
        let nvml = library::install(directory.path(), &[]).unwrap();
        let processes: Vec<_> = (1..=count).map(|pid| Process::compute(pid, u64::from(pid) << 20)).collect();
        let board = Device::from(Board::H100).processes(processes).wide_rows();
        nvml.play(&Scenario::new().driver("535.43.02").device(board)).unwrap();
        let mut source = NvmlSource::new(NvmlOptions { library: LibraryChoice::Path(nvml.path()) });
        let mut device = source.open().unwrap().devices.remove(0);
        let mut reading = Reading::default();
        let now = Now { boottime_ns: 1_000_000_000, clock_offset_ns: 1_700_000_000_000_000_000 };
        for _ in 0..3 {
            let lists = device.probes().iter().enumerate().filter(|(_, probe)| probe.name.ends_with("processes"));
            let lists: Vec<_> = lists.map(|(probe, _)| probe).collect();
            assert_eq!(lists.len(), 3);
            for probe in lists {
                assert_eq!(device.ask(probe, now, &mut reading), Ok(Answer::Answered));
            }
            let read: Vec<_> = reading.processes.iter().map(|process| (process.pid, process.used_memory_bytes)).collect();
            assert_eq!(read, (1..=count).map(|pid| (pid, Some(u64::from(pid) << 20))).collect::<Vec<_>>());
        }
    }
}

#[test]
fn wide_rows_are_read_without_a_memory_error() {
    let test = env::current_exe().unwrap();
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--track-origins=yes", "--"]).arg(test).args(["--exact", READ, "--test-threads=1"]);
    let output = valgrind.output().unwrap_or_else(|error| panic!("valgrind cannot be started ({error}): `cargo xtask setup` installs it"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}:\n{text}", output.status);
    assert!(text.contains("1 passed"), "{READ} did not run:\n{text}");
}
