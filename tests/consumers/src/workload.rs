//! `gpu-workload NAME`: a process for tests and demonstrations. It takes NAME as its name and obeys lines on its standard input until that
//! ends: `getppid N` makes N system calls, `burn MS` keeps a CPU busy, `sleep MS` does not. Each line is answered with `done`.

use std::env;
use std::ffi::CString;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::unistd;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let written = writeln!(io::stderr(), "gpu-workload: {error}");
            // Nothing is left to tell it to.
            drop(written);
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    if let Some(name) = env::args().nth(1) {
        prctl::set_name(&CString::new(name)?)?;
    }
    for line in io::stdin().lock().lines() {
        obey(&line?)?;
        writeln!(io::stdout(), "done")?;
    }
    Ok(())
}

fn obey(line: &str) -> io::Result<()> {
    let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("unknown line {line:?}"));
    let (word, number) = line.split_once(' ').ok_or_else(unknown)?;
    let number: u64 = number.parse().map_err(|_| unknown())?;
    match word {
        "getppid" => {
            for _ in 0..number {
                unistd::getppid();
            }
        }
        "burn" => {
            let end = Instant::now() + Duration::from_millis(number);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        "sleep" => thread::sleep(Duration::from_millis(number)),
        _ => return Err(unknown()),
    }
    Ok(())
}
