//! docs/deployment.md: its commands can be given, its YAML is valid, and it quotes what the programs say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::path::{Path, PathBuf};
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

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && path.components().any(|part| part.as_os_str() == "src") {
            found.push(path);
        }
    }
}

#[test]
fn what_it_quotes_is_what_the_programs_say() {
    let mut files = Vec::new();
    sources(&source("crates"), &mut files);
    // A message may be broken over lines of the source by a backslash.
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let code = code.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" ");
    let page = page();
    let table = page.split_once("| the log says |").expect("the table of messages").1;
    let quoted: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(message, _)| message).collect();
    assert!(quoted.len() >= 10, "{quoted:?}");
    for message in quoted {
        assert!(code.contains(message), "no source says: {message}");
    }
}
