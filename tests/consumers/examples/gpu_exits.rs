//! Shows each process that ends with GPU memory in its hands: `cargo run -p consumers --example gpu_exits [PIN-DIR]`.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use consumers::exits::{Exits, Reason};

fn main() -> Result<(), Box<dyn Error>> {
    let pin_dir = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "/sys/fs/bpf".into()));
    let exits = Exits::attach(&pin_dir, 300)?;
    let mut out = io::stdout().lock();
    loop {
        for exit in exits.poll(Duration::from_millis(200))? {
            let how = match exit.reason {
                Reason::Status(status) => format!("ended with status {status}"),
                Reason::Signal(signal) => format!("was killed by signal {signal}"),
                Reason::OutOfMemory => "was killed for want of memory".to_owned(),
            };
            writeln!(out, "{} ({}) {how}; it held {} MiB of GPU memory", exit.comm, exit.tgid, exit.gpu_memory_bytes >> 20)?;
        }
    }
}
