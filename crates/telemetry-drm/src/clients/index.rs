//! Who holds DRM clients: all of /proc, looked through once in a while.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, StatxFlags, readlinkat_raw, statx},
    io::Errno,
};

use super::{
    fdinfo::Fdinfo,
    files::{self, Entries, TEXT_BYTES},
    minors::{self, DRM_MAJOR, Minors},
};
use crate::{parse::number, pci::PciAddress};

/// Those that open a card for others, or pass open files on, and are not the ones that use it. As in `/proc/PID/stat`: 15 bytes at most.
const NOT_OWNERS: [&[u8]; 39] = [
    b"systemd",
    b"(systemd)",
    b"(sd-pam)",
    b"init",
    b"systemd-logind",
    b"elogind",
    b"elogind-daemon",
    b"seatd",
    b"dbus-daemon",
    b"dbus-broker",
    b"dbus-broker-lau",
    b"gnome-session-b",
    b"gnome-session-i",
    b"gnome-session-c",
    b"plasma_session",
    b"startplasma-way",
    b"startplasma-x11",
    b"ksmserver",
    b"kdeinit5",
    b"xfce4-session",
    b"lxqt-session",
    b"lxsession",
    b"mate-session",
    b"cinnamon-sessio",
    b"budgie-session-",
    b"gdm3",
    b"gdm",
    b"gdm-session-wor",
    b"gdm-wayland-ses",
    b"gdm-x-session",
    b"sddm",
    b"sddm-helper",
    b"lightdm",
    b"greetd",
    b"login",
    b"sshd",
    b"sshd-session",
    b"xinit",
    b"startx",
];
/// Login shells and what stands between them and their commands.
const SHELLS: [&[u8]; 13] =
    [b"sh", b"bash", b"dash", b"zsh", b"fish", b"ksh", b"tcsh", b"nu", b"su", b"sudo", b"doas", b"screen", b"tmux: server"];

/// A process's open file of a client. Sorted, the one by which a client is best known comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) card: usize,
    pub(super) client_id: u64,
    /// Holds it for others; is not made its owner.
    pub(super) is_passed_over: bool,
    /// Clock ticks from boot to the process's start.
    pub(super) start: u64,
    pub(super) pid: u32,
    pub(super) fd: u32,
}

impl Holder {
    const fn place(&self) -> (u32, u64, u32) {
        (self.pid, self.start, self.fd)
    }
}

/// Why an index does not tell of everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexError {
    /// Another user's process may not be looked at, or is hidden.
    Denied,
    /// For want of memory, of file descriptors, or of /proc itself.
    Failed(Errno),
}

/// All holders of clients, and what it takes to find them.
#[derive(Debug, Default)]
pub(super) struct Index {
    holders: Vec<Holder>,
    before: Vec<Holder>,
    minors: Minors,
    processes: Entries,
    files: Entries,
}

impl Index {
    /// Those found last, sorted.
    pub(super) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The device files as they were seen last.
    pub(super) const fn minors(&self) -> &Minors {
        &self.minors
    }

    /// Looks through /proc. Of a card that `may_read` does not allow, no fdinfo is opened: its files that were known stay, if they are still
    /// open. After an error the holders are what they were.
    pub(super) fn take(
        &mut self,
        root: BorrowedFd<'_>,
        cards: &[PciAddress],
        may_read: &dyn Fn(usize) -> bool,
        text: &mut [u8; TEXT_BYTES],
    ) -> Result<(), IndexError> {
        match minors::open_drm(root) {
            Ok(drm) => self.minors.look(drm, cards, &mut self.files, text),
            Err(error) => log::debug!("cannot open /sys/class/drm: {error}"),
        }
        std::mem::swap(&mut self.holders, &mut self.before);
        self.before.sort_unstable_by_key(Holder::place);
        self.holders.clear();
        let taken = self.look(root, cards, may_read, text);
        if taken.is_err() {
            std::mem::swap(&mut self.holders, &mut self.before);
        }
        self.holders.sort_unstable();
        taken
    }

