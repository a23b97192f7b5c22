//! The gpu-ebpf-bridge daemon.

use std::{
    env,
    io::{self, Write},
};

fn main() -> ! {
    let status = match bridge_cli::run(env::args_os().skip(1)) {
        Ok(status) => status,
        Err(error) => {
            // Standard error is the last resort.
            drop(writeln!(io::stderr(), "gpu-ebpf-bridge: {}", bridge_cli::chain(&error)));
            error.exit_status()
        }
    };
    bridge_cli::exit::now(status)
}
