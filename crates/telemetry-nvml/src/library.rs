//! Where `libnvidia-ml.so.1` is.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Read,
    path::{Component, Path, PathBuf},
};

/// The library's name, as the dynamic loader knows it.
pub(crate) const FILE_NAME: &str = "libnvidia-ml.so.1";

/// Where to look for the library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LibraryChoice {
    /// As the dynamic loader finds it, then in directories where drivers put it that the loader may not know.
    #[default]
    Search,
    /// Exactly this file; an absolute path.
    Path(PathBuf),
    /// In a machine's file system that is mounted at this path: where drivers live on the systems known, absolute links resolved inside.
    UnderHost(PathBuf),
}

/// Directories for [`LibraryChoice::Search`], after the loader's own.
const DIRECTORIES: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "run/nvidia/driver/usr/lib64",
    "run/nvidia/driver/usr/lib",
    "home/kubernetes/bin/nvidia/lib64",
    "opt/nvidia",
    "opt/nvidia/lib64",
    "opt/nvidia/lib",
    "opt/nvidia/usr/lib64",
    "opt/nvidia/usr/lib",
    "run/opengl-driver/lib",
    "usr/lib/wsl/lib",
];

/// Directories whose subdirectories, one a driver version, hold a `lib64` or `lib`.
const DIRECTORIES_OF_VERSIONS: &[&str] = &["opt/nvidia"];

/// A library to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// By name: the loader searches.
    Name(OsString),
    /// A file that exists.
    File(PathBuf),
}

impl Candidate {
    pub(crate) fn as_os_str(&self) -> &OsStr {
        match self {
            Self::Name(name) => name,
            Self::File(path) => path.as_os_str(),
        }
    }
}

/// The libraries to try, in order, and the places that were looked at, for the message when none opens.
pub(crate) struct Candidates {
    pub(crate) found: Vec<Candidate>,
    pub(crate) looked_at: String,
}

impl LibraryChoice {
    pub(crate) fn candidates(&self) -> Candidates {
        match self {
            Self::Path(path) => Candidates {
                // Of what kind it is, the loader says better.
                found: path.exists().then(|| Candidate::File(path.clone())).into_iter().collect(),
                looked_at: format!("no file {}", path.display()),
            },
            Self::Search => Candidates {
                found: [Candidate::Name(FILE_NAME.into())].into_iter().chain(under(Path::new("/")).map(Candidate::File)).collect(),
                looked_at: format!("{FILE_NAME} is not where the dynamic loader looks, nor in {}", listing(Path::new("/"))),
            },
            Self::UnderHost(host) => Candidates {
                found: under(host).map(Candidate::File).collect(),
                looked_at: format!("no {FILE_NAME} for this processor in {}", listing(host)),
            },
        }
    }
}

/// The libraries in the known directories of the file system at `root`.
fn under(root: &Path) -> impl Iterator<Item = PathBuf> {
    let root = root.to_path_buf();
    let mut seen = Vec::new();
    directories(&root)
        .into_iter()
        .filter_map(move |directory| resolve_inside(&root, &directory.join(FILE_NAME)))
        .filter(|path| is_library_for_this_machine(path))
        .filter(move |path| {
            let new = !seen.contains(path);
            seen.push(path.clone());
            new
        })
}

/// The directories to look into, relative to `root`.
fn directories(root: &Path) -> Vec<PathBuf> {
    let mut directories: Vec<_> = DIRECTORIES.iter().map(PathBuf::from).collect();
    for parent in DIRECTORIES_OF_VERSIONS {
        let entries = resolve_inside(root, Path::new(parent)).and_then(|parent| fs::read_dir(parent).ok());
        let mut versions: Vec<_> = entries.into_iter().flatten().flatten().map(|entry| Path::new(parent).join(entry.file_name())).collect();
        versions.sort();
        // The newest first, as far as names tell.
        directories.extend(versions.iter().rev().flat_map(|version| [version.join("lib64"), version.join("lib")]));
    }
    directories
}

