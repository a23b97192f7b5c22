//! The log: one line an event, on standard error.

use std::io::Write as _;

use env_logger::{Target, WriteStyle, fmt::Formatter};
use log::{LevelFilter, Record, SetLoggerError};

/// Starts the log. The level comes from the flag alone; `RUST_LOG` is not consulted.
///
/// # Errors
/// When a log was started before.
pub fn start(level: LevelFilter) -> Result<(), SetLoggerError> {
    env_logger::Builder::new().filter_level(level).target(Target::Stderr).write_style(WriteStyle::Auto).format(line).try_init()
}

/// `2025-01-31T12:00:00.000Z INFO  message`; further lines of a message are indented.
fn line(out: &mut Formatter, record: &Record<'_>) -> std::io::Result<()> {
    let style = out.default_level_style(record.level());
    let message = record.args().to_string();
    write!(out, "{} {style}{:<5}{style:#} ", out.timestamp_millis(), record.level())?;
    writeln!(out, "{}", message.trim_end().replace('\n', "\n    "))
}
