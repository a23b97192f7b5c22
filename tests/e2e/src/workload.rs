//! Processes that tests give GPU memory to.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::binary;

/// A process with a name of its own that makes system calls when it is told to. Killed at the end.
#[derive(Debug)]
pub struct Workload {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Workload {
    /// Starts one that calls itself `name` (at most 15 bytes) and waits until it is ready.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str) -> Self {
        assert_in_initial_pid_namespace();
        let program = binary("gpu-workload");
        let mut child = Command::new(&program)
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let orders = child.stdin.take().expect("stdin is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let mut workload = Self { child, orders, answers };
        // Answered only after it has taken its name.
        workload.obey("sleep 0");
        workload
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it make `count` system calls `getppid`, and waits until they are made.
    pub fn getppid(&mut self, count: u32) {
        self.obey(&format!("getppid {count}"));
    }

    /// Has it keep a CPU busy, and waits until that is over.
    pub fn burn(&mut self, milliseconds: u32) {
        self.obey(&format!("burn {milliseconds}"));
    }

    /// Has it sleep, and waits until it is awake again.
    pub fn sleep(&mut self, milliseconds: u32) {
        self.obey(&format!("sleep {milliseconds}"));
    }

    /// Ends it and waits until it is gone.
    pub fn end(self) {
        drop(self);
    }

    fn obey(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the workload listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the workload answers");
        assert_eq!(answer, "done\n", "the workload ended at {order:?}");
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // Both fail only for a process that is already gone.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// In any other namespace a process has another id than the one that the kernel's programs and GPU drivers know it by.
fn assert_in_initial_pid_namespace() {
    /// `PROC_PID_INIT_INO` of the kernel.
    const INITIAL: &str = "pid:[4026531836]";
    let namespace = fs::read_link("/proc/self/ns/pid").expect("/proc is mounted");
    assert_eq!(namespace.as_os_str(), INITIAL, "this test needs the initial PID namespace (of a container: --pid=host)");
}
