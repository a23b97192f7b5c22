//! Shows threads that keep a CPU busy while their GPU starves: `cargo run -p consumers --example gpu_starvation [PIN-DIR]`.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use consumers::starvation::{Starvations, Thresholds};

fn main() -> Result<(), Box<dyn Error>> {
    let pin_dir = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "/sys/fs/bpf".into()));
    let starvations = Starvations::attach(&pin_dir, &Thresholds::default())?;
    let mut out = io::stdout().lock();
    loop {
        for starvation in starvations.poll(Duration::from_millis(200))? {
            writeln!(
                out,
                "{} ({}) was on a CPU for {:.1?}; GPU {} has been idle for {:.1?}",
                starvation.comm, starvation.tid, starvation.on_cpu, starvation.device, starvation.idle
            )?;
        }
    }
}
