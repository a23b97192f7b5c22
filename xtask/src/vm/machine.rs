//! A virtual machine from its start to its end.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::plan::Program;
use crate::say::say;
use crate::shell::{self, command};

/// What timeout makes of a program that was killed.
const KILLED: i32 = 137;
/// Whether an address is random makes no difference here, nor what a CPU might leak.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off";
/// From the start to the first program, which takes some twenty seconds. Of 48 emulated CPUs one in some boots is never heard of again, and with it the
/// kernel; a machine that has begun nothing has tested nothing, and is started anew.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
const MOST_BOOTS: u32 = 3;
/// The clock is the host's, as good on one CPU as on another.
const ONE_CLOCK: &str = " tsc=reliable";

/// What to boot.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) initramfs: &'a Path,
    pub(crate) smp: u32,
    pub(crate) console: Console,
    /// Gets everything that the console shows.
    pub(crate) console_log: &'a Path,
}

/// Where a machine's console is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Console {
    /// Here, as it comes, and kept.
    Terminal,
    /// Nowhere; it is kept.
    Kept,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed(Duration),
    Failed(i32),
    TimedOut,
    /// The machine ended before.
    NoResult,
}

impl Outcome {
    pub(crate) const fn is_passed(self) -> bool {
        matches!(self, Self::Passed(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(time) => write!(formatter, "passed in {} s", time.as_secs()),
            Self::Failed(status) => write!(formatter, "FAILED with status {status}"),
            Self::TimedOut => write!(formatter, "FAILED: killed, it took too long"),
            Self::NoResult => write!(formatter, "FAILED: the machine ended before it"),
        }
    }
}

impl Machine<'_> {
    /// Runs it to its end, or until its time is up. Returns an outcome for each program.
    ///
    /// # Errors
    /// When qemu cannot be started or fails.
    pub(crate) fn run(&self, programs: &[Program], limit: Duration) -> Result<Vec<Outcome>> {
        let results = self.initramfs.with_extension("results");
        // Of an earlier run: what counts is what this one writes.
        fs::remove_file(&results).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let console = match self.console {
            Console::Terminal => format!("stdio,id=console,signal=on,logfile={}", self.console_log.display()),
            Console::Kept => format!("file,id=console,path={}", self.console_log.display()),
        };
        let mut qemu = command("qemu-system-x86_64");
        if self.smp == 1 {
            // Its clock counts instructions (of 4 ns) and leaps over idle time: however busy the host is, everything inside is in time.
            qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=2,sleep=off"]);
        } else {
            qemu.args(["-accel", "tcg,thread=multi"]);
        }
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-smp", &self.smp.to_string(), "-m", &format!("{}", 1024 + 24 * self.smp)])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", &format!("{KERNEL_ARGUMENTS}{}", if self.smp == 1 { "" } else { ONE_CLOCK }), "-chardev"])
            .arg(console)
            .args(["-serial", "chardev:console", "-serial"])
            .arg(format!("file:{}", results.display()))
            .stdin(Stdio::null());
        shell::announce(&qemu);
        let end = Instant::now() + limit;
        let mut boots = 1;
        loop {
            let boot_end = if boots < MOST_BOOTS { end.min(Instant::now() + BOOT_LIMIT) } else { end };
            match wait(qemu.spawn().context("cannot start qemu")?, self.console_log, boot_end, end)? {
                End::Booting if Instant::now() < end => {
                    say!("vm: {} CPUs, and nothing on the console after {} s: started anew", self.smp, BOOT_LIMIT.as_secs());
                    boots += 1;
                }
                End::Booting | End::Killed => break,
                End::Exited(status) if status.success() => break,
                End::Exited(status) => bail!("qemu failed: {status}"),
            }
        }
        let results = fs::read_to_string(&results).context("cannot read the machine's results")?;
        Ok(programs.iter().map(|program| outcome(&program.name, &results)).collect())
    }
}

/// How qemu ended.
enum End {
    Exited(ExitStatus),
    /// Its time was up.
    Killed,
    /// It was killed before the machine's first program said anything.
    Booting,
}

fn wait(mut qemu: Child, console_log: &Path, boot_end: Instant, end: Instant) -> Result<End> {
    loop {
        if let Some(status) = qemu.try_wait()? {
            return Ok(End::Exited(status));
        }
        let now = Instant::now();
        // The kernel is quiet: what is there is the first program's, or a panic.
        let is_booting = now >= boot_end && fs::metadata(console_log).map_or(0, |log| log.len()) == 0;
        if is_booting || now >= end {
            qemu.kill()?;
            qemu.wait()?;
            return Ok(if is_booting { End::Booting } else { End::Killed });
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// What the results say of a program. A line is name, status and seconds.
fn outcome(name: &str, results: &str) -> Outcome {
    let mut lines = results.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let fields = lines.find_map(|words| match words[..] {
        [first, status, seconds] if first == name => Some((status.parse::<i32>().ok()?, seconds.parse::<u64>().ok()?)),
        _ => None,
    });
    match fields {
        Some((0, seconds)) => Outcome::Passed(Duration::from_secs(seconds)),
        Some((KILLED, _)) => Outcome::TimedOut,
        Some((status, _)) => Outcome::Failed(status),
        None => Outcome::NoResult,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_says_nothing_is_given_up_while_it_boots_and_one_that_does_is_not() {
        let log = std::env::temp_dir().join(format!("vm-console-{}", std::process::id()));
        let end = |text: &str, program: &str, seconds: &str| {
            fs::write(&log, text).expect("written");
            let child = command(program).arg(seconds).spawn().expect("started");
            let now = Instant::now();
            wait(child, &log, now, now + Duration::from_millis(300)).expect("waited for")
        };
        assert!(matches!(end("", "sleep", "60"), End::Booting));
        assert!(matches!(end("Linux 6.1", "sleep", "60"), End::Killed));
        assert!(matches!(end("Linux 6.1", "sleep", "0"), End::Exited(status) if status.success()));
        fs::remove_file(&log).expect("removed");
    }

    #[test]
    fn a_program_passed_only_when_its_line_says_so() {
        let results = "one 0 12\r\ntwo 101 3\r\nthree 137 180\r\nfour";
        assert_eq!(outcome("one", results), Outcome::Passed(Duration::from_secs(12)));
        assert_eq!(outcome("two", results), Outcome::Failed(101));
        assert_eq!(outcome("three", results), Outcome::TimedOut);
        assert_eq!(outcome("four", results), Outcome::NoResult);
        assert_eq!(outcome("on", results), Outcome::NoResult);
    }
}