    fn look(
        &mut self,
        root: BorrowedFd<'_>,
        cards: &[PciAddress],
        may_read: &dyn Fn(usize) -> bool,
        text: &mut [u8; TEXT_BYTES],
    ) -> Result<(), IndexError> {
        let proc = files::open_directory(root, format_args!("proc")).map_err(IndexError::Failed)?;
        if is_hidden(proc.as_fd()) {
            return Err(IndexError::Denied);
        }
        let mut look = Look { holders: &mut self.holders, before: &self.before, minors: &self.minors, cards, may_read, text };
        let files = &mut self.files;
        let looked = self.processes.for_each(proc.as_fd(), |name| match pid_of(name) {
            Some(pid) => match look.process(proc.as_fd(), pid, files) {
                Err(error) if files::is_gone(error) => Ok(()),
                // Some systems shield their first process from everybody; it owns no clients, and all others tell what we may.
                Err(error) if pid == 1 && files::is_denied(error) => Ok(()),
                looked => looked,
            },
            None => Ok(()),
        });
        looked.map_err(|error| if files::is_denied(error) { IndexError::Denied } else { IndexError::Failed(error) })
    }
}

struct Look<'a> {
    holders: &'a mut Vec<Holder>,
    before: &'a [Holder],
    minors: &'a Minors,
    cards: &'a [PciAddress],
    may_read: &'a dyn Fn(usize) -> bool,
    text: &'a mut [u8; TEXT_BYTES],
}

impl Look<'_> {
    fn process(&mut self, proc: BorrowedFd<'_>, pid: u32, entries: &mut Entries) -> Result<(), Errno> {
        // What is opened below it is this very process's, even when the PID has become another's.
        let files = files::open_directory(proc, format_args!("{pid}/fd"))?;
        let mut process = None;
        entries.for_each(files.as_fd(), |name| {
            let Some(fd) = number(name.to_bytes()) else { return Ok(()) };
            let found = match self.card_of(files.as_fd(), name) {
                Ok(Some(card)) => self.holder(files.as_fd(), &mut process, card, pid, fd),
                other => other.map(|_| ()),
            };
            // A file that has been closed meanwhile says nothing of the others.
            match found {
                Err(error) if files::is_gone(error) => Ok(()),
                found => found,
            }
        })
    }

    /// The card whose device file is open there. The link is followed by a stat alone, which opens nothing and asks no server.
    fn card_of(&self, files: BorrowedFd<'_>, name: &CStr) -> Result<Option<usize>, Errno> {
        let mut target = [0; 256];
        let length = readlinkat_raw(files, name, &mut target[..])?;
        let Some(named) = minors::minor_of(&target[..length]) else { return Ok(None) };
        // In a container, the name may be another device's; where there is no such device, the name is all there is.
        let minor = match statx(files, name, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) {
            Ok(stat) if FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::CharacterDevice => {
                if stat.stx_rdev_major != DRM_MAJOR {
                    return Ok(None);
                }
                stat.stx_rdev_minor
            }
            _ => named,
        };
        Ok(self.minors.card(minor))
    }

    fn holder(&mut self, files: BorrowedFd<'_>, process: &mut Option<Stat>, card: usize, pid: u32, fd: u32) -> Result<(), Errno> {
        let stat = match *process {
            Some(stat) => stat,
            None => {
                let stat = read_stat(files, format_args!("../stat"), pid, self.text)?;
                *process.insert(stat)
            }
        };
        if !(self.may_read)(card) {
            if let Ok(at) = self.before.binary_search_by_key(&(pid, stat.start, fd), Holder::place) {
                self.holders.push(self.before[at]);
            }
            return Ok(());
        }
        let text = files::read_file(files, format_args!("../fdinfo/{fd}"), self.text)?;
        if let Some((pdev, client_id)) = Fdinfo::identity(text)
            && let Some(card) = card_of_client(pdev, card, self.cards)
        {
            self.holders.push(Holder { card, client_id, is_passed_over: stat.is_passed_over, start: stat.start, pid, fd });
        }
        Ok(())
    }
}

