//! The charts of docs/performance.md.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::chart::{Chart, Line};
use crate::measure::Measured;
use crate::report::{Point, Report};

/// Draws what the report has figures for.
pub(crate) fn draw(report: &Report, folder: &Path) -> Result<()> {
    ensure!(!report.by_processes.is_empty(), "there is nothing to draw: growth is measured without --quick and --case");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let processes = |point: &Point| point.processes as f64;
    let gpus = |point: &Point| point.gpus as f64;
    let own = |measured: &Measured| measured.cpu.own;
    let publish = |measured: &Measured| measured.cpu.publisher_us_per_round;
    let growth = |title, x_title, y_unit, points: &[Point], x: fn(&Point) -> f64, y: fn(&Measured) -> f64, name| {
        let points = points.iter().map(|point| (x(point), y(&point.measured))).collect();
        let is_logarithmic = x_title == "processes";
        Chart { title, x_title, y_unit, is_logarithmic, lines: vec![Line { name, points }] }.svg()
    };
    let charts = [
        ("cpu-by-processes", growth("CPU at 100 ms", "processes", "ms/s", &report.by_processes, processes, own, "daemon and sampler")),
        ("cpu-by-gpus", growth("CPU at 100 ms, 64 processes a GPU", "GPUs", "ms/s", &report.by_gpus, gpus, own, "daemon and sampler")),
        (
            "publish-by-processes",
            growth("Publishing a round", "processes", "µs", &report.by_processes, processes, publish, "CPU of the thread"),
        ),
        (
            "publish-by-gpus",
            growth("Publishing a round, 64 processes a GPU", "GPUs", "µs", &report.by_gpus, gpus, publish, "CPU of the thread"),
        ),
        ("lookup", lookups(report)),
    ];
    for (name, svg) in charts {
        let path = folder.join(format!("performance-{name}.svg"));
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn lookups(report: &Report) -> String {
    let line = |name| {
        let point = |lookups: &crate::lookup::Lookups| Some((lookups.poll_interval_ms, lookups.ns.get(name)?.median));
        let mut points: Vec<(f64, f64)> = report.lookups.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name, points }
    };
    let lines = ["hit", "miss", "stale gate"].map(line).into();
    let title = "A consumer's lookup while the bridge writes 3,968 processes";
    Chart { title, x_title: "poll interval, ms", y_unit: "ns", is_logarithmic: true, lines }.svg()
}
