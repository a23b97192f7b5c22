//! Plain manifests, rendered from the chart for who does not use helm.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::tools;
use crate::say::say;
use crate::shell;

const CHART: &str = "deploy/chart/gpu-ebpf-bridge";
const FOLDER: &str = "deploy/kubernetes";
const ACCESS_MODES: [&str; 3] = ["toolkit-env", "hostpath", "device-plugin"];

/// Renders the chart once for each way to the driver, or compares.
pub(super) fn run(check: bool) -> Result<()> {
    let mut outdated = Vec::new();
    for mode in ACCESS_MODES {
        let file = PathBuf::from(FOLDER).join(format!("gpu-ebpf-bridge-{mode}.yaml"));
        let fresh = render(mode)?;
        if check {
            if fs::read_to_string(&file).unwrap_or_default() != fresh {
                outdated.push(file.display().to_string());
            }
        } else {
            super::write(&file, fresh.as_bytes(), 0o644)?;
            say!("wrote {}", file.display());
        }
    }
    if !outdated.is_empty() {
        bail!("not what the chart renders: {}; run `cargo xtask deploy manifests`", outdated.join(", "));
    }
    Ok(())
}

fn render(mode: &str) -> Result<String> {
    let mut helm = shell::command(tools::helm()?);
    helm.args(["template", "gpu-ebpf-bridge", CHART, "--namespace", "gpu-ebpf-bridge", "--set"]).arg(format!("accessMode={mode}"));
    let manifests = String::from_utf8(super::output(&mut helm)?).context("helm's output is not UTF-8")?;
    // They are applied without helm, and belong to nobody's release.
    let own: String = manifests
        .lines()
        .filter(|line| !line.contains("helm.sh/chart:") && !line.contains("managed-by:") && !line.starts_with("# Source:"))
        .flat_map(|line| [line, "\n"])
        .collect();
    Ok(format!(
        "# Rendered from the chart, accessMode {mode}, by `cargo xtask deploy manifests`. Apply with: kubectl apply -f FILE\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: gpu-ebpf-bridge\n  labels:\n    pod-security.kubernetes.io/enforce: privileged\n{own}"
    ))
}
