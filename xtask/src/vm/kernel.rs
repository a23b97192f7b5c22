//! Debian's kernels, fetched with apt and kept.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result};

use super::NotRun;
use crate::say::say;
use crate::shell::{self, command};

/// Releases of Debian that are asked for a kernel when the one that apt is configured for lacks it, the oldest first.
const SUITES: [&str; 6] = ["bullseye", "bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"];

/// Debian's own keys, older releases' included.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel series: 6.1 stands for the newest 6.1.x.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parsed.map(|(major, minor)| Self { major, minor }).ok_or("not a kernel version like 6.1")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// A kernel that can be booted.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) version: Version,
    pub(crate) package: String,
    pub(crate) image: PathBuf,
}

/// The kernel from `folder`, where it is put first if it is not there.
///
/// # Errors
/// [`NotRun`] when it cannot be fetched; others when it cannot be unpacked.
pub(crate) fn get(version: Version, folder: &Path) -> Result<Kernel> {
    let kernels = folder.join("kernels");
    fs::create_dir_all(&kernels).with_context(|| format!("cannot create {}", kernels.display()))?;
    let kept = fs::read_dir(&kernels)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let package = match newest(version, kept) {
        Some(package) => package,
        None => fetch(version, folder, &kernels)?,
    };
    Ok(Kernel { version, image: kernels.join(&package), package })
}

fn fetch(version: Version, folder: &Path, kernels: &Path) -> Result<String> {
    say!("vm: looking for Linux {version}");
    let targets = output(command("apt-get").args(["indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Identifier: Packages"]))?;
    let mirrors = mirrors(&targets);
    if mirrors.is_empty() {
        return Err(NotRun("apt is not configured with a mirror of Debian, where the kernels are".into()).into());
    }

    let mut apt = Apt::machines_own();
    let mut package = newest(version, apt.kernels()?);
    for suite in SUITES {
        if package.is_some() {
            break;
        }
        apt = Apt::of_suite(suite, &mirrors, &folder.join("apt").join(suite))?;
        package = newest(version, apt.kernels()?);
    }
    let Some(package) = package else {
        return Err(NotRun(format!("no release of Debian that can be reached has Linux {version}")).into());
    };

    let work = tempfile::tempdir_in(folder).context("cannot make a folder")?;
    shell::run(apt.command("apt-get").args(["--quiet=2", "download", &package]).current_dir(work.path()))
        .map_err(|error| NotRun(format!("cannot fetch {package}: {error:#}")))?;
    let archive = only_file(work.path(), |name| name.ends_with(".deb"))?;
    shell::run(command("dpkg-deb").arg("--extract").arg(archive).arg(work.path()))?;
    let image = only_file(&work.path().join("boot"), |name| name.starts_with("vmlinuz-"))?;
    fs::rename(image, kernels.join(&package)).with_context(|| format!("cannot keep {package}"))?;
    Ok(package)
}

/// apt with one set of package lists.
#[derive(Debug)]
struct Apt {
    settings: Vec<String>,
}

impl Apt {
    fn machines_own() -> Self {
        Self { settings: Vec::new() }
    }

    /// With the lists of one release, kept in a folder of their own: this machine's are not touched.
    fn of_suite(suite: &str, mirrors: &[String], folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder.join("lists/partial")).with_context(|| format!("cannot create {}", folder.display()))?;
        let sources = folder.join("sources.list");
        let keys = if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let lines: String = mirrors.iter().map(|mirror| format!("deb {keys}{mirror} {suite} main\n")).collect();
        fs::write(&sources, lines).with_context(|| format!("cannot write {}", sources.display()))?;
        let apt = Self {
            settings: vec![
                format!("Dir::Etc::sourcelist={}", sources.display()),
                "Dir::Etc::sourceparts=-".into(),
                format!("Dir::State::lists={}", folder.join("lists").display()),
                "Dir::State::status=/dev/null".into(),
                "Dir::Cache::pkgcache=".into(),
                "Dir::Cache::srcpkgcache=".into(),
                "Acquire::Languages=none".into(),
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            ],
        };
        // One of several mirrors may lack the release: what counts is whether there is a kernel in the end.
        if let Err(error) = shell::run(apt.command("apt-get").args(["--quiet=2", "update"])) {
            say!("vm: {suite}: {error:#}");
        }
        Ok(apt)
    }

    /// The names of the packages with a kernel.
    fn kernels(&self) -> Result<Vec<String>> {
        Ok(output(self.command("apt-cache").args(["pkgnames", "linux-image-"]))?.lines().map(str::to_owned).collect())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        // As ourselves: apt's own user cannot write into our folders. Where there is no network, that is to be known soon.
        for setting in ["APT::Sandbox::User=root", "Acquire::Retries=1", "Acquire::http::Timeout=20", "Acquire::https::Timeout=20"] {
            command.args(["-o", setting]);
        }
        for setting in &self.settings {
            command.args(["-o", setting]);
        }
        command
    }
}

/// The mirrors of Debian among apt's sources, each once. A line is a release and an address.
fn mirrors(targets: &str) -> Vec<String> {
    let mut mirrors: Vec<String> = Vec::new();
    for (release, address) in targets.lines().filter_map(|line| line.split_once(' ')) {
        let is_debian = SUITES.contains(&release) || ["oldoldstable", "oldstable", "stable", "testing", "unstable"].contains(&release);
        if is_debian && !mirrors.iter().any(|known| known == address) {
            mirrors.push(address.to_owned());
        }
    }
    mirrors
}

/// The newest package of a series among these.
fn newest(version: Version, packages: impl IntoIterator<Item = String>) -> Option<String> {
    let prefix = format!("linux-image-{version}.");
    let wanted = packages.into_iter().filter(|name| name.starts_with(&prefix) && name.ends_with("-cloud-amd64-unsigned"));
    wanted.max_by_key(|name| numbers(name))
}

/// The numbers in a text, by which versions are ordered.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|character: char| !character.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn only_file(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let files = fs::read_dir(folder).with_context(|| format!("cannot look into {}", folder.display()))?.flatten();
    let found = files.map(|entry| entry.path()).find(|path| path.file_name().is_some_and(|name| is_wanted(&name.to_string_lossy())));
    found.with_context(|| format!("the package has not what was expected in {}", folder.display()))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", shell::name(command)))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_two_numbers() {
        assert_eq!("6.12".parse(), Ok(Version { major: 6, minor: 12 }));
        for text in ["6", "6.", "6.x", "6.1.2", "../6.1", ""] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_newest_of_the_series_is_taken_and_no_other_kind() {
        let packages = [
            "linux-image-6.1.0-9-cloud-amd64-unsigned",
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.1.0-58-cloud-amd64",
            "linux-image-6.1.0-59-amd64-unsigned",
            "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
        ];
        let newest = |version: &str| newest(version.parse().expect("a version"), packages.map(str::to_owned));
        assert_eq!(newest("6.1").as_deref(), Some(packages[1]));
        assert_eq!(newest("6.12").as_deref(), Some(packages[4]));
        assert_eq!(newest("6.2"), None);
    }

    #[test]
    fn only_mirrors_of_debian_are_asked() {
        let targets = "bookworm http://a/debian/\nbookworm-updates http://a/debian/\nnodistro http://b/\nbookworm http://a/debian/\nnoble http://c/\nsid http://d/\n";
        assert_eq!(mirrors(targets), ["http://a/debian/", "http://d/"]);
    }
}
