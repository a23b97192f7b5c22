//! The log: one line an event, on standard error, and no flood.

mod flood;

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use env_logger::{Logger, Target, WriteStyle, fmt::Formatter};
use log::{Level, LevelFilter, Log, Metadata, Record, SetLoggerError};

use self::flood::{Floods, Site};

/// Starts the log. The level comes from the flag alone; `RUST_LOG` is not consulted. On a terminal that shows colours levels have them, unless
/// `NO_COLOR` is set.
///
/// # Errors
/// When a log was started before.
pub fn start(level: LevelFilter) -> Result<(), SetLoggerError> {
    // Where nobody looks there is none, even if the environment asks for them (CLICOLOR_FORCE).
    let style = if io::stderr().is_terminal() { WriteStyle::Auto } else { WriteStyle::Never };
    let inner = env_logger::Builder::new().filter_level(level).target(Target::Stderr).write_style(style).format(line).build();
    log::set_boxed_logger(Box::new(Dammed { inner, floods: Mutex::default() }))?;
    log::set_max_level(level);
    Ok(())
}

/// A log that leaves out, and counts, what one place in the program says over and over. Debug and trace are asked for to see everything.
struct Dammed {
    inner: Logger,
    floods: Mutex<Floods>,
}

impl Dammed {
    /// Never held while something is written, which can hang.
    fn floods(&self) -> MutexGuard<'_, Floods> {
        self.floods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for Dammed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        let (Some(file), Some(number)) = (record.file_static(), record.line()) else { return self.inner.log(record) };
        if record.level() >= Level::Debug || !self.inner.matches(record) {
            return self.inner.log(record);
        }
        let now = Instant::now();
        let site = Site { file, line: number, level: record.level() };
        let over = self.floods().over(now);
        for summary in over {
            let metadata = Metadata::builder().level(summary.level).target(record.target()).build();
            self.inner.log(&Record::builder().metadata(metadata).args(format_args!("{summary}")).build());
        }
        let admitted = self.floods().admit(site, now, record.args());
        if admitted {
            self.inner.log(record);
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// `2025-01-31T12:00:00.000Z INFO  message`; further lines of a message are indented.
fn line(out: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let style = out.default_level_style(record.level());
    let message = record.args().to_string();
    write!(out, "{} {style}{:<5}{style:#} ", out.timestamp_millis(), record.level())?;
    writeln!(out, "{}", message.trim_end().replace('\n', "\n    "))
}
