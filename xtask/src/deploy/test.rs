//! `deploy test`: builds everything that is delivered, and tests it.

use std::time::Instant;

use anyhow::Result;

use super::{ARCHITECTURES, binaries, chart, image, manual, needs, package, tools};
use crate::say::say;
use crate::{setup, shell, test};

/// What is tested without a registry, whatever engine a person would use.
const ENGINE: &str = "buildah";

pub(super) fn run() -> Result<()> {
    setup::ensure()?;
    setup::ensure_all(needs::BUILDING)?;
    setup::ensure_all(needs::TESTING)?;
    tools::kubernetes_validate()?;
    tools::helm()?;
    tools::clean_system()?;

    let start = Instant::now();
    manual::run(true)?;
    chart::run(true)?;
    for architecture in ARCHITECTURES {
        binaries::build(architecture)?;
    }
    image::run(&image::Args::for_tests(ENGINE))?;
    package::make_all()?;
    say!("built in {:.0} s", start.elapsed().as_secs_f64());
    // The tests start the workspace's BPF-free helpers and load its simulated NVML.
    shell::run(shell::cargo().args(["build", "--package", "deploy", "--all-targets"]))?;
    test::run_packages(&["--package", "deploy"])
}
