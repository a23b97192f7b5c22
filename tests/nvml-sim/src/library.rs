//! Putting the simulated library into a directory, as a driver's installer would.

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{
    LIBRARY_VARIABLE, SCENARIO_FILE, STATS_FILE,
    scenario::{Scenario, ScenarioError},
    stamp,
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
    #[error("no {0}: build it with: cargo build -p nvml-sim (or say where it is in {LIBRARY_VARIABLE})")]
    NotBuilt(PathBuf),
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
    /// The image cannot be changed as wanted.
    #[error("cannot {action} in {path}: {reason}")]
    Change {
        /// What was tried.
        action: String,
        /// The library.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
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
    put(directory, None, hidden)
}

/// As [`install`], with a library that bears a version: it answers `LIB_RM_VERSION_MISMATCH` when the scenario's driver has another, as the
/// old library does when a driver was upgraded underneath it.
///
/// # Errors
/// As [`install`], or when the version is longer than 36 bytes.
pub fn install_version(directory: &Path, version: &str, hidden: &[&str]) -> Result<Installed, InstallError> {
    put(directory, Some(version), hidden)
}

fn put(directory: &Path, version: Option<&str>, hidden: &[&str]) -> Result<Installed, InstallError> {
    let built = place()?;
    let mut image = read_whole(&built).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => InstallError::NotBuilt(built.clone()),
        _ => InstallError::File { action: "read", path: built.clone(), source },
    })?;
    for symbol in hidden {
        elf::hide(&mut image, symbol).map_err(|reason| InstallError::Change {
            action: format!("hide {symbol}"),
            path: built.clone(),
            reason,
        })?;
    }
    if let Some(version) = version {
        stamp::write(&mut image, version).map_err(|reason| InstallError::Change {
            action: format!("write version {version}"),
            path: built.clone(),
            reason,
        })?;
    }
    let path = directory.join(FILE_NAME);
    write(directory, &path, &image).map_err(|source| InstallError::File { action: "write", path, source })?;
    Ok(Installed { directory: directory.to_owned() })
}

/// Reads the library, waiting for a linker that renews it at this moment: Cargo's lock ends before the tests begin.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let image = fs::metadata(path).and_then(|before| {
            let image = fs::read(path)?;
            let after = fs::metadata(path)?;
            let same = (before.ino(), before.mtime_nsec(), before.len()) == (after.ino(), after.mtime_nsec(), after.len());
            let whole = same && elf::has(&image, "nvmlInit_v2");
            if whole { Ok(image) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a whole library")) }
        });
        if image.is_ok() || Instant::now() > deadline {
            return image;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn write(directory: &Path, path: &Path, image: &[u8]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempfile_in(directory)?;
    file.write_all(image)?;
    file.persist(path)?;
    Ok(())
}

/// The library that Cargo built together with the running program, or the one that [`LIBRARY_VARIABLE`] names.
///
/// # Errors
/// When it is not there.
pub fn built() -> Result<PathBuf, InstallError> {
    let place = place()?;
    if place.exists() { Ok(place) } else { Err(InstallError::NotBuilt(place)) }
}

fn place() -> Result<PathBuf, InstallError> {
    match env::var_os(LIBRARY_VARIABLE) {
        Some(path) => Ok(path.into()),
        None => match env::current_exe() {
            Ok(running) => Ok(built_beside(&running)),
            Err(source) => Err(InstallError::File { action: "find", path: "/proc/self/exe".into(), source }),
        },
    }
}

/// Where Cargo puts the library for a program: a test runs in deps or examples, a binary one up, and a dependency's files lie in deps.
fn built_beside(running: &Path) -> PathBuf {
    let directory = running.parent().unwrap_or(Path::new("/"));
    let profile = match directory.file_name() {
        Some(name) if name == "deps" || name == "examples" => directory.parent().unwrap_or(directory),
        _ => directory,
    };
    profile.join("deps").join(BUILT_NAME)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::built_beside;

    #[test]
    fn the_library_is_sought_where_a_dependencys_build_puts_it() {
        for program in ["/t/debug/deps/test-1", "/t/debug/examples/show", "/t/debug/xtask"] {
            assert_eq!(built_beside(Path::new(program)), Path::new("/t/debug/deps/libnvml_sim.so"), "{program}");
        }
    }
}
