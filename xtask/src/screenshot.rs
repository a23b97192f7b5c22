//! `screenshot`: the picture of the live screen in the documentation, from a real run on a simulated driver.

use std::f64::consts::TAU;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nvml_sim::library;
use nvml_sim::scenario::Scenario;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;
use vt100::{Cell, Color};

use crate::demo::scenario::scenario;
use crate::{setup, shell};

const PICTURE: &str = "docs/bridge-dump.svg";
const COLUMNS: u16 = 100;
const ROWS: u16 = 14;
/// Until the histories are as long as there is room for.
const WATCHED: Duration = Duration::from_secs(12);
const STEP: Duration = Duration::from_millis(250);
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// What the processes are started as: Python programs that do nothing, under names that people know.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("train.py", &["train.py", "--batch-size", "64"]),
    ("finetune.py", &["finetune.py", "--lora"]),
    ("serve.py", &["serve.py", "--port", "8000"]),
];

/// A BPF file system of its own at the usual place, a bridge, and its screen until that is left.
const SCRIPT: &str =
    r#"mount -t bpf bpf /sys/fs/bpf && "$1" --mode=real --nvml-library-path="$2" 2>"$3" & "$4" --watch=250ms; kill %1; wait"#;

/// Draws the picture anew.
///
/// # Errors
/// When something cannot be built, started or written; it needs root.
pub(crate) fn run() -> Result<()> {
    setup::ensure()?;
    if !shell::is_root() {
        bail!("a bridge and its maps need root: sudo -E cargo xtask screenshot");
    }
    shell::run(shell::cargo().args(["build", "--package", "bridge-cli", "--package", "bridge-dump", "--package", "nvml-sim"]))?;
    let folder = TempDir::with_prefix("screenshot-").context("cannot make a temporary folder")?;
    let programs = PROGRAMS.iter().map(|(file, arguments)| Program::start(folder.path(), file, arguments)).collect::<Result<Vec<_>>>()?;
    let library = library::install(&folder.path().join("driver"), &[])?;
    let pids: Vec<_> = programs.iter().map(|program| program.0.id()).collect();
    // Once: counters go on from where they are.
    let machine = scenario(&pids);
    let play = |elapsed: Duration| Ok(library.play(&at(&machine, elapsed))?);
    play(Duration::ZERO)?;

    let log = folder.path().join("log");
    let mut screen = Command::new("setsid");
    screen.args(["--ctty", "unshare", "--mount", "--propagation", "private", "bash", "-mc", SCRIPT, "screenshot"]);
    screen.arg(shell::built("gpu-ebpf-bridge")?).arg(library.path()).arg(&log).arg(shell::built("bridge-dump")?);
    let parser = watch(&mut screen, play)?;
    let text = parser.screen().contents();
    if !text.contains("PID") || PROGRAMS.iter().any(|(file, _)| !text.contains(file)) {
        bail!("not the screen that was expected:\n{text}\n{}", fs::read_to_string(log).unwrap_or_default());
    }
    fs::write(PICTURE, svg(&parser)).with_context(|| format!("cannot write {PICTURE}"))
}

/// The demo's GPUs, at work: their sensors follow sine curves.
fn at(machine: &Scenario, elapsed: Duration) -> Scenario {
    let mut scenario = machine.clone();
    for (index, period_s) in [(0, 9.0), (1, 5.0)] {
        let swing = (elapsed.as_secs_f64() / period_s * TAU).sin();
        let around = |middle: f64, half: f64| (middle + half * swing) as u32;
        scenario.change(index, |device| device.power_mw(around(480e3, 190e3)).temperature_c(around(61.0, 9.0).cast_signed()));
    }
    scenario
}

/// A process that is said to use a GPU.
struct Program(Child);

