//! Simulated processes: what `/proc/PID` shows of them and of their DRM clients.

use std::{
    fmt::{self, Write as _},
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use crate::Fifo;

/// The text of a client's fdinfo, key by key. Its head is what every open file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FdinfoText(String);

impl FdinfoText {
    /// Of a client of `driver` on the device at `pdev`.
    pub fn new(driver: &str, pdev: &str, client_id: u64) -> Self {
        Self::file().line("drm-driver", driver).line("drm-pdev", pdev).line("drm-client-id", client_id)
    }

    /// Of an open file that is no client.
    pub fn file() -> Self {
        Self("pos:\t0\nflags:\t02100002\nmnt_id:\t30\nino:\t437\n".to_owned())
    }

    /// Any line.
    #[must_use]
    pub fn line(mut self, key: &str, value: impl fmt::Display) -> Self {
        writeln!(self.0, "{key}:\t{value}").expect("memory");
        self
    }

    /// Time that an engine has worked.
    #[must_use]
    pub fn engine(self, name: &str, busy_ns: u64) -> Self {
        self.line(&format!("drm-engine-{name}"), format_args!("{busy_ns} ns"))
    }

    /// The same in cycles, as xe tells it.
    #[must_use]
    pub fn cycles(self, name: &str, cycles: u64, total: u64) -> Self {
        self.line(&format!("drm-cycles-{name}"), cycles).line(&format!("drm-total-cycles-{name}"), total)
    }

    /// How many engines of a kind there are.
    #[must_use]
    pub fn capacity(self, name: &str, engines: u32) -> Self {
        self.line(&format!("drm-engine-capacity-{name}"), engines)
    }

    /// Memory that is resident in a region.
    #[must_use]
    pub fn resident(self, region: &str, kib: u64) -> Self {
        self.line(&format!("drm-resident-{region}"), format_args!("{kib} KiB"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<FdinfoText> for String {
    fn from(text: FdinfoText) -> Self {
        text.0
    }
}

/// The `proc/` of a tree.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Proc {
    /// Below what stands for `/`; made if need be.
    pub fn new(root: &Path) -> Self {
        let proc = Self { root: root.to_owned() };
        fs::create_dir_all(proc.directory()).expect("a directory in one's own");
        proc
    }

    fn directory(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// A process that started so many clock ticks after boot. Its name is cut to 15 bytes, as the kernel does.
    pub fn process(&self, pid: u32, name: &str, start: u64) -> Process {
        let directory = self.directory().join(pid.to_string());
        for part in ["fd", "fdinfo"] {
            fs::create_dir_all(directory.join(part)).expect("a directory in one's own");
        }
        let name = &name[..name.len().min(15)];
        let stat = format!("{pid} ({name}) S 1 {pid} {pid} 0 -1 4194560 8 0 0 0 0 0 0 0 20 0 1 0 {start} 18446744073709551615 0 0\n");
        for (file, text) in
            [("stat", stat), ("comm", format!("{name}\n")), ("status", format!("Name:\t{name}\nTgid:\t{pid}\nPid:\t{pid}\n"))]
        {
            fs::write(directory.join(file), text).expect("a file in one's own directory");
        }
        Process { root: self.root.clone(), directory, clients: Mutex::default() }
    }

    /// Makes the reader one that is not in the machine's PID namespace.
    pub fn put_reader_in_another_namespace(&self) {
        self.make_self("pid:[4026532177]");
    }

    /// Makes the reader one that is in the machine's PID namespace, and seen there.
    pub fn put_reader_in_the_first_namespace(&self) {
        self.make_self("pid:[4026531836]");
    }

    fn make_self(&self, namespace: &str) {
        let ns = self.directory().join("self/ns");
        fs::create_dir_all(&ns).expect("a directory in one's own");
        symlink(namespace, ns.join("pid")).expect("a link in one's own directory");
    }
}

#[derive(Debug)]
struct ClientState {
    text: String,
    shown: Vec<PathBuf>,
}

/// An open device file: what a fork or a message over a socket shares. What is said of it is seen by all its holders.
#[derive(Clone, Debug)]
pub struct Client {
    state: Arc<Mutex<ClientState>>,
}

impl Client {
    /// One that nobody holds yet.
    pub fn new(text: impl Into<String>) -> Self {
        Self { state: Arc::new(Mutex::new(ClientState { text: text.into(), shown: Vec::new() })) }
    }

    /// Changes what fdinfo says of it.
    pub fn set(&self, text: impl Into<String>) {
        let mut state = self.state();
        state.text = text.into();
        state.shown.iter().for_each(|path| rewrite(path, &state.text));
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().expect("no holder has panicked")
    }
}

/// A simulated process.
#[derive(Debug)]
pub struct Process {
    root: PathBuf,
    directory: PathBuf,
    clients: Mutex<Vec<(u32, Client)>>,
}

impl Process {
    /// Opens `device`, as in `dev/dri/renderD128`, as a client of its own.
    pub fn open(&self, fd: u32, device: &str, text: impl Into<String>) -> Client {
        let client = Client::new(text);
        self.hold(fd, device, &client);
        client
    }

    /// Holds a client that another may hold too.
    pub fn hold(&self, fd: u32, device: &str, client: &Client) {
        self.link(fd, &self.root.join(device));
        let path = self.fdinfo(fd);
        let mut state = client.state();
        fs::write(&path, &state.text).expect("a file in one's own directory");
        state.shown.push(path);
        self.clients().push((fd, client.clone()));
    }

    /// Opens `device` as a client whose fdinfo never ends to be opened, as that of a driver that hangs.
    pub fn open_hanging(&self, fd: u32, device: &str) -> Fifo {
        self.link(fd, &self.root.join(device));
        Fifo::make(self.fdinfo(fd))
    }

    /// Holds an open file of another kind, as in `socket:[4711]`.
    pub fn hold_other(&self, fd: u32, target: &str) {
        self.link(fd, Path::new(target));
        fs::write(self.fdinfo(fd), FdinfoText::file().as_str()).expect("a file in one's own directory");
    }

    fn link(&self, fd: u32, target: &Path) {
        symlink(target, self.directory.join("fd").join(fd.to_string())).expect("a free file descriptor");
    }

    fn clients(&self) -> MutexGuard<'_, Vec<(u32, Client)>> {
        self.clients.lock().expect("nobody has panicked with it")
    }

    fn fdinfo(&self, fd: u32) -> PathBuf {
        self.directory.join("fdinfo").join(fd.to_string())
    }

    /// Closes a file.
    pub fn close(&self, fd: u32) {
        self.forget(fd);
        fs::remove_file(self.directory.join("fd").join(fd.to_string())).expect("an open file descriptor");
        fs::remove_file(self.fdinfo(fd)).expect("an open file descriptor");
    }

    /// What has the file open reads nothing any more, as with the kernel's.
    fn forget(&self, fd: u32) {
        let path = self.fdinfo(fd);
        self.clients().retain(|(of, client)| {
            if *of == fd {
                client.state().shown.retain(|shown| *shown != path);
                File::options().write(true).truncate(true).open(&path).expect("an open file descriptor");
            }
            *of != fd
        });
    }

    /// Ends.
    pub fn exit(self) {
        let fds: Vec<_> = self.clients().iter().map(|&(fd, _)| fd).collect();
        fds.into_iter().for_each(|fd| self.forget(fd));
        fs::remove_dir_all(&self.directory).expect("a directory in one's own");
    }
}

/// In place, so that who has it open reads the new text, and without a moment in which there is none.
fn rewrite(path: &Path, text: &str) {
    let file = match File::options().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        file => file.expect("a file in one's own directory"),
    };
    let before = file.metadata().expect("an open file").len() as usize;
    let padded = format!("{text}{:\n<1$}", "", before.saturating_sub(text.len()));
    file.write_all_at(padded.as_bytes(), 0).expect("a file in one's own directory");
    file.set_len(text.len() as u64).expect("a file in one's own directory");
}

/// Adds so many processes, from `first_pid` on, with so many open files each that are no clients: what a machine has besides GPU work.
pub fn crowd(proc: &Proc, first_pid: u32, processes: u32, files: u32) {
    for pid in first_pid..first_pid + processes {
        let process = proc.process(pid, "worker", u64::from(pid));
        for fd in 0..files {
            process.hold_other(fd, &format!("socket:[{}]", pid * 16 + fd));
        }
    }
}