fn listing(root: &Path) -> String {
    DIRECTORIES.iter().map(|directory| root.join(directory).display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The file that `path` names for a process whose root is `root`: links are followed, absolute ones and `..` stay inside.
fn resolve_inside(root: &Path, path: &Path) -> Option<PathBuf> {
    // As many as the kernel follows.
    let mut links_left = 40;
    let mut inside = PathBuf::new();
    let mut todo: Vec<OsString> = components(path);
    while let Some(component) = todo.pop() {
        if component == ".." {
            inside.pop();
            continue;
        }
        let next = inside.join(&component);
        let kind = root.join(&next).symlink_metadata().ok()?.file_type();
        if !kind.is_symlink() {
            inside = next;
            continue;
        }
        links_left -= 1;
        if links_left == 0 {
            return None;
        }
        let target = root.join(&next).read_link().ok()?;
        if target.is_absolute() {
            inside = PathBuf::new();
        }
        todo.extend(components(&target));
    }
    Some(root.join(inside))
}

/// A path's names, the first one last.
fn components(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Whether a file is an ELF object of this process's class and processor.
fn is_library_for_this_machine(path: &Path) -> bool {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    const CLASS_64: u8 = 2;
    let mut header = [0; 20];
    let read = path.is_file() && fs::File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok();
    read && header.starts_with(b"\x7fELF") && header[4] == CLASS_64 && u16::from_le_bytes([header[18], header[19]]) == MACHINE
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn machine() -> u16 {
        if cfg!(target_arch = "aarch64") { 183 } else { 62 }
    }

    fn library(root: &Path, path: &str, machine: u16) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(18, 0);
        header.extend_from_slice(&machine.to_le_bytes());
        fs::write(file, header).unwrap();
    }

    #[track_caller]
    fn check(host: &TempDir, expected: &[&str]) {
        let found = LibraryChoice::UnderHost(host.path().into()).candidates().found;
        let expected: Vec<_> = expected.iter().map(|path| Candidate::File(host.path().join(path))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn drivers_are_found_where_systems_put_them() {
        for directory in DIRECTORIES {
            let host = TempDir::new().unwrap();
            let path = format!("{directory}/{FILE_NAME}");
            library(host.path(), &path, machine());
            check(&host, &[&path]);
        }
    }

    #[test]
    fn absolute_links_stay_inside_the_host_path() {
        let host = TempDir::new().unwrap();
        library(host.path(), "nix/store/driver/libnvidia-ml.so.580.1", machine());
        fs::create_dir_all(host.path().join("usr")).unwrap();
        symlink("/nix/store/driver", host.path().join("usr/lib64")).unwrap();
        symlink("libnvidia-ml.so.580.1", host.path().join("nix/store/driver").join(FILE_NAME)).unwrap();
        check(&host, &["nix/store/driver/libnvidia-ml.so.580.1"]);
    }

    #[test]
    fn no_link_leads_out_of_the_host_path() {
        let outside = TempDir::new().unwrap();
        library(outside.path(), FILE_NAME, machine());
        let host = TempDir::new().unwrap();
        fs::create_dir_all(host.path().join("usr/lib64")).unwrap();
        fs::create_dir_all(host.path().join("usr/lib")).unwrap();
        let up = "../".repeat(20);
        symlink(outside.path().join(FILE_NAME), host.path().join("usr/lib64").join(FILE_NAME)).unwrap();
        symlink(format!("{up}{}", outside.path().join(FILE_NAME).display()), host.path().join("usr/lib").join(FILE_NAME)).unwrap();
        check(&host, &[]);
    }

    #[test]
    fn links_in_a_circle_are_not_followed_for_ever() {
        let host = TempDir::new().unwrap();
        fs::create_dir_all(host.path().join("usr")).unwrap();
        symlink("lib", host.path().join("usr/lib64")).unwrap();
        symlink("lib64", host.path().join("usr/lib")).unwrap();
        check(&host, &[]);
    }

    #[test]
    fn a_library_for_another_processor_is_passed_over() {
        let host = TempDir::new().unwrap();
        library(host.path(), &format!("usr/lib/{FILE_NAME}"), 3);
        library(host.path(), &format!("opt/nvidia/560.1/lib64/{FILE_NAME}"), machine());
        library(host.path(), &format!("opt/nvidia/570.2/lib64/{FILE_NAME}"), machine());
        check(&host, &["opt/nvidia/570.2/lib64/libnvidia-ml.so.1", "opt/nvidia/560.1/lib64/libnvidia-ml.so.1"]);
    }

    #[test]
    fn a_path_that_does_not_exist_is_named() {
        let candidates = LibraryChoice::Path("/nowhere/libnvidia-ml.so.1".into()).candidates();
        assert_eq!(candidates.found, []);
        assert_eq!(candidates.looked_at, "no file /nowhere/libnvidia-ml.so.1");
    }
}