impl Program {
    fn start(folder: &Path, file: &str, arguments: &[&str]) -> Result<Self> {
        fs::write(folder.join(file), "import time\ntime.sleep(600)\n")?;
        let child =
            Command::new("python3").args(arguments).current_dir(folder).stdout(Stdio::null()).spawn().context("cannot start python3")?;
        Ok(Self(child))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs a program on a terminal of its own for a while, has it quit, and returns what was on the screen before. `meanwhile` is done again and again.
fn watch(program: &mut Command, meanwhile: impl Fn(Duration) -> Result<()>) -> Result<vt100::Parser> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    tcsetwinsize(&terminal, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })?;
    let line = File::options().read(true).write(true).open(ptsname(&terminal, Vec::new())?.to_str()?)?;
    program.stdin(line.try_clone()?).stdout(line.try_clone()?).stderr(line).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    let mut child = program.spawn().context("cannot start setsid")?;
    // The command holds the terminal's other end.
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());

    let mut terminal = File::from(terminal);
    let (sender, output) = mpsc::channel();
    let mut source = terminal.try_clone()?;
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = source.read(&mut bytes) {
            if sender.send(bytes[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    let start = Instant::now();
    while start.elapsed() < WATCHED {
        meanwhile(start.elapsed())?;
        if let Ok(bytes) = output.recv_timeout(STEP) {
            parser.process(&bytes);
        }
    }
    terminal.write_all(b"q")?;
    let deadline = Instant::now() + ENDS_WITHIN;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            bail!("the screen was not left; it showed:\n{}", parser.screen().contents());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(parser)
}

const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 10.0;
const BACKGROUND: &str = "#12151c";
const FOREGROUND: &str = "#d4d7de";

/// What neighbouring cells have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    ink: &'static str,
    paper: &'static str,
    bold: bool,
}

impl Look {
    fn of(cell: Option<&Cell>) -> Self {
        let Some(cell) = cell else { return Self { ink: FOREGROUND, paper: BACKGROUND, bold: false } };
        let (ink, paper) = (colour(cell.fgcolor(), FOREGROUND), colour(cell.bgcolor(), BACKGROUND));
        let (ink, paper) = if cell.inverse() { (paper, ink) } else { (ink, paper) };
        Self { ink, paper, bold: cell.bold() }
    }
}

fn colour(colour: Color, default: &'static str) -> &'static str {
    match colour {
        Color::Idx(1 | 9) => "#ff6b6b",
        Color::Idx(2 | 10) => "#7bd88f",
        Color::Idx(3 | 11) => "#f2c76e",
        Color::Idx(6 | 14) => "#5fb8d6",
        _ => default,
    }
}

fn svg(parser: &vt100::Parser) -> String {
    let (width, height) = (f64::from(COLUMNS) * CELL.0 + 2.0 * MARGIN, f64::from(ROWS) * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"bridge-dump --watch on two simulated GPUs\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" fill=\"{FOREGROUND}\" xml:space=\"preserve\">\n"
    );
    for row in 0..ROWS {
        let looks: Vec<_> = (0..COLUMNS).map(|column| Look::of(parser.screen().cell(row, column))).collect();
        let mut column = 0;
        for same in looks.chunk_by(Look::eq) {
            let text: String = (column..column + same.len()).map(|at| letter(parser, row, at)).collect();
            draw(&mut svg, row, column, &text, same[0]);
            column += same.len();
        }
    }
    svg + "</g></svg>\n"
}

fn letter(parser: &vt100::Parser, row: u16, column: usize) -> String {
    let cell = u16::try_from(column).ok().and_then(|column| parser.screen().cell(row, column));
    cell.filter(|cell| cell.has_contents()).map_or_else(|| " ".to_owned(), |cell| cell.contents().to_owned())
}

/// Some cells of a row that look alike.
fn draw(svg: &mut String, row: u16, column: usize, text: &str, look: Look) {
    let (x, y) = (MARGIN + column as f64 * CELL.0, MARGIN + f64::from(row) * CELL.1);
    let wide = |letters: usize| letters as f64 * CELL.0;
    if look.paper != BACKGROUND {
        let (top, width) = (y, wide(text.chars().count()));
        let rect = format!("<rect x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>\n", CELL.1, look.paper);
        svg.push_str(&rect);
    }
    let letters = text.trim();
    if letters.is_empty() {
        return;
    }
    let x = x + wide(text.chars().take_while(|letter| *letter == ' ').count());
    let escaped = letters.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let bold = if look.bold { " font-weight=\"bold\"" } else { "" };
    let fill = if look.ink == FOREGROUND { String::new() } else { format!(" fill=\"{}\"", look.ink) };
    let (baseline, length) = (y + 13.5, wide(letters.chars().count()));
    svg.push_str(&format!(
        "<text x=\"{x:.1}\" y=\"{baseline}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\"{bold}{fill}>{escaped}</text>\n"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_text_the_colours_and_the_reversed_lines_of_the_screen() {
        let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
        parser.process("\u{1b}[32m██\u{1b}[0m a<b\r\n\u{1b}[7m  PID \u{1b}[0m".as_bytes());
        let svg = svg(&parser);
        assert!(svg.contains(" fill=\"#7bd88f\">██</text>"), "{svg}");
        assert!(svg.contains("x=\"35.2\" y=\"23.5\" textLength=\"25.2\" lengthAdjust=\"spacingAndGlyphs\">a&lt;b</text>"), "{svg}");
        assert!(svg.contains("<rect x=\"10.0\" y=\"28\" width=\"50.4\" height=\"18\" fill=\"#d4d7de\"/>"), "{svg}");
        assert!(svg.contains(" fill=\"#12151c\">PID</text>"), "{svg}");
    }
}
