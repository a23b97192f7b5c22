//! The live screen.

mod app;
mod bars;
mod history;
mod place;
mod processes;
mod view;

use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bridge_dump::{Capture, DumpError, Selection};
use crossterm::event::{self, Event, KeyEventKind};
use map_reader::Reader;
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use app::App;

/// How soon a signal is obeyed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Why the screen is not to be had, or not any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    #[error("--watch needs a terminal; for a pipe or a file there is --follow")]
    NoTerminal,
    #[error("cannot arrange for signals")]
    Signals(#[source] io::Error),
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
    #[error(transparent)]
    Dump(#[from] DumpError),
}

/// Shows what is pinned in `pin_dir` until a key or a signal ends it; the terminal is then as it was before.
pub(crate) fn run(pin_dir: &Path, selection: Selection, interval: Duration) -> Result<(), LiveError> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(LiveError::NoTerminal);
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(LiveError::Signals)?;
    }
    let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let app = App::new(pin_dir, interval, colours);
    // Also has a panic restore the terminal before it is reported.
    let terminal = ratatui::try_init().map_err(LiveError::Terminal)?;
    let _restored = Restore;
    show(terminal, app, Reader::open(pin_dir), &selection, &ended)
}

/// Leaves the alternate screen and raw mode at the end, however that comes.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that has hung up cannot be restored, and needs not be.
        drop(ratatui::try_restore());
    }
}

fn show(
    mut terminal: DefaultTerminal,
    mut app: App,
    mut reader: Reader,
    selection: &Selection,
    ended: &AtomicBool,
) -> Result<(), LiveError> {
    let mut next_look = Instant::now();
    while !ended.load(Ordering::Relaxed) && !app.is_over() {
        let now = Instant::now();
        if now >= next_look {
            // A late look is not made up for.
            next_look = now + app.interval();
            reader.reopen();
            app.update(Capture::take(&reader, selection)?);
        }
        terminal.draw(|frame| view::draw(&mut app, frame)).map_err(LiveError::Terminal)?;
        let wait = next_look.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
        if event::poll(wait).map_err(LiveError::Terminal)? {
            match event::read().map_err(LiveError::Terminal)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.key(key),
                // A new size is drawn in any case.
                _ => {}
            }
        }
    }
    Ok(())
}
