//! Compiles `gpu_maps.bpf.c`, which declares the maps, into an object that the library embeds.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let crate_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let source = crate_dir.join("bpf/gpu_maps.bpf.c");
    let headers = crate_dir.join("include");

    let mut arguments: Vec<OsString> = ["-Wall", "-Werror", "-I"].map(OsString::from).to_vec();
    arguments.push(headers.clone().into_os_string());
    // Debian keeps asm/types.h, which linux/types.h needs, in a directory that clang does not search for the target bpf.
    for architecture in [env::var("CARGO_CFG_TARGET_ARCH")?, env::consts::ARCH.to_owned()] {
        arguments.push("-idirafter".into());
        arguments.push(format!("/usr/include/{architecture}-linux-gnu").into());
    }

    SkeletonBuilder::new().source(&source).obj(PathBuf::from(env::var("OUT_DIR")?).join("gpu_maps.bpf.o")).clang_args(arguments).build()?;
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-changed={}", headers.display());
    Ok(())
}
