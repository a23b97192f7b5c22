//! Putting the simulated library into a directory, as a driver's installer would.

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{
    SCENARIO_FILE, STATS_FILE,
    scenario::{Scenario, ScenarioError},
    stats::Stats,
};

mod elf;

/// What the dynamic linker looks for.
pub const FILE_NAME: &str = "libnvidia-ml.so.1";
/// What Cargo makes.
const BUILT_NAME: &str = "libnvml_sim.so";

/// Why the library cannot be installed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// Cargo has not built it.
    #[error("{BUILT_NAME} is in none of {}: build it with: cargo build -p nvml-sim", list(.0))]
    NotBuilt(Vec<PathBuf>),
    /// A file cannot be read or written.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A symbol that was to be hidden is not there.
    #[error("cannot hide {symbol} in {path}: {reason}")]
    Hide {
        /// The symbol.
        symbol: String,
        /// The library.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// An installed library.
#[derive(Clone, Debug)]
pub struct Installed {
    directory: PathBuf,
}

/// Puts the library into a directory, which is made when it is missing, without `hidden`: symbols that dlsym does not find there. A library
/// that was there is replaced by renaming, so that a process that has it loaded keeps the old one.
///
/// # Errors
/// When Cargo has not built the library, or a file cannot be read or written, or there is no such symbol.
pub fn install(directory: &Path, hidden: &[&str]) -> Result<Installed, InstallError> {
    let built = built()?;
    let mut image = fs::read(&built).map_err(|source| InstallError::File { action: "read", path: built.clone(), source })?;
    for symbol in hidden {
        elf::hide(&mut image, symbol).map_err(|reason| InstallError::Hide { symbol: (*symbol).to_owned(), path: built.clone(), reason })?;
    }
    let path = directory.join(FILE_NAME);
    write(directory, &path, &image).map_err(|source| InstallError::File { action: "write", path, source })?;
    Ok(Installed { directory: directory.to_owned() })
}

fn write(directory: &Path, path: &Path, image: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempfile_in(directory)?;
    file.write_all(image)?;
    file.persist(path)?;
    Ok(())
}

/// The library that Cargo built together with the running program.
///
/// # Errors
/// When it is not where Cargo puts it.
pub fn built() -> Result<PathBuf, InstallError> {
    let running = env::current_exe().map_err(|source| InstallError::File { action: "find", path: "/proc/self/exe".into(), source })?;
    let directory = running.parent().unwrap_or(Path::new("/"));
    // A test runs in deps or examples, a binary one up. What a dependency's build makes lies in deps and is as new as the running program's
    // own part of this crate.
    let profile = match directory.file_name() {
        Some(name) if name == "deps" || name == "examples" => directory.parent().unwrap_or(directory),
        _ => directory,
    };
    let places = vec![profile.join("deps").join(BUILT_NAME), profile.join(BUILT_NAME)];
    places.iter().find(|place| place.exists()).cloned().ok_or(InstallError::NotBuilt(places))
}

impl Installed {
    /// An installation that is already there.
    pub fn at(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The library.
    pub fn path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// The scenario file that the library reads unless its environment names another.
    pub fn scenario_path(&self) -> PathBuf {
        self.directory.join(SCENARIO_FILE)
    }

    /// The account that the library keeps unless its environment names another.
    pub fn stats_path(&self) -> PathBuf {
        self.directory.join(STATS_FILE)
    }

    /// Writes the scenario that the library reads, running or not.
    ///
    /// # Errors
    /// See [`Scenario::write`].
    pub fn play(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        scenario.write(&self.scenario_path())
    }

    /// Reads the library's account.
    ///
    /// # Errors
    /// See [`Stats::read`].
    pub fn stats(&self) -> io::Result<Stats> {
        Stats::read(&self.stats_path())
    }

    /// Removes the library, as a driver's removal would; the scenario and the account stay.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(self.path())
    }
}
