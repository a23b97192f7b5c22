//! `deploy test`: builds everything that is delivered, and tests it.

use std::time::Instant;

use anyhow::Result;

use super::{ARCHITECTURES, binaries, dist, image, manual, needs, package, reproduce, tools};
use crate::say::say;
use crate::{setup, shell, test};

/// What is tested without a registry, whatever engine a person would use.
const ENGINE: &str = "buildah";

/// The tests that need something built for delivery.
const FEATURE: [&str; 4] = ["--package", "deploy", "--features", "deploy/built"];

pub(super) fn run() -> Result<()> {
    setup::ensure()?;
    setup::ensure_all(needs::BUILDING)?;
    setup::ensure_all(needs::TESTING)?;
    prepare_judges()?;
    tools::clean_system()?;

    let start = Instant::now();
    manual::run(true)?;
    for architecture in ARCHITECTURES {
        binaries::build(architecture)?;
    }
    binaries::build_simulated_nvml()?;
    package::make_all(&package::Args::for_tests(), &dist()?, &ARCHITECTURES)?;
    package::make_next()?;
    image::run(&image::Args::for_tests(ENGINE))?;
    reproduce::run()?;
    say!("built in {:.0} s", start.elapsed().as_secs_f64());
    // The tests start the workspace's programs and load its simulated NVML.
    shell::run(shell::cargo().args(["build", "--package", "bridge-cli", "--package", "nvml-sim"]))?;
    shell::run(shell::cargo().arg("build").args(FEATURE).arg("--all-targets"))?;
    test::run_packages(&FEATURE, None)
}

/// What the tests need that are part of `make test`: of the chart, the manifests, the unit and docs/deployment.md.
///
/// # Errors
/// When something cannot be had.
pub(crate) fn prepare_judges() -> Result<()> {
    setup::ensure_all(needs::JUDGING)?;
    tools::judges()?;
    tools::helm()?;
    Ok(())
}
