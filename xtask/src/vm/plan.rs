//! What is built here and run in the virtual machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::kernel::Version;
use crate::shell;

/// Test suites that are run as they are: those that the kernel has a say in, and that end soon on a slow machine.
const SUITES: &[Suite] = &[
    Suite {
        folder: "tests/e2e",
        targets: &["bpftool", "dump", "invariants", "mock", "real", "restart", "sampler", "single_writer", "stop"],
        skip: &[],
    },
    // Not gadgets: it compiles programs against the headers of the kernel that it runs on, which needs clang and more.
    Suite { folder: "tests/consumers", targets: &["devices", "events", "program", "tasks"], skip: &[] },
    // The one left out needs clang.
    Suite { folder: "crates/map-publisher", targets: &["maps"], skip: &["something_else_than_a_map_is_called_what_it_is"] },
];
/// Programs that the tests start.
const BINARIES: [&str; 5] = ["gpu-ebpf-bridge", "bridge-dump", "gpu-events", "gpu-workload", "publish"];
const LRU_DEMAND: &str = "lru-demand";
const NVML_SIM: &str = "libnvml_sim.so";

/// With more CPUs than this, a machine that is emulated by far fewer runs only what is about many CPUs: nothing else would be in time.
const MOST_CPUS_FOR_SUITES: u32 = 8;
/// From so many CPUs on, a writer that wanders is sure to lose entries, on kernels up to this one.
const FEWEST_CPUS_TO_LOSE: u32 = 16;
const LAST_KERNEL_TO_LOSE: Version = Version { major: 6, minor: 12 };

const UPTIME_S: u32 = 100;
const SUITE_LIMIT_S: u32 = 240;
const DEMAND_LIMIT_S: u32 = 300;

#[derive(Debug)]
struct Suite {
    folder: &'static str,
    targets: &'static [&'static str],
    /// Single tests, by name.
    skip: &'static [&'static str],
}

/// One program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: String,
    limit_s: u32,
    command: Vec<String>,
}

/// Everything that was built.
#[derive(Debug)]
pub(crate) struct Built {
    /// Name and path of each test suite's program, with its arguments.
    suites: Vec<(String, Vec<String>)>,
    lru_demand: PathBuf,
    others: Vec<PathBuf>,
}

impl Built {
    /// Builds the workspace with its tests, which is done already when `make test` was run before.
    ///
    /// # Errors
    /// When that fails, or does not make what is expected.
    pub(crate) fn build() -> Result<Self> {
        let mut artifacts = cargo(&["build", "--workspace", "--bins"])?;
        artifacts.extend(cargo(&["test", "--workspace", "--no-run"])?);
        Self::of(&artifacts)
    }

    fn of(artifacts: &[Value]) -> Result<Self> {
        let executable = |artifact: &Value| artifact["executable"].as_str().map(PathBuf::from);
        let binary = |name: &str| {
            let is_it = |artifact: &&Value| artifact["target"]["name"] == name && artifact["profile"]["test"] == false;
            artifacts.iter().filter(is_it).find_map(executable).with_context(|| format!("cargo did not build {name}"))
        };
        let lru_demand = binary(LRU_DEMAND)?;
        let mut others = BINARIES.iter().map(|name| binary(name)).collect::<Result<Vec<_>>>()?;
        let profile = lru_demand.parent().context("cargo builds into no folder")?;
        // The tests look for it in both places.
        let libraries = [profile.join("deps").join(NVML_SIM), profile.join(NVML_SIM)];
        others.extend(libraries.into_iter().filter(|library| library.exists()));

        let mut suites = Vec::new();
        for suite in SUITES {
            let manifest = Path::new(suite.folder).join("Cargo.toml");
            for name in suite.targets {
                let is_it = |artifact: &&Value| {
                    let path = artifact["manifest_path"].as_str().unwrap_or_default();
                    let target = &artifact["target"];
                    Path::new(path).ends_with(&manifest) && target["kind"][0] == "test" && target["name"] == *name
                };
                let program = artifacts.iter().filter(is_it).find_map(executable);
                let program = program.with_context(|| format!("cargo did not build the tests {name} of {}", suite.folder))?;
                let mut command = vec![program.to_string_lossy().into_owned()];
                command.extend(suite.skip.iter().flat_map(|test| ["--skip".to_owned(), (*test).to_owned()]));
                let package = suite.folder.rsplit('/').next().unwrap_or_default();
                suites.push((format!("{package}/{name}"), command));
            }
        }
        Ok(Self { suites, lru_demand, others })
    }

