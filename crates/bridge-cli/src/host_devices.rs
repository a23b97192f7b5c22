//! `--symlink-nvidia-devs`: the host's NVIDIA device files, linked into this container's `/dev`.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

/// What was found and done, in the order of the names.
#[derive(Debug, Default)]
pub struct Summary {
    /// One entry a device file or directory of the host.
    pub entries: Vec<Entry>,
}

/// One device file or directory.
#[derive(Debug)]
pub struct Entry {
    /// Where the link is, or would be.
    pub path: PathBuf,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a device file or directory.
#[derive(Debug)]
pub enum Outcome {
    /// A link was made.
    Linked,
    /// A link of ours that pointed elsewhere inside the host path now points here.
    Refreshed,
    /// The link is there already.
    Current,
    /// A character device is there already and was left.
    Present,
    /// Something else is there and was left.
    Refused(Found),
    /// The system refused.
    Failed(io::Error),
}

/// What stands in the way of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A link that leads somewhere outside the host path.
    ForeignLink(PathBuf),
    /// A directory, where the host has a file.
    Directory,
    /// A regular file, a socket, a block device or the like.
    Other,
}

impl Summary {
    /// How many links were made or corrected.
    pub fn changed(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Linked | Outcome::Refreshed)).count()
    }

    /// Logs it: a warning for each thing refused or failed, one line for the rest.
    pub fn log(&self, host_path: &Path) {
        for Entry { path, outcome } in &self.entries {
            match outcome {
                Outcome::Refused(Found::ForeignLink(target)) => {
                    log::warn!(
                        "{} is left alone: it is a link to {}, which is not below {}",
                        path.display(),
                        target.display(),
                        host_path.display()
                    );
                }
                Outcome::Refused(Found::Directory) => log::warn!("{} is left alone: it is a directory", path.display()),
                Outcome::Refused(Found::Other) => {
                    log::warn!("{} is left alone: it is neither a character device nor a link", path.display())
                }
                Outcome::Failed(error) => log::warn!("cannot link {} to the host's: {error}", path.display()),
                Outcome::Linked | Outcome::Refreshed | Outcome::Current | Outcome::Present => {
                    log::debug!("{}: {outcome:?}", path.display());
                }
            }
        }
        match (self.changed(), self.entries.len()) {
            (_, 0) => log::debug!("no NVIDIA device files in {}/dev: nothing to link", host_path.display()),
            (0, all) => log::debug!("none of the {all} NVIDIA device files of {}/dev needed a new link", host_path.display()),
            (changed, all) => log::info!("linked {changed} of {all} NVIDIA device files of {}/dev", host_path.display()),
        }
    }
}

/// Links every `nvidia*` of `host_path`/dev into the directory `dev`; with a directory on both sides, what the host's holds. Asking
/// again changes nothing.
pub fn link(host_path: &Path, dev: &Path) -> Summary {
    let mut summary = Summary::default();
    let host_dev = host_path.join("dev");
    if same_file(&host_dev, dev) {
        return summary;
    }
    let linker = Linker { host_path };
    linker.link_all(&host_dev, dev, b"nvidia", &mut summary.entries);
    summary
}

struct Linker<'a> {
    host_path: &'a Path,
}

impl Linker<'_> {
    fn link_all(&self, from: &Path, to: &Path, prefix: &[u8], entries: &mut Vec<Entry>) {
        let mut names = match names(from) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                entries.push(Entry { path: from.to_owned(), outcome: Outcome::Failed(error) });
                return;
            }
        };
        names.retain(|name| name.as_bytes().starts_with(prefix));
        names.sort_unstable();
        for name in names {
            let (target, path) = (from.join(&name), to.join(&name));
            if target.is_dir() && fs::symlink_metadata(&path).is_ok_and(|there| there.is_dir()) {
                if !same_file(&target, &path) {
                    self.link_all(&target, &path, b"", entries);
                }
                continue;
            }
            let outcome = match self.link_one(&target, &path) {
                // Somebody was quicker; what is there now decides.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.link_one(&target, &path),
                outcome => outcome,
            };
            entries.push(Entry { path, outcome: outcome.unwrap_or_else(Outcome::Failed) });
        }
    }

    fn link_one(&self, target: &Path, path: &Path) -> io::Result<Outcome> {
        let there = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return symlink(target, path).map(|()| Outcome::Linked),
            Err(error) => return Err(error),
        };
        if there.is_char_device() {
            return Ok(Outcome::Present);
        }
        if there.is_dir() {
            return Ok(Outcome::Refused(Found::Directory));
        }
        if !there.is_symlink() {
            return Ok(Outcome::Refused(Found::Other));
        }
        let leads_to = fs::read_link(path)?;
        if leads_to == target {
            return Ok(Outcome::Current);
        }
        if !leads_to.starts_with(self.host_path) {
            return Ok(Outcome::Refused(Found::ForeignLink(leads_to)));
        }
        replace(target, path).map(|()| Outcome::Refreshed)
    }
}

/// Puts a link in the place of another one, so that at no moment there is none.
fn replace(target: &Path, path: &Path) -> io::Result<()> {
    let mut name = OsStr::new(".gpu-ebpf-bridge-").to_owned();
    name.push(path.file_name().unwrap_or_default());
    let fresh = path.with_file_name(name);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(target, &fresh)?;
    fs::rename(&fresh, path)
}

fn names(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
