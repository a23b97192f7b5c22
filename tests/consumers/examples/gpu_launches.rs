//! Shows each kernel launch with what the GPU was doing: `cargo run -p consumers --example gpu_launches [PIN-DIR [LIBRARY [FUNCTION]]]`.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use consumers::launches::Launches;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let pin_dir = PathBuf::from(arguments.next().unwrap_or_else(|| "/sys/fs/bpf".to_owned()));
    let library = PathBuf::from(arguments.next().unwrap_or_else(|| "/usr/lib/x86_64-linux-gnu/libcuda.so.1".to_owned()));
    let function = arguments.next().unwrap_or_else(|| "cuLaunchKernel".to_owned());
    let launches = Launches::attach(&pin_dir, 300, &library, &function)?;
    let mut out = io::stdout().lock();
    loop {
        for launch in launches.poll(Duration::from_millis(200))? {
            writeln!(
                out,
                "{} ({}) launches while it holds {} MiB and GPU {} is at {} %, slowed by {:#x}",
                launch.comm,
                launch.tgid,
                launch.gpu_memory_bytes >> 20,
                launch.device.map_or_else(|| "several".to_owned(), |device| device.to_string()),
                launch.device_sm_util_pct,
                launch.throttle_reasons,
            )?;
        }
    }
}
