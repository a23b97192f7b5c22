//! How many instructions the pure parts take, counted by callgrind: a figure without noise, with a ceiling.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

#[path = "../../../crates/telemetry-nvml/benches/parts/driver_rows.rs"]
mod driver_rows;
#[path = "../../../crates/bridge/benches/parts/full_round.rs"]
mod full_round;

const RECORDED: &str = "tests/bench/instructions.json";
/// The ceiling lies so far above what was recorded.
const ROOM_PCT: u64 = 10;
/// Once to grow the buffers, and then so many times.
const TIMES: u32 = 20;

/// A part that is counted.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Part {
    /// A round of 16 GPUs with 248 processes becomes records.
    Records,
    /// The driver's rows of 248 processes are filtered and joined.
    Rows,
}

/// Instructions of one turn of each part.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Instructions {
    records: u64,
    rows: u64,
}

/// Counts, and compares with what was recorded, or records. Prints what it found through `say`.
///
/// # Errors
/// When a part takes over a tenth more than was recorded; [`NotRun`] without valgrind.
pub(crate) fn check(record: bool, say: impl Fn(&str) -> Result<()>) -> Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err(NotRun.into());
    }
    let counted = Instructions { records: count(Part::Records)?, rows: count(Part::Rows)? };
    if record {
        let text = serde_json::to_string_pretty(&counted)?;
        fs::write(RECORDED, format!("{text}\n")).with_context(|| format!("cannot write {RECORDED}"))?;
        return say(&format!("recorded: {counted:?}\n"));
    }
    let text = fs::read(RECORDED).with_context(|| format!("cannot read {RECORDED}"))?;
    let recorded: Instructions = serde_json::from_slice(&text).with_context(|| format!("{RECORDED} is not a record"))?;
    let mut exceeded = Vec::new();
    for (name, now, before) in [("records", counted.records, recorded.records), ("rows", counted.rows, recorded.rows)] {
        let ceiling = before + before * ROOM_PCT / 100;
        say(&format!("{name}: {now} instructions, recorded {before}, ceiling {ceiling}\n"))?;
        if now > ceiling {
            exceeded.push(name);
        }
    }
    ensure!(
        exceeded.is_empty(),
        "over the ceiling: {}; where that is right, record anew: bench instructions --record",
        exceeded.join(", ")
    );
    Ok(())
}

/// Valgrind is not here.
#[derive(Debug)]
pub(crate) struct NotRun;

impl std::fmt::Display for NotRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the instructions were not counted: valgrind is not installed (Debian, Fedora: package valgrind)")
    }
}

impl std::error::Error for NotRun {}

/// Turns a part so many times, for callgrind.
pub(crate) fn turn(part: Part, times: u32) -> Result<()> {
    let mut turn: Box<dyn FnMut() -> usize> = match part {
        Part::Records => {
            let mut full = full_round::FullRound::new(16, 248);
            Box::new(move || full.fill())
        }
        Part::Rows => {
            let mut rows = driver_rows::DriverRows::new(248);
            Box::new(move || rows.filter())
        }
    };
    for _ in 0..times {
        ensure!(std::hint::black_box(turn()) > 0, "nothing came out");
    }
    Ok(())
}

/// Instructions of one turn: those of many less those of one, so that the program's own start does not count.
fn count(part: Part) -> Result<u64> {
    let (one, many) = (callgrind(part, 1)?, callgrind(part, 1 + TIMES)?);
    Ok(many.saturating_sub(one) / u64::from(TIMES))
}

fn callgrind(part: Part, times: u32) -> Result<u64> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let part = match part {
        Part::Records => "records",
        Part::Rows => "rows",
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(&own)
        .args(["turn", part, &times.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed: {text}");
    }
    collected(&text).with_context(|| format!("valgrind does not say what it collected: {text}"))
}

/// From the line `==123== Collected : 4567`.
fn collected(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_count_is_taken_from_valgrinds_words() {
        assert_eq!(collected("==1== Events    : Ir\n==1== Collected : 4567\n==1==\n"), Some(4567));
        assert_eq!(collected("==1== Events    : Ir\n"), None);
    }
}
