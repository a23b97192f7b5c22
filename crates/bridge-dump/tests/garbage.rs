//! Whatever stands in the maps is printed or refused, in every form of output, and no byte of it reaches a terminal that would obey it.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bridge_dump::{Outcome, Output, Request};
use gpu_types::maps::{MAPS, MapDefinition};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;
use test_support::{WAIT, until};

mod support;
use support::assert_valid;

#[path = "../../map-reader/tests/support/mod.rs"]
mod pins;
use pins::{Maps, PinDir};

#[path = "../../map-reader/tests/support/garbage.rs"]
mod garbage;
use garbage::Garbage;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bridge-dump");
/// Far longer than any dump takes, on a machine that is busy with other things.
const DUMP_LIMIT: Duration = Duration::from_secs(2);

fn schema() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/dump.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What is printed on both streams in this form.
fn dump(pins: &PinDir, output: Output) -> (Outcome, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let request = Request { output, ..Request::default() };
    let begun = Instant::now();
    let outcome = bridge_dump::dump_as(pins.path(), &request, &mut out, &mut err).unwrap();
    assert!(begun.elapsed() < DUMP_LIMIT, "{:?}", begun.elapsed());
    (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// Writes the garbage, prints it and looks at what is printed; JSON also by its schema, when there is one.
fn check(pins: &PinDir, maps: &Maps, schema: Option<&Value>, garbage: &Garbage, output: Output) {
    let written = garbage.write(maps);
    let (outcome, out, err) = dump(pins, output);
    let is_known = written.is_of_known_schema();
    assert_eq!(outcome, if is_known { Outcome::Complete } else { Outcome::Incomplete }, "{err}");
    for line in out.lines().chain(err.lines()) {
        // JSON is for programs, and need not escape all of them.
        let is_obeyed = |character: char| if output == Output::Json { character < ' ' } else { character.is_control() };
        assert!(!line.contains(is_obeyed), "{output}: {line:?}");
    }
    match output {
        Output::Text if !is_known => assert_eq!(out, ""),
        Output::Text => {
            let devices = written.devices.iter().filter(|device| device.timestamp_ns != 0).count();
            let expected = 4 + 4 + 1 + devices + written.processes.len() + written.process_devices.len();
            assert_eq!(out.lines().count(), expected, "{out}");
        }
        Output::Json => {
            let document: Value = serde_json::from_str(&out).unwrap();
            schema.into_iter().for_each(|schema| assert_valid(schema, &document));
        }
        _ => assert!(!out.is_empty()),
    }
}

#[test]
fn whatever_the_maps_hold_is_printed_in_every_form() {
    let (pins, maps) = PinDir::full();
    let schema = schema();
    let number = Cell::new(0);
    let config = ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&any::<u64>(), |seed| {
        number.set(number.get() + 1);
        // A counter that stays odd costs ten milliseconds each time, and so does the whole schema.
        let is_dear = number.get() % 100 < 3;
        let garbage = Garbage { odd: is_dear, ..Garbage::of(seed) };
        check(&pins, &maps, is_dear.then_some(&schema), &garbage, Output::ALL[number.get() % 3]);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn every_foreign_map_is_named_with_what_differs_in_every_form() {
    for (index, definition) in MAPS.iter().enumerate() {
        let (pins, _maps) = PinDir::full();
        pins.remove(definition.name);
        pins.create(&MapDefinition { value_size: definition.value_size + 8, ..*definition });
        for &output in Output::ALL {
            let (outcome, _, err) = dump(&pins, output);
            let expected = if index < 4 { Outcome::Incomplete } else { Outcome::Complete };
            assert_eq!(outcome, expected, "{} {output}", definition.name);
            let difference = format!("value_size is {}, expected {}", definition.value_size + 8, definition.value_size);
            assert!(err.contains(definition.name) && err.contains(&difference), "{err}");
        }
    }
}

#[test]
fn the_program_ends_as_usual_whatever_it_finds() {
    let (pins, maps) = PinDir::full();
    for seed in 0..60 {
        let written = Garbage::of(seed).write(&maps);
        let output =
            Command::new(PROGRAM).arg("--pin-dir").arg(pins.path()).args(["--output", Output::ALL[seed as usize % 3].name()]).output();
        let output = output.unwrap();
        assert_eq!(
            output.status.code(),
            Some(i32::from(!written.is_of_known_schema())),
            "{seed}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The live screen, on a terminal that nobody looks at.
#[test]
fn the_live_screen_goes_on_whatever_it_finds() {
    let (pins, maps) = PinDir::full();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 40, ws_col: 130, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let line = File::options().read(true).write(true).open(ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap()).unwrap();
    let mut child = Command::new("setsid")
        .args(["--ctty", PROGRAM, "--watch=50ms", "--pin-dir"])
        .arg(pins.path())
        .stdin(line.try_clone().unwrap())
        .stdout(line.try_clone().unwrap())
        .stderr(line.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut terminal = File::from(terminal);
    let mut output = terminal.try_clone().unwrap();
    let drawn = thread::spawn(move || {
        let (mut drawn, mut bytes) = (0, [0; 4096]);
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            drawn += count;
        }
        drawn
    });
    for seed in 0..120 {
        Garbage::of(seed).write(&maps);
        // Every other screen at a time, so that each garbage is drawn and its successor drawn over it.
        terminal.write_all(if seed % 10 == 0 { b"\x1b[B\t" } else { b"" }).unwrap();
        thread::sleep(Duration::from_millis(25));
        assert_eq!(child.try_wait().unwrap(), None, "it ended at {seed}");
    }
    terminal.write_all(b"q").unwrap();
    let ended = until(WAIT, || child.try_wait().unwrap());
    child.kill().ok();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    drop(line);
    let drawn = drawn.join().unwrap();
    assert!(drawn > 10_000, "only {drawn} bytes were drawn");
}
