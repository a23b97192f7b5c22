//! One simulated card, whose files change over time.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
};

use nix::{sys::stat::Mode, unistd::mkfifo};

use crate::{Profile, tree::make_directory};

/// A card of a [`Tree`](crate::Tree). Files are named from its PCI device's directory, as in `gpu_busy_percent` or `hwmon/hwmon0/temp1_input`,
/// with `card/` in front of those of the card itself, as in `card/gt/gt0/rps_act_freq_mhz`.
#[derive(Debug)]
pub struct Card {
    class: PathBuf,
    card: PathBuf,
    device: PathBuf,
    number: u32,
    pci: String,
}

impl Card {
    pub(crate) fn new(class: PathBuf, card: PathBuf, device: PathBuf, number: u32, pci: &str) -> Self {
        Self { class, card, device, number, pci: pci.to_owned() }
    }

    pub(crate) fn fill(&self, profile: &Profile) {
        let (vendor, device) = profile.id.split_once(':').expect("an identifier as in 1002:67df");
        let uevent =
            format!("DRIVER={}\nPCI_CLASS=30000\nPCI_ID={}\nPCI_SLOT_NAME={}\n", profile.driver, profile.id.to_uppercase(), self.pci);
        self.set("uevent", uevent);
        self.set("vendor", format!("0x{vendor}"));
        self.set("device", format!("0x{device}"));
        self.set("card/dev", format!("226:{}", self.number));
        for (name, text) in profile.files {
            self.set(name, text);
        }
        if let Some(table) = &profile.table {
            self.set("gpu_metrics", table.bytes());
        }
    }

    /// N of `cardN`.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The minor number of its render node.
    pub const fn render_minor(&self) -> u32 {
        128 + self.number
    }

    /// Its place on the bus, as in `0000:65:00.0`.
    pub fn pci(&self) -> &str {
        &self.pci
    }

    /// Where a file of the card lies.
    pub fn path(&self, name: &str) -> PathBuf {
        name.strip_prefix("card/").map_or_else(|| self.device.join(name), |name| self.card.join(name))
    }

    /// What a file says from now on; a file that is open stays the same one, and no reader sees half of a change.
    pub fn set(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        make_directory(path.parent().expect("a file below a directory"));
        let mut bytes = text.as_ref().to_vec();
        if str::from_utf8(&bytes).is_ok_and(|text| !text.is_empty() && !text.ends_with('\n')) && !name.ends_with("gpu_metrics") {
            bytes.push(b'\n');
        }
        let file = match File::options().write(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::write(path, bytes).expect("a file in one's own directory");
                return;
            }
            file => file.expect("a file in one's own directory"),
        };
        let length = bytes.len();
        let before = file.metadata().expect("an open file").len() as usize;
        bytes.resize(length.max(before), b'\n');
        file.write_all_at(&bytes, 0).expect("a file in one's own directory");
        file.set_len(length as u64).expect("a file in one's own directory");
    }

    /// What it says now.
    pub fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file in one's own directory").trim().to_owned()
    }

    /// Takes a file away, or a directory with all that is in it.
    pub fn remove(&self, name: &str) {
        let path = self.path(name);
        if path.symlink_metadata().expect("a file in one's own directory").is_dir() {
            fs::remove_dir_all(path).expect("a directory in one's own");
        } else {
            fs::remove_file(path).expect("a file in one's own directory");
        }
    }

    /// Makes a file open and fail on every read (with `EISDIR`: it is a directory).
    pub fn fail_on_read(&self, name: &str) {
        self.replace(name, make_directory);
    }

    /// Makes a file fail to open (with `ELOOP`: it is a link to itself), which holds for root too.
    pub fn fail_on_open(&self, name: &str) {
        self.replace(name, |path| symlink(path, path).expect("a link in one's own directory"));
    }

    /// Puts a FIFO in place of a file: whoever opens it for reading waits until something is written.
    pub fn trap(&self, name: &str) -> Fifo {
        self.replace(name, |_| ());
        Fifo::make(self.path(name))
    }

    /// The same for every file of the card but those in `power/` and `uevent`, which say whether it sleeps and what it is.
    pub fn trap_everything(&self) {
        for (directory, is_device) in [(&self.device, true), (&self.card, false)] {
            for file in files_below(directory) {
                let name = file.strip_prefix(directory).expect("below it").to_str().expect("names of our own");
                if is_device && (name.starts_with("power/") || name == "uevent" || name.starts_with("drm/")) {
                    continue;
                }
                let name = if is_device { name.to_owned() } else { format!("card/{name}") };
                let _fifo = self.trap(&name);
            }
        }
    }

    /// Turns runtime power management on, with this delay.
    pub fn manage(&self, autosuspend_delay_ms: i64) {
        self.set("power/control", "auto");
        self.set("power/autosuspend_delay_ms", autosuspend_delay_ms.to_string());
    }

    /// What `power/runtime_status` says: `active`, `suspended` …
    pub fn set_status(&self, status: &str) {
        self.set("power/runtime_status", status);
    }

    /// The card goes, with its driver or its power.
    pub fn unplug(self) {
        let departed = self.class.with_file_name("departed");
        make_directory(&departed);
        for name in [format!("card{}", self.number), format!("card{}-DP-1", self.number), format!("renderD{}", self.render_minor())] {
            // sysfs gives no number of an inode twice, where other file systems do as soon as it is free.
            let place = fs::read_dir(&departed).expect("a directory in one's own").count().to_string();
            fs::rename(self.class.join(name), departed.join(place)).expect("a link in one's own directory");
        }
        fs::remove_dir_all(&self.device).expect("a directory in one's own");
    }

    fn replace(&self, name: &str, make: impl FnOnce(&Path)) {
        if self.path(name).symlink_metadata().is_ok() {
            self.remove(name);
        }
        make(&self.path(name));
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory in one's own").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(|entry| match entry.file_type().expect("an entry") {
            kind if kind.is_dir() => files_below(&entry.path()),
            kind if kind.is_file() => vec![entry.path()],
            _ => Vec::new(),
        })
        .collect()
}

/// A file whose opening waits.
#[derive(Debug)]
pub struct Fifo {
    path: PathBuf,
}

impl Fifo {
    pub(crate) fn make(path: PathBuf) -> Self {
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO in one's own directory");
        Self { path }
    }

    /// Waits for a reader and gives it this text: from opening to the end of the file, a reader takes as long as the caller wants.
    pub fn feed(&self, text: &str) {
        let mut writer = File::options().write(true).open(&self.path).expect("a FIFO in one's own directory");
        writer.write_all(text.as_bytes()).expect("a reader that waits");
    }

    /// Whether somebody waits in an open or read of it now.
    pub fn has_reader(&self) -> bool {
        use std::os::unix::fs::OpenOptionsExt;

        File::options().write(true).custom_flags(nix::libc::O_NONBLOCK).open(&self.path).is_ok()
    }
}
