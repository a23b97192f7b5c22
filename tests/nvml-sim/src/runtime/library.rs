//! The library's one state: where its files are, the scenario in use, the account, how often it was initialized.
#![expect(unsafe_code, reason = "dladdr says from where the library was loaded")]

use std::{
    env,
    ffi::{CStr, OsStr},
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem::MaybeUninit,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use nix::libc;

use super::loaded::Loaded;
use crate::{SCENARIO_FILE, SCENARIO_VARIABLE, STATS_FILE, STATS_VARIABLE, clock, scenario::Scenario, stats::table::Table};

/// How often the scenario file is looked at, at most.
const LOOK_NS: u64 = 2_000_000;
/// A file that was written so recently may be written again without a visible change of its time.
const YOUNG_NS: i128 = 50_000_000;

#[derive(Debug)]
pub(crate) struct Library {
    scenario: PathBuf,
    pub(crate) table: Table,
    loaded: RwLock<Arc<Loaded>>,
    next_look_ns: AtomicU64,
    seen: Mutex<Seen>,
    /// Initializations less shutdowns.
    pub(crate) users: AtomicU32,
    /// The lock of [`crate::scenario::CostMode::OneLock`].
    driver: Mutex<()>,
}

/// The file that was read last.
#[derive(Debug, Default)]
struct Seen {
    mark: Option<Mark>,
    young: bool,
    hash: Option<u64>,
    complaint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    modified_ns: i128,
}

/// The library's state, made at the first call.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let directory = own_directory();
        let path = |variable: &str, file: &str| env::var_os(variable).map(PathBuf::from).or_else(|| Some(directory.as_ref()?.join(file)));
        let library = Library {
            scenario: path(SCENARIO_VARIABLE, SCENARIO_FILE).unwrap_or_else(|| SCENARIO_FILE.into()),
            table: Table::open(path(STATS_VARIABLE, STATS_FILE).as_deref()),
            loaded: RwLock::new(Arc::new(Loaded::new(Scenario::new(), 0))),
            next_look_ns: AtomicU64::new(0),
            seen: Mutex::default(),
            users: AtomicU32::new(0),
            driver: Mutex::default(),
        };
        library.look_now();
        library
    })
}

impl Library {
    /// The scenario in use.
    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the driver's lock.
    pub(crate) fn lock_driver(&self) -> MutexGuard<'_, ()> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a new scenario when it is time to look for one and there is one.
    pub(crate) fn look(&self) {
        let now = clock::monotonic_ns();
        let due = self.next_look_ns.load(Relaxed);
        if now >= due && self.next_look_ns.compare_exchange(due, now + LOOK_NS, Relaxed, Relaxed).is_ok() {
            self.look_now();
        }
    }

    fn look_now(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(complaint) = self.take_up(&mut seen)
            && seen.complaint.as_ref() != Some(&complaint)
        {
            complain(&complaint);
            seen.complaint = Some(complaint);
        }
    }

    fn take_up(&self, seen: &mut Seen) -> Result<(), String> {
        let unreadable = |error: std::io::Error| format!("cannot read scenario {}: {error}", self.scenario.display());
        let metadata = fs::metadata(&self.scenario).map_err(unreadable)?;
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let mark = Mark { inode: metadata.ino(), size: metadata.size(), modified_ns };
        if seen.mark == Some(mark) && !seen.young {
            return Ok(());
        }
        let text = fs::read(&self.scenario).map_err(unreadable)?;
        seen.mark = Some(mark);
        seen.young = i128::from(clock::realtime_us()) * 1_000 - modified_ns < YOUNG_NS;
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        if seen.hash == Some(hash) {
            return Ok(());
        }
        seen.hash = Some(hash);
        let scenario = Scenario::parse(&text, &self.scenario).map_err(|error| chain(&error))?;
        let generation = self.loaded().generation + 1;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Loaded::new(scenario, generation));
        self.table.scenario();
        seen.complaint = None;
        Ok(())
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[expect(clippy::print_stderr, reason = "a library without a scenario has nobody else to tell")]
fn complain(complaint: &str) {
    eprintln!("nvml-sim: {complaint}");
}

/// The directory of the file that this code was loaded from.
fn own_directory() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let here = own_directory as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: `here` is an address of this code, `info` has room for what is written.
    if unsafe { libc::dladdr(here, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed is a valid Dl_info, and dladdr filled it in.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's name of a loaded object, alive while it is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    path.parent().map(Path::to_owned)
}
