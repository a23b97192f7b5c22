//! What the publisher may and must be allowed to do, and what a kill leaves.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gpu_types::maps;
use gpu_types::{GpuMeta, GpuPidMetricsAggregated};
use tempfile::TempDir;
use test_support::Bpffs;

use crate::world::{all, check_published, example, get, id, ids, open, pinned, round};

const NOBODY: &str = "65534";

/// A folder that other users can come into, too.
fn open_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The example as another user, with `capabilities` (as setpriv writes them) and no others, in a directory that anyone may write.
fn as_nobody(program: &Path, bpffs: &Bpffs, capabilities: &str) -> Command {
    fs::set_permissions(bpffs.path(), Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]);
    command.arg(format!("--inh-caps={capabilities}")).arg(format!("--ambient-caps={capabilities}"));
    command.arg(program).arg(bpffs.path().join("a/b"));
    command
}

#[test]
fn without_cap_bpf_the_error_names_it_and_nothing_is_left() {
    let bpffs = Bpffs::mount();
    let folder = open_folder();
    let output = as_nobody(&example(folder.path()), &bpffs, "-all").stdin(Stdio::null()).output().expect("setpriv is needed");
    let text = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "publish: cannot create gpu_meta at {}/a/b/gpu_meta: not permitted (run as root, or with CAP_BPF and write access to the directory; \
         where CAP_BPF is not known it is CAP_SYS_ADMIN)",
        bpffs.path().display()
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(!output.status.success());
    assert!(bpffs.pins().is_empty());
}

#[test]
fn cap_bpf_alone_is_enough() {
    let bpffs = Bpffs::mount();
    let folder = open_folder();
    let mut child = Running::start(&mut as_nobody(&example(folder.path()), &bpffs, "-all,+bpf"));
    let meta: GpuMeta = get(&pinned(&bpffs.path().join("a/b"), maps::GPU_META), 0u32).unwrap();
    assert_eq!(meta.helper_pid, child.0.id());
    drop(child.0.stdin.take());
    assert!(child.0.wait().unwrap().success());
    assert!(bpffs.pins().is_empty(), "the directories that it created are gone as well");
}

/// Killed in the middle of rounds in which a process goes and another comes.
#[test]
fn after_a_kill_at_any_point_the_successor_shows_only_its_own() {
    let bpffs = Bpffs::mount();
    let folder = open_folder();
    let program = example(folder.path());
    let mut first_ids = None;
    for attempt in 0..30u64 {
        let mut child = Running::start(Command::new(&program).arg(bpffs.path()).arg("50"));
        let now = ids(bpffs.path());
        assert_eq!(*first_ids.get_or_insert(now.clone()), now, "the maps stay the same");
        // Anywhere between two rounds of about a millisecond.
        std::thread::sleep(std::time::Duration::from_micros(attempt * 137 % 2000));
        child.0.kill().unwrap();
        child.0.wait().unwrap();

        let mut successor = open(bpffs.path());
        let stale: GpuMeta = get(&pinned(bpffs.path(), maps::GPU_META), 0u32).unwrap();
        assert_eq!(stale.helper_pid, child.0.id(), "untouched until there is a whole round");
        let left = all::<u32, GpuPidMetricsAggregated>(&pinned(bpffs.path(), maps::GPU_PER_PID)).len();
        assert!((50..=52).contains(&left), "{left} processes");
        let records = round(attempt + 1, [1, 2, 3]);
        successor.publish(&records).unwrap();
        check_published(bpffs.path(), &records);
    }
    assert_eq!(first_ids.unwrap()[2], id(&pinned(bpffs.path(), maps::GPU_META)));
}

/// The example after its first round; killed when the test fails.
struct Running(Child);

impl Running {
    #[track_caller]
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let output = child.wait_with_output().unwrap();
            panic!("{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
