//! The bpftool lines of docs/consumers.md work on a bridge's maps.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::process::Command;

use e2e::{Bpffs, Bridge};

#[test]
fn every_bpftool_line_of_the_documentation_prints_what_it_is_for() {
    let pins = Bpffs::mount();
    let mut bridge = Bridge::builder(&pins, "mock", "100ms").start();
    bridge.wait_until_published(&pins);
    let page = include_str!("../../../docs/consumers.md");
    let block = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the block of commands");
    let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
    // A word that each one's output must contain.
    let expected = ["lru_hash", "last_update_boottime_ns", "power_mw", "used_gpu_memory_total", "used_gpu_memory", "poll_interval_ns"];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, word) in lines.into_iter().zip(expected) {
        let line = line.replace("/sys/fs/bpf", &pins.path().display().to_string());
        let mut words = line.split_whitespace();
        let output = Command::new(words.next().unwrap()).args(words).output().expect("bpftool");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && out.contains(word), "{line}: {out}{}", String::from_utf8_lossy(&output.stderr));
    }
}
