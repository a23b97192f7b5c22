//! Compiles the BPF programs and generates their skeletons.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let crate_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let programs = crate_dir.join("bpf");
    let headers = crate_dir.join("../../include");

    for name in ["gpu_devices", "gpu_tasks", "gpu_events", "gpu_state", "gpu_launches", "gpu_exits", "gpu_starvation"] {
        SkeletonBuilder::new()
            .source(programs.join(format!("{name}.bpf.c")))
            .clang_args([
                OsString::from("-Wall"),
                OsString::from("-Werror"),
                OsString::from("-I"),
                programs.clone().into_os_string(),
                OsString::from("-I"),
                headers.clone().into_os_string(),
            ])
            .build_and_generate(out_dir.join(format!("{name}.skel.rs")))?;
    }
    println!("cargo::rustc-env=LIBBPF_INCLUDE={}", env::var("DEP_BPF_INCLUDE")?);
    println!("cargo::rerun-if-changed={}", programs.display());
    println!("cargo::rerun-if-changed={}", headers.display());
    Ok(())
}
