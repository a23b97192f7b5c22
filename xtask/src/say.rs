//! Speaking on the terminal.

/// Prints a line to standard output as `println!` does; a reader who has gone (`… | head`) is no reason to stop, least of all while cleaning up.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($text)*).ok();
    }};
}

/// The same for standard error.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stderr(), $($text)*).ok();
    }};
}

pub(crate) use {complain, say};
