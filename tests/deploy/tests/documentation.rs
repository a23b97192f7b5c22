//! docs/deployment.md: its commands can be given, and its YAML is valid.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::process::Command;

use bridge_cli::args::Args;
use deploy::artifacts::{source, succeed, tool};
use deploy::page;
use tempfile::TempDir;

/// The flags of the bridge in every command of the page, wherever it is run.
fn bridge_commands() -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for line in page::commands() {
        if ["systemctl", "journalctl", "helm"].iter().any(|program| line.starts_with(program)) {
            continue;
        }
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        // What follows the program, or the image whose entry point it is.
        let at = words.iter().rposition(|word| word.ends_with("gpu-ebpf-bridge") || word.starts_with("gpu-ebpf-bridge:"));
        if let Some(flags) = at.map(|at| &words[at + 1..]).filter(|flags| flags.iter().all(|word| word.starts_with("--"))) {
            commands.push(flags.to_vec());
        }
    }
    commands
}

#[test]
fn the_parser_takes_every_command() {
    let commands = bridge_commands();
    assert!(commands.len() >= 5, "{commands:?}");
    for flags in commands {
        Args::parse_from_go(flags.iter().map(Into::into)).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
    }
}

#[test]
fn every_command_is_run_by_a_test_or_cannot_be_run_here() {
    // Beginnings of commands, and where they are run.
    let run_somewhere = [
        ("gpu-ebpf-bridge", "tests/systemd.rs"),
        ("bridge-dump", "tests/systemd.rs"),
        ("systemctl", "tests/systemd.rs"),
        ("journalctl", "tests/systemd.rs"),
        ("install -D", "tests/systemd.rs"),
        ("mount -t bpf", "tests/systemd.rs"),
        ("docker run", "tests/engines.rs"),
        ("make gpu-ebpf-bridge-container", "tests/engines.rs"),
        ("cargo xtask deploy image --base", "tests/engines.rs"),
        ("helm install", "tests/chart.rs"),
        ("cargo xtask deploy package", "make test-deploy"),
        // There is no cluster. What is applied is judged by the API's schemas, and the bridge's flags by its parser.
        ("kubectl ", "nowhere"),
    ];
    for command in page::commands() {
        assert!(run_somewhere.iter().any(|(beginning, _)| command.starts_with(beginning)), "no test runs: {command}");
    }
}

#[test]
fn files_that_it_names_are_there() {
    let mut found = 0;
    for word in page::text().split([' ', '\n', '`', '(', ')', '#']) {
        if let Some(path) =
            word.strip_prefix("../").filter(|path| path.starts_with("deploy/")).or_else(|| word.starts_with("deploy/").then_some(word))
        {
            found += u32::from(source(path.trim_end_matches(['.', ','])).exists());
        }
    }
    assert!(found >= 4, "{found}");
}

#[test]
fn the_sidecar_fits_into_a_pod() {
    let folder = TempDir::new().unwrap();
    let mut pod = String::from(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: gadget, namespace: gadget}\nspec:\n  hostPID: true\n  volumes: [{name: bpffs, hostPath: {path: /sys/fs/bpf}}]\n  containers:\n",
    );
    let sidecar = page::blocks("yaml").remove(0);
    for line in sidecar.lines() {
        pod.push_str(&format!("    {line}\n"));
    }
    let file = folder.path().join("pod.yaml");
    fs::write(&file, &pod).unwrap();
    succeed(Command::new(tool("judges/bin/kubernetes-validate")).args(["--strict", "--kubernetes-version", "1.33"]).arg(&file));

    let flags: Vec<_> = sidecar.lines().filter_map(|line| line.trim().strip_prefix("- --")).map(|flag| format!("--{flag}")).collect();
    assert!(flags.len() >= 6, "{flags:?}");
    Args::parse_from_go(flags.iter().map(Into::into)).unwrap();
}
