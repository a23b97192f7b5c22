//! The bridge's commands for reading, over maps and other things that no bridge has put there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use e2e::binary;
use gpu_types::maps::{MAPS, MapDefinition};

#[path = "../../../crates/map-reader/tests/support/mod.rs"]
mod pins;
use pins::PinDir;

#[path = "../../../crates/map-reader/tests/support/garbage.rs"]
mod garbage;
use garbage::Garbage;

/// Far longer than either command takes, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs the bridge's command; how it ended and what it printed on both streams.
#[track_caller]
fn run(pins: &PinDir, arguments: &[&str]) -> (i32, String, String) {
    let begun = Instant::now();
    let output = Command::new(binary("gpu-ebpf-bridge")).args(arguments).arg("--pin-dir").arg(pins.path()).output().unwrap();
    assert!(begun.elapsed() < LIMIT, "{arguments:?}: {:?}", begun.elapsed());
    let Output { status, stdout, stderr } = output;
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(!err.contains("panicked"), "{arguments:?}: {err}");
    (status.code().unwrap_or_else(|| panic!("{arguments:?}: {status}")), out, err)
}

#[test]
fn dump_and_health_answer_whatever_the_maps_hold() {
    let (pins, maps) = PinDir::full();
    for seed in 0..150 {
        let is_known = Garbage::of(seed).write(&maps).is_of_known_schema();
        let (status, out, err) = run(&pins, &["--dump", if seed % 2 == 0 { "--output=text" } else { "--output=json" }]);
        assert!(if is_known { status == 0 && !out.is_empty() } else { status == 1 && !err.is_empty() }, "seed {seed}: {status} {err}");
        let (status, out, _) = run(&pins, &["--health"]);
        let word = out.split(':').next().unwrap();
        assert!(
            matches!((status, word), (0, "publishing" | "idle") | (3, "stale") | (1, "unknown")) && (is_known || status == 1),
            "seed {seed}: {status} {out}"
        );
        assert!(out.lines().count() == 1 && !out.trim_end().contains(char::is_control), "seed {seed}: {out:?}");
    }
}

#[test]
fn what_is_no_map_of_ours_is_named_with_what_it_is_and_what_helps() {
    for MapDefinition { name, .. } in MAPS.iter().take(4) {
        let (pins, _maps) = PinDir::full();
        let place = pins.pin(name);
        let check = |what: &str| {
            let (status, out, err) = run(&pins, &["--dump"]);
            assert!(status == 1 && err.lines().count() == 1 && err.contains(name) && err.contains(what), "{status} {err}");
            assert!(out.contains("# gpu_") && !out.contains(&format!("# {name}\n")), "{out}");
            let (status, out, _) = run(&pins, &["--health"]);
            assert!(status == 1 && out.starts_with("unknown: ") && out.contains(what), "{status} {out}");
        };
        pins.remove(name);
        let definition = MAPS.iter().find(|map| map.name == *name).unwrap();
        pins.create(&MapDefinition { value_size: definition.value_size * 2, ..*definition });
        check("is a foreign map: its value_size is");
        check("remove it and start the bridge again, or name another pin directory");
        pins.remove(name);
        fs::create_dir(&place).unwrap();
        check("is a directory, not a pinned BPF map: remove it and start the bridge again");
        fs::remove_dir(&place).unwrap();
        symlink(pins.pin("nothing"), &place).unwrap();
        check("is a dangling symbolic link, not a pinned BPF map: remove it and start the bridge again");
        fs::remove_file(&place).unwrap();

        let (status, _, err) = run(&pins, &["--dump"]);
        assert!(status == 1 && err.contains("is a bridge running with this pin directory?"), "{status} {err}");
        let (status, out, _) = run(&pins, &["--health"]);
        assert!(status == 4 && out.starts_with("no maps: "), "{status} {out}");
    }
}
