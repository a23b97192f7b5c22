//! The chart, rendered by helm, judged by the API's schemas and by the program's own parser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bridge_cli::args::{Args, Mode, Request};
use deploy::artifacts::{debug_program, fail, output, source, succeed, tool};
use deploy::page;
use serde_json::Value;
use tempfile::TempDir;

const CHART: &str = "deploy/chart/gpu-ebpf-bridge";
const ACCESS_MODES: [&str; 3] = ["toolkit-env", "hostpath", "device-plugin"];
/// Of the API, oldest and newest first.
const API_VERSIONS: [&str; 4] = ["1.25", "1.37", "1.29", "1.33"];

fn helm(command: &str) -> Command {
    let mut helm = Command::new(tool("helm"));
    let home = std::env::temp_dir().join("gpu-ebpf-bridge-helm");
    helm.env("HELM_CACHE_HOME", &home).env("HELM_CONFIG_HOME", &home).env("HELM_DATA_HOME", &home).arg(command);
    helm
}

fn template() -> Command {
    let mut template = helm("template");
    template.arg("bridge").arg(source(CHART)).args(["--namespace", "gpu"]);
    template
}

/// The value files in a folder of this crate.
fn values(kind: &str) -> Vec<PathBuf> {
    let folder = source("tests/deploy/values").join(kind);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 3, "{files:?}");
    files
}

/// All that must render: its name, and the manifests.
fn renderings() -> Vec<(String, String)> {
    let modes = ACCESS_MODES.map(|mode| (mode.to_owned(), succeed(template().arg("--set").arg(format!("accessMode={mode}")))));
    let files = values("good").into_iter().map(|file| (file.display().to_string(), succeed(template().arg("--values").arg(&file))));
    modes.into_iter().chain(files).collect()
}