/// The card that a client itself names, else that of its device file.
pub(super) fn card_of_client(pdev: Option<PciAddress>, card: usize, cards: &[PciAddress]) -> Option<usize> {
    match pdev {
        Some(pdev) => cards.iter().position(|card| *card == pdev),
        None => Some(card),
    }
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Clock ticks from boot to its start.
    pub(super) start: u64,
    is_passed_over: bool,
}

pub(super) fn read_stat(directory: impl AsFd, path: std::fmt::Arguments<'_>, pid: u32, text: &mut [u8; TEXT_BYTES]) -> Result<Stat, Errno> {
    parse_stat(files::read_file(directory, path, text)?, pid).ok_or(Errno::NOENT)
}

/// The name is in brackets and may contain some; the start is the 20th field after it.
fn parse_stat(stat: &[u8], pid: u32) -> Option<Stat> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let name = stat.get(open + 1..close)?;
    let start = stat[close + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).nth(19)?;
    let is_passed_over = pid == 1 || NOT_OWNERS.contains(&name) || SHELLS.contains(&name.strip_prefix(b"-").unwrap_or(name));
    Some(Stat { start: number(start)?, is_passed_over })
}

fn pid_of(name: &CStr) -> Option<u32> {
    number(name.to_bytes()).filter(|&pid| pid > 0)
}

/// With hidepid, the processes of others are not even listed. A /proc in which one finds oneself and nobody is first is such a one.
fn is_hidden(proc: BorrowedFd<'_>) -> bool {
    let is_there = |name| statx(proc, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
    is_there("self").is_ok() && is_there("1").is_err_and(files::is_gone)
}

/// The kernel's own number for it, the same on every machine (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &[u8] = b"pid:[4026531836]";

/// Whether the processes in /proc are other than the machine's. Where it does not say, it is taken for the machine's.
pub(super) fn is_foreign_namespace(root: &OwnedFd, text: &mut [u8; TEXT_BYTES]) -> bool {
    let mut target = [0; 64];
    let is_initial =
        readlinkat_raw(root, "proc/self/ns/pid", &mut target[..]).map_or(true, |length| &target[..length] == INITIAL_PID_NAMESPACE);
    // The kernel's threads are seen in the machine's own namespace alone: it is the host's /proc, mounted here.
    !is_initial && files::read_file(root, format_args!("proc/2/comm"), text).map_or(true, |name| name.trim_ascii() != b"kthreadd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stat: &str, pid: u32, expected: Option<(u64, bool)>) {
        assert_eq!(parse_stat(stat.as_bytes(), pid).map(|stat| (stat.start, stat.is_passed_over)), expected);
    }

    const REST: &str = "S 1 7 7 0 -1 4194560 8 0 0 0 0 0 0 0 20 0 1 0 4711 18446744073709551615 0";

    #[test]
    fn the_start_of_a_process_is_found_whatever_its_name() {
        check(&format!("7 (glxgears) {REST}"), 7, Some((4711, false)));
        check(&format!("7 (a) S (b c) 1 2 3) {REST}"), 7, Some((4711, false)));
        check("7 (x) S 1 7", 7, None);
        check(") (", 7, None);
        check("", 7, None);
    }

    #[test]
    fn pid_1_session_managers_and_login_shells_are_passed_over() {
        check(&format!("1 (whatever) {REST}"), 1, Some((4711, true)));
        for name in ["systemd", "systemd-logind", "gnome-session-b", "-bash", "bash", "tmux: server"] {
            check(&format!("7 ({name}) {REST}"), 7, Some((4711, true)));
        }
        for name in ["Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "sway", "python3", "systemd-render"] {
            check(&format!("7 ({name}) {REST}"), 7, Some((4711, false)));
        }
    }
}
