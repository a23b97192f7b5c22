//! docs/deployment.md: its commands can be given, and its YAML is valid.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::process::Command;

use bridge_cli::args::Args;
use deploy::artifacts::{source, succeed, tool};
use tempfile::TempDir;

fn page() -> String {
    fs::read_to_string(source("docs/deployment.md")).unwrap()
}

/// The fenced blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let page = page();
    let fenced = page.split("```").skip(1).step_by(2);
    let blocks: Vec<_> = fenced.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect();
    assert!(!blocks.is_empty(), "no {language}");
    blocks
}

/// The flags of the bridge in every command of the page, wherever it is run.
fn bridge_commands() -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for line in blocks("sh").iter().flat_map(|block| block.lines()) {
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
fn files_that_it_names_are_there() {
    let mut found = 0;
    for word in page().split([' ', '\n', '`', '(', ')', '#']) {
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
    let sidecar = blocks("yaml").remove(0);
    for line in sidecar.lines() {
        pod.push_str(&format!("    {line}\n"));
    }
    let file = folder.path().join("pod.yaml");
    fs::write(&file, &pod).unwrap();
    succeed(Command::new(tool("kubernetes/bin/kubernetes-validate")).args(["--strict", "--kubernetes-version", "1.33"]).arg(&file));

    let flags: Vec<_> = sidecar.lines().filter_map(|line| line.trim().strip_prefix("- --")).map(|flag| format!("--{flag}")).collect();
    assert!(flags.len() >= 6, "{flags:?}");
    Args::parse_from_go(flags.iter().map(Into::into)).unwrap();
}