/// The manifests as JSON.
fn parsed(manifests: &str) -> Vec<Value> {
    const TO_JSON: &str = "import json, sys, yaml; print(json.dumps([m for m in yaml.safe_load_all(sys.stdin) if m]))";
    let mut python =
        Command::new(tool("judges/bin/python")).args(["-c", TO_JSON]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
    let json = python.wait_with_output().unwrap();
    assert!(json.status.success());
    serde_json::from_slice(&json.stdout).unwrap()
}

fn daemon_set(manifests: &str) -> Value {
    parsed(manifests).into_iter().find(|manifest| manifest["kind"] == "DaemonSet").expect("a DaemonSet")
}

fn container(daemon_set: &Value) -> &Value {
    &daemon_set["spec"]["template"]["spec"]["containers"][0]
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn parse(arguments: &[String]) -> Args {
    match Args::parse_from_go(arguments.iter().map(Into::into)) {
        Ok(Request::Run(args)) => *args,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn validate(files: &[PathBuf], version: &str) -> Command {
    let mut validate = Command::new(tool("judges/bin/kubernetes-validate"));
    validate.args(["--strict", "--kubernetes-version", version]).args(files);
    validate
}

#[test]
fn lint_is_strict_and_clean() {
    let said = succeed(helm("lint").arg("--strict").arg(source(CHART)));
    assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
}

#[test]
fn what_is_rendered_is_valid_for_each_api() {
    let folder = TempDir::new().unwrap();
    let files: Vec<_> = renderings()
        .into_iter()
        .map(|(name, manifests)| {
            let file = folder.path().join(name.replace('/', "-")).with_extension("yaml");
            fs::write(&file, manifests).unwrap();
            file
        })
        .collect();
    for version in API_VERSIONS {
        let judged = output(&mut validate(&files, version));
        let said = format!("{}{}", String::from_utf8_lossy(&judged.stdout), String::from_utf8_lossy(&judged.stderr));
        assert!(judged.status.success(), "{version}: {said}");
        assert_eq!(said.matches("passed for resource daemonset/").count(), files.len(), "{version}: {said}");
    }
}

#[test]
fn the_judge_of_manifests_finds_a_wrong_one() {
    let file = TempDir::new().unwrap().keep().join("wrong.yaml");
    fs::write(&file, succeed(&mut template()).replace("hostPID: true", "hostPids: true")).unwrap();
    let said = fail(&mut validate(std::slice::from_ref(&file), "1.33"));
    assert!(said.contains("hostPids"), "{said}");
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn the_plain_manifests_are_what_the_chart_renders() {
    // Not by way of cargo, which would build as root what is the user's.
    let mut xtask = Command::new(debug_program("xtask"));
    succeed(xtask.args(["deploy", "manifests", "--check"]).env("CARGO_MANIFEST_DIR", source("xtask")));
}

#[test]
fn the_program_takes_the_rendered_arguments() {
    for (name, manifests) in renderings() {
        let daemon_set = daemon_set(&manifests);
        let container = container(&daemon_set);
        let arguments = strings(&container["args"]);
        let args = parse(&arguments);
        assert!(args.mode == Mode::Mock || args.idle_if_no_gpu, "{name}: a node without a GPU must stay green");

        // The program, not only the parser that the tests are linked with.
        let mut help = Command::new(debug_program("gpu-ebpf-bridge"));
        assert!(succeed(help.args(&arguments).arg("--version")).starts_with("gpu-ebpf-bridge "), "{name}");

        for probe in ["readinessProbe", "livenessProbe"] {
            if let Some(command) = container[probe].get("exec").map(|exec| strings(&exec["command"])) {
                assert_eq!(command[0], "/usr/bin/gpu-ebpf-bridge");
                let asked = parse(&command[1..]);
                assert!(asked.health && asked.pin_dir == args.pin_dir, "{name}: {command:?}");
            }
        }
    }
}

#[test]
fn the_defaults_are_those_that_gadgets_count_on() {
    let daemon_set = daemon_set(&succeed(&mut template()));
    let args = parse(&strings(&container(&daemon_set)["args"]));
    assert_eq!(args.mode, Mode::Real);
    assert_eq!(args.poll_interval.effective().as_millis(), 100);
    assert!(args.keep_pins);
    assert_eq!(args.pin_dir, Path::new("/sys/fs/bpf"));
    assert!(args.warnings().is_empty(), "{:?}", args.warnings());
    let resources = &container(&daemon_set)["resources"];
    assert!(resources["limits"].get("cpu").is_none(), "{resources}");
    assert!(resources["requests"].get("cpu").is_some(), "{resources}");
}

#[test]
fn each_access_mode_gets_what_it_needs_and_no_more() {
    let of = |mode: &str| daemon_set(&succeed(template().arg("--set").arg(format!("accessMode={mode}"))));
    let environment = |container: &Value| -> Vec<(String, String)> {
        let variables = container["env"].as_array().cloned().unwrap_or_default();
        variables.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), one["value"].as_str().unwrap().to_owned())).collect()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mounts = |daemon_set: &Value| -> Vec<String> {
        container(daemon_set)["volumeMounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mount| mount["mountPath"].as_str().unwrap().to_owned())
            .collect()
    };

    let toolkit = of("toolkit-env");
    assert_eq!(environment(container(&toolkit)), [pair("NVIDIA_VISIBLE_DEVICES", "all"), pair("NVIDIA_DRIVER_CAPABILITIES", "utility")]);
    assert_eq!(mounts(&toolkit), ["/sys/fs/bpf"]);

    let plugin = of("device-plugin");
    assert_eq!(environment(container(&plugin)), [pair("NVIDIA_DRIVER_CAPABILITIES", "utility")]);
    assert_eq!(container(&plugin)["resources"]["limits"]["nvidia.com/gpu"], 1);

    for least in [&toolkit, &plugin] {
        let context = &container(least)["securityContext"];
        assert_eq!(context["capabilities"], serde_json::json!({"drop": ["ALL"], "add": ["BPF", "SYS_RESOURCE"]}));
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert!(context.get("privileged").is_none());
    }

    let host = of("hostpath");
    assert_eq!(container(&host)["securityContext"]["privileged"], true);
    assert_eq!(mounts(&host), ["/sys/fs/bpf", "/host/dev", "/host/usr"]);
    let args = parse(&strings(&container(&host)["args"]));
    assert!(args.symlink_nvidia_devs && args.host_path.as_deref() == Some(Path::new("/host")));

    for daemon_set in [&toolkit, &plugin, &host] {
        let pod = &daemon_set["spec"]["template"]["spec"];
        assert_eq!((&pod["hostPID"], &pod["automountServiceAccountToken"]), (&Value::Bool(true), &Value::Bool(false)));
        assert_eq!(pod["volumes"][0]["hostPath"]["path"], "/sys/fs/bpf");
        assert_eq!(container(daemon_set)["securityContext"]["readOnlyRootFilesystem"], true);
    }
}

#[test]
fn sources_are_asked_for_and_get_the_capabilities_that_they_take() {
    let of = |settings: &[&str]| {
        let mut template = template();
        for setting in settings {
            template.args(["--set", setting]);
        }
        let container = container(&daemon_set(&succeed(&mut template))).clone();
        let source = strings(&container["args"]).into_iter().find(|flag| flag.starts_with("--source"));
        (
            source,
            container["securityContext"]["capabilities"]["add"]
                .as_array()
                .map(|_| strings(&container["securityContext"]["capabilities"]["add"])),
        )
    };
    let some = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    assert_eq!(of(&[]), (None, some(&["BPF", "SYS_RESOURCE"])));
    assert_eq!(of(&["sources={nvml,drm}"]), (Some("--source=nvml,drm".into()), some(&["BPF", "SYS_RESOURCE"])));
    let all = some(&["BPF", "SYS_RESOURCE", "SYS_PTRACE", "DAC_READ_SEARCH"]);
    assert_eq!(of(&["processesOfOtherVendors=true"]), (None, all.clone()));
    assert_eq!(of(&["sources={drm}", "processesOfOtherVendors=true"]), (Some("--source=drm".into()), all));
    // It is privileged as it is.
    assert_eq!(of(&["accessMode=hostpath", "processesOfOtherVendors=true"]), (None, None));
}

#[test]
fn wrong_values_are_refused_with_the_reason() {
    for file in values("bad") {
        let text = fs::read_to_string(&file).unwrap();
        let reason = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("the reason in the first line");
        let said = fail(template().arg("--values").arg(&file));
        assert!(said.contains(reason), "{}: {said}", file.display());
    }
}

#[test]
fn the_pages_installation_is_one() {
    let [line] = page::commands_like("helm install", 1).try_into().unwrap();
    let words = line.replace("deploy/chart", &format!("{}/chart", source("deploy").display()));
    let mut words = words.split(' ').skip(2);
    let said = succeed(helm("install").args(&mut words).arg("--dry-run=client"));
    assert!(said.contains("image: \"REGISTRY/gpu-ebpf-bridge:"), "{said}");
}

#[test]
fn notes_tell_how_to_verify_and_warn() {
    let notes = |settings: &[&str]| {
        let mut install = helm("install");
        install.arg("bridge").arg(source(CHART)).args(["--namespace", "gpu", "--dry-run=client"]);
        for setting in settings {
            install.args(["--set", setting]);
        }
        let said = succeed(&mut install);
        said.split_once("NOTES:").expect("notes").1.to_owned()
    };
    let plain = notes(&[]);
    assert!(plain.contains("-- /usr/bin/gpu-ebpf-bridge --health --pin-dir=/sys/fs/bpf"), "{plain}");
    assert!(!plain.contains("WARNING"), "{plain}");
    for (setting, warning) in [
        ("pollInterval=151ms", "pollInterval 151ms is above 150ms"),
        ("pollInterval=0.2s", "pollInterval 0.2s is above 150ms"),
        ("mode=mock", "INVENTED"),
        ("keepPins=false", "keepPins is false"),
        ("resources.limits.cpu=100m", "a CPU limit (100m) is set"),
    ] {
        let said = notes(&[setting]);
        assert_eq!(said.matches("WARNING").count(), 1, "{setting}: {said}");
        assert!(said.contains(warning), "{setting}: {said}");
    }
    assert!(!notes(&["pollInterval=150ms"]).contains("WARNING"));
}
