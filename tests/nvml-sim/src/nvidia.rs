//! NVIDIA's own files that the simulator is checked against: the header `nvml.h` and the Python client.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// Pinned versions with their hashes.
const REQUIREMENTS: &str = include_str!("../python-requirements.txt");

/// Where the files are.
#[derive(Clone, Debug)]
pub struct NvidiaFiles {
    /// For `PYTHONPATH`: has `pynvml.py`.
    pub python_path: PathBuf,
    /// For the compiler: has `nvml.h`.
    pub include: PathBuf,
}

/// Why they are not there.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Python or pip does not run.
    #[error("cannot run python3 -m pip (install python3 and python3-pip): {0}")]
    NoPip(String),
    /// The download failed.
    #[error("cannot fetch NVIDIA's header and Python client with pip (is the package index reachable?): {0}")]
    Download(String),
    /// A file or directory cannot be read or written.
    #[error("cannot prepare {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The packages do not contain what they should.
    #[error("no {file} in {directory}")]
    Incomplete {
        /// What was looked for.
        file: &'static str,
        /// Where.
        directory: PathBuf,
    },
}

/// The files, fetched with pip into `target` when they are not there yet. Safe to be called by several processes at once.
///
/// # Errors
/// When pip is missing, the packages cannot be fetched, or the directory cannot be written.
pub fn fetch(target: &Path) -> Result<NvidiaFiles, FetchError> {
    let mut hasher = DefaultHasher::new();
    REQUIREMENTS.hash(&mut hasher);
    let parent = target.join("nvml-python");
    let directory = parent.join(format!("{:016x}", hasher.finish()));
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| FetchError::Directory { path, source }
    };
    fs::create_dir_all(&parent).map_err(failed(&parent))?;
    let lock = fs::File::create(parent.join("lock")).map_err(failed(&parent))?;
    let _held = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| failed(&parent)(error.into()))?;
    if !directory.exists() {
        let fresh = tempfile::tempdir_in(&parent).map_err(failed(&parent))?;
        let requirements = fresh.path().join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS).map_err(failed(&requirements))?;
        pip_install(&requirements, fresh.path())?;
        fs::rename(fresh.keep(), &directory).map_err(failed(&directory))?;
    }
    find(&directory)
}

fn pip_install(requirements: &Path, directory: &Path) -> Result<(), FetchError> {
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--require-hashes"])
        .args(["--no-compile", "--target"])
        .arg(directory)
        .arg("--requirement")
        .arg(requirements)
        .output()
        .map_err(|error| FetchError::NoPip(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false if said.contains("No module named pip") => Err(FetchError::NoPip(said)),
        false => Err(FetchError::Download(said)),
    }
}

fn find(directory: &Path) -> Result<NvidiaFiles, FetchError> {
    let incomplete = |file| FetchError::Incomplete { file, directory: directory.to_owned() };
    if !directory.join("pynvml.py").exists() {
        return Err(incomplete("pynvml.py"));
    }
    // The directory in between is named after the CUDA release.
    let releases = fs::read_dir(directory.join("nvidia")).map_err(|_| incomplete("nvml.h"))?;
    let mut includes = releases.flatten().map(|release| release.path().join("include"));
    let include = includes.find(|include| include.join("nvml.h").exists()).ok_or_else(|| incomplete("nvml.h"))?;
    Ok(NvidiaFiles { python_path: directory.to_owned(), include })
}

/// Cargo's target directory, from where the running program lies in it.
///
/// # Errors
/// When the program's own path is not known.
pub fn target_directory() -> io::Result<PathBuf> {
    let running = std::env::current_exe()?;
    let inside = |directory: &&Path| directory.join("CACHEDIR.TAG").exists() || directory.join(".rustc_info.json").exists();
    let target = running.ancestors().find(inside);
    target
        .map(Path::to_owned)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{} is in no target directory", running.display())))
}