    /// The files that the virtual machine needs, beside libraries of the system.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let tests = self.suites.iter().filter_map(|(_, command)| command.first()).map(Path::new);
        tests.chain([self.lru_demand.as_path()]).chain(self.others.iter().map(PathBuf::as_path))
    }

    /// What is to be run on such a machine.
    pub(crate) fn programs(&self, version: Version, smp: u32) -> Vec<Program> {
        let mut programs = Vec::new();
        if smp <= MOST_CPUS_FOR_SUITES {
            // Tests take a machine for granted that was up for some minutes. With one CPU the clock leaps over them.
            let command = ["sleep".to_owned(), UPTIME_S.to_string()].to_vec();
            programs.push(Program { name: "uptime".into(), limit_s: SUITE_LIMIT_S, command });
            programs.extend(self.suites.iter().map(|(name, command)| Program {
                name: name.clone(),
                limit_s: SUITE_LIMIT_S,
                command: command.clone(),
            }));
        }
        // A round takes a second or so with many CPUs.
        let mut demand = |case: &str, processes: u32, rounds: u32| {
            let arguments = ["--case", case, "--processes", &processes.to_string(), "--rounds", &rounds.to_string()].map(str::to_owned);
            programs.push(Program {
                name: format!("{LRU_DEMAND}/{case}-{processes}"),
                limit_s: DEMAND_LIMIT_S,
                command: [self.lru_demand.to_string_lossy().into_owned()].into_iter().chain(arguments).collect(),
            });
        };
        if smp >= FEWEST_CPUS_TO_LOSE && version <= LAST_KERNEL_TO_LOSE {
            demand("control", 3840, 10);
        }
        let rounds = if smp >= FEWEST_CPUS_TO_LOSE { 30 } else { 10 };
        demand("steady", 3968, rounds);
        if smp > 1 {
            demand("steady", 3840, rounds);
            demand("moved", 3840, rounds);
        }
        programs
    }
}

/// The plan as the virtual machine's first program reads it.
///
/// # Errors
/// When a path has a space, which that program would take for the end of it.
pub(crate) fn text(programs: &[Program]) -> Result<String> {
    let mut text = String::new();
    for Program { name, limit_s, command } in programs {
        if let Some(word) = command.iter().find(|word| word.contains(char::is_whitespace)) {
            bail!("virtual machines cannot be set up in a folder with a space in its name: {word}");
        }
        text += &format!("{name} {limit_s} {}\n", command.join(" "));
    }
    Ok(text)
}

/// Runs cargo, and returns what it built.
fn cargo(arguments: &[&str]) -> Result<Vec<Value>> {
    let mut cargo = shell::cargo();
    cargo.args(arguments).args(["--quiet", "--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    shell::announce(&cargo);
    let output = cargo.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo failed: {}", output.status);
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages are not UTF-8")?;
    messages.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not a message of cargo's: {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifacts() -> Vec<Value> {
        let artifact = |folder: &str, kind: &str, name: &str, is_test: bool| {
            json!({
                "manifest_path": format!("/w/{folder}/Cargo.toml"),
                "target": { "name": name, "kind": [kind] },
                "profile": { "test": is_test },
                "executable": format!("/w/target/debug/{name}{}", if is_test { "-test" } else { "" }),
            })
        };
        let mut all = vec![
            artifact("crates/bridge-cli", "test", "mock", true),
            artifact("tests/vm", "bin", LRU_DEMAND, true),
            artifact("tests/vm", "bin", LRU_DEMAND, false),
        ];
        for suite in SUITES {
            all.extend(suite.targets.iter().map(|name| artifact(suite.folder, "test", name, true)));
        }
        all.extend(BINARIES.iter().map(|name| artifact("crates/x", "bin", name, false)));
        all
    }

    fn names(version: &str, smp: u32) -> Vec<String> {
        let built = Built::of(&artifacts()).expect("all is there");
        built.programs(version.parse().expect("a version"), smp).into_iter().map(|program| program.name).collect()
    }

    #[test]
    fn suites_run_on_few_cpus_and_the_control_on_many() {
        let suites = names("6.1", 1);
        let suites: Vec<&str> = suites.iter().map(String::as_str).filter(|name| !name.starts_with(LRU_DEMAND)).collect();
        assert_eq!((suites[0], suites[1], suites[suites.len() - 1]), ("uptime", "e2e/bpftool", "map-publisher/maps"));
        let demands = ["lru-demand/steady-3968", "lru-demand/steady-3840", "lru-demand/moved-3840"];
        assert_eq!(names("6.1", 1), [&suites[..], &demands[..1]].concat());
        assert_eq!(names("6.1", 2), [&suites[..], &demands].concat());
        assert_eq!(names("6.1", 48), [&["lru-demand/control-3840"], &demands[..]].concat());
        assert_eq!(names("6.18", 48), demands);
    }

    #[test]
    fn what_cargo_did_not_build_is_named() {
        let without = |name: &str| {
            let rest: Vec<Value> = artifacts().into_iter().filter(|artifact| artifact["target"]["name"] != name).collect();
            Built::of(&rest).expect_err("something is missing").to_string()
        };
        assert_eq!(without("gpu-events"), "cargo did not build gpu-events");
        assert_eq!(without("mock"), "cargo did not build the tests mock of tests/e2e");
    }

    #[test]
    fn a_plan_is_a_line_a_program() {
        let program = |path: &str| Program { name: "a/b".into(), limit_s: 7, command: vec![path.into(), "--x".into()] };
        assert_eq!(text(&[program("/t")]).expect("no spaces"), "a/b 7 /t --x\n");
        assert!(text(&[program("/my tree/t")]).is_err());
    }
}
