//! The pin directory: on a BPF file system or nothing, and one bridge at a time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpu_types::maps;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::PublishError;

/// A file of one file system: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl From<&fs::Metadata> for Identity {
    fn from(metadata: &fs::Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

/// When a directory was changed, by the wall clock as the kernel looks at it now and then: seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangeTime(i64, i64);

impl ChangeTime {
    /// Whether a change from now on is sure to have another time: the kernel's clock ticks a hundred times a second at least.
    pub(crate) fn is_past(self) -> bool {
        const LONGEST_TICK: Duration = Duration::from_millis(100);
        let since_epoch = u64::try_from(self.0).ok().zip(u32::try_from(self.1).ok());
        let changed = since_epoch.and_then(|(seconds, nanos)| UNIX_EPOCH.checked_add(Duration::new(seconds, nanos)));
        changed.and_then(|changed| SystemTime::now().duration_since(changed).ok()).is_some_and(|age| age > LONGEST_TICK)
    }
}

/// The pin directory, locked.
#[derive(Debug)]
pub(crate) struct PinDirectory {
    path: PathBuf,
    /// Held on the directory itself: a BPF file system takes no ordinary files. Dropping it releases the lock.
    lock: Flock<File>,
    identity: Identity,
    /// What had to be created, outermost first.
    created: Vec<PathBuf>,
}

/// The lock is another bridge's.
#[derive(Debug)]
pub(crate) struct Taken;

impl PinDirectory {
    /// Makes sure that `dir` is a directory on a BPF file system, creating what is missing of it on one, and takes its lock.
    pub(crate) fn open(dir: &Path) -> Result<Result<Self, Taken>, PublishError> {
        let created = ensure(dir)?;
        let failed = |action, source| PublishError::Directory { action, dir: dir.to_owned(), source };
        let only_directories = OFlag::O_DIRECTORY.bits();
        let file = File::options().read(true).custom_flags(only_directories).open(dir).map_err(|source| failed("open", source))?;
        let metadata = file.metadata().map_err(|source| failed("look at", source))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Ok(Self { path: dir.to_owned(), lock, identity: Identity::from(&metadata), created })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(Err(Taken)),
            Err((_, errno)) => Err(failed("lock", errno.into())),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// When an entry was last made in, removed from or moved in or out of the directory. None when the path no longer leads to the one that is locked.
    pub(crate) fn look(&self) -> Result<Option<ChangeTime>, PublishError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if Identity::from(&metadata) == self.identity => Ok(Some(ChangeTime(metadata.ctime(), metadata.ctime_nsec()))),
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(source) => Err(PublishError::Directory { action: "look at", dir: self.path.clone(), source }),
        }
    }

    /// Removes the directories that [`PinDirectory::open`] created, as far as they are empty.
    pub(crate) fn remove_created(&self) {
        for dir in self.created.iter().rev() {
            if let Err(error) = fs::remove_dir(dir) {
                log::debug!("{} stays: {error}", dir.display());
            }
        }
    }

    /// Releases the lock by name: a process that was forked at the wrong moment may share it.
    pub(crate) fn unlock(self) -> Result<(), PublishError> {
        match self.lock.unlock() {
            Ok(_) => Ok(()),
            Err((_, errno)) => Err(PublishError::Directory { action: "unlock", dir: self.path, source: errno.into() }),
        }
    }
}

/// Creates `dir` where it is missing, one level at a time and only on a BPF file system. Returns what was created.
fn ensure(dir: &Path) -> Result<Vec<PathBuf>, PublishError> {
    let failed = |action, at: &Path, source: io::Error| PublishError::Directory { action, dir: at.to_owned(), source };
    let existing = dir.ancestors().map(or_here).find(|ancestor| !is_missing(ancestor)).unwrap_or(Path::new("/"));
    let on_bpffs = is_bpffs(existing).map_err(|source| failed("look at", existing, source))?;
    let missing: Vec<&Path> = dir.ancestors().take_while(|ancestor| or_here(ancestor) != existing).collect();
    if !on_bpffs {
        if missing.is_empty() && !existing.is_dir() {
            return Err(failed("use", existing, Errno::ENOTDIR.into()));
        }
        return Err(match missing.is_empty() {
            true => PublishError::NotBpffs { map: maps::META.name, dir: dir.to_owned() },
            false => PublishError::MissingDirectory { map: maps::META.name, dir: dir.to_owned(), ancestor: existing.to_owned() },
        });
    }

    let mut created = Vec::new();
    for level in missing.into_iter().rev() {
        // A name like .. may have led off the BPF file system by now.
        let parent = or_here(level.parent().unwrap_or(level));
        let allowed = is_bpffs(parent).map_err(|source| failed("look at", parent, source)).and_then(|bpffs| match bpffs {
            true => Ok(()),
            false => Err(PublishError::MissingDirectory { map: maps::META.name, dir: dir.to_owned(), ancestor: parent.to_owned() }),
        });
        let made = allowed.and_then(|()| match level.file_name() {
            Some(name) if name.as_bytes().contains(&b'.') => {
                Err(PublishError::DottedName { map: maps::META.name, dir: dir.to_owned(), name: name.to_string_lossy().into_owned() })
            }
            // A last component of `..`: it exists as soon as its parent does.
            None => Ok(false),
            Some(_) => match fs::create_dir(level) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && level.is_dir() => Ok(false),
                Err(error) => Err(failed("create", level, error)),
            },
        });
        match made {
            Ok(true) => created.push(level.to_owned()),
            Ok(false) => {}
            Err(error) => {
                for level in created.iter().rev() {
                    drop(fs::remove_dir(level));
                }
                return Err(error);
            }
        }
    }
    Ok(created)
}

/// The parent of a relative path of one component is written as nothing.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str() == OsStr::new("") { Path::new(".") } else { path }
}

/// Whether nothing is there. A BPF file system answers EPERM instead of ENOENT to a name with a dot.
fn is_missing(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            let dotted = path.file_name().is_some_and(|name| name.as_bytes().contains(&b'.'));
            let Some(parent) = path.parent().map(or_here) else { return false };
            error.raw_os_error() == Some(Errno::EPERM as i32) && (dotted && matches!(is_bpffs(parent), Ok(true)) || is_missing(parent))
        }
    }
}

fn is_bpffs(path: &Path) -> io::Result<bool> {
    Ok(statfs(path)?.filesystem_type() == BPF_FS_MAGIC)
}
