//! Who may see whom, and this machine's own /proc.

use std::{
    env,
    fs::{self, Permissions},
    mem,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    sync::Mutex,
};

use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::unistd::geteuid;
use rustix::fs::CWD;
use telemetry::{Now, Process};

use super::{
    SECOND,
    machine::{AMD, INTEL, MIB, Machine, amdgpu},
};
use crate::clients::{
    Clients,
    files::{self, TEXT_BYTES},
};

fn with_client() -> Machine {
    let machine = Machine::new(&[AMD]);
    machine.proc.process(40, "game", 1000).open(5, "dev/dri/renderD128", amdgpu(7).resident("vram", 1024));
    machine
}

#[track_caller]
fn check(machine: &mut Machine, is_visible: bool) {
    for _ in 0..2 {
        machine.refresh(0);
        machine.pass(5.0 * SECOND);
    }
    assert_eq!(machine.clients.sees_everybody(), is_visible);
    assert_eq!(machine.clients.busy_pct(0).is_some() || !machine.processes(0).is_empty(), is_visible);
}

#[test]
fn in_another_pid_namespace_processes_and_what_is_summed_over_them_are_absent() {
    let mut machine = with_client();
    machine.proc.put_reader_in_another_namespace();
    machine.proc.process(1, "init", 1);
    check(&mut machine, false);
}

#[test]
fn the_hosts_proc_is_told_by_its_kernel_threads_wherever_the_reader_is() {
    let mut machine = with_client();
    machine.proc.put_reader_in_another_namespace();
    machine.proc.process(1, "init", 1);
    machine.proc.process(2, "kthreadd", 1);
    check(&mut machine, true);
}

#[test]
fn where_others_are_hidden_not_everybody_is_seen() {
    let mut machine = with_client();
    machine.proc.put_reader_in_the_first_namespace();
    check(&mut machine, false);
    machine.proc.process(1, "init", 1);
    check(&mut machine, true);
}

#[test]
fn what_was_seen_before_is_not_published_once_not_all_is_seen() {
    let mut machine = with_client();
    machine.refresh(0);
    machine.check(0, &[(40, Some(MIB), None)]);
    machine.proc.put_reader_in_another_namespace();
    machine.pass(5.0 * SECOND);
    machine.refresh(0);
    machine.check(0, &[]);
    assert_eq!(machine.clients.busy_pct(0), None);
}

/// Looks at this machine twice.
fn look_at_this_machine() -> (Clients, Vec<Process>) {
    let mut clients = Clients::new(Path::new("/"), &[INTEL.key()]);
    for second in [10, 20] {
        let now = Now { boottime_ns: second * 1_000_000_000, clock_offset_ns: 0 };
        clients.look(now, &|_| true);
        clients.refresh(0, now, &|_| true);
    }
    let mut processes = Vec::new();
    clients.processes_of(0, &mut processes);
    (clients, processes)
}

#[test]
fn this_machines_own_proc_is_read() {
    assert!(geteuid().is_root(), "needs root: not everybody can be seen by others");
    let (clients, processes) = look_at_this_machine();
    assert!(clients.sees_everybody());
    let has_card = fs::read_dir("/sys/class/drm").is_ok_and(|cards| {
        cards.flatten().any(|card| fs::read_to_string(card.path().join("device/uevent")).is_ok_and(|uevent| uevent.contains(INTEL.slot)))
    });
    if !has_card {
        assert_eq!((processes, clients.busy_pct(0)), (vec![], Some(0)));
    }
}

/// What reading clients through files that stay open rests on.
#[test]
fn the_kernels_fdinfo_that_is_open_reads_as_gone_when_its_process_ends() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let mut text = Box::new([0; TEXT_BYTES]);
    let fdinfo = files::open_file(CWD, format_args!("/proc/{}/fdinfo/1", child.id())).unwrap();
    assert!(files::read_lines(&fdinfo, &mut text).unwrap().starts_with(b"pos:"));
    child.kill().unwrap();
    child.wait().unwrap();
    let error = files::read_lines(&fdinfo, &mut text).unwrap_err();
    assert!(files::is_gone(error), "{error}");
}

const AS_NOBODY: &str = "TELEMETRY_DRM_TEST_AS_NOBODY";

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Warnings;

impl Log for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            WARNINGS.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// What nobody may see of a machine where the files of `hidden` are closed to all but root.
fn is_visible_without(hidden: u32) -> bool {
    let mut machine = with_client();
    machine.proc.process(1, "init", 1);
    let files = machine.tree.root().join(format!("proc/{hidden}/fd"));
    let permit = |mode| fs::set_permissions(&files, Permissions::from_mode(mode)).unwrap();
    permit(0o000);
    machine.refresh(0);
    permit(0o700);
    machine.clients.sees_everybody()
}

/// In a process of its own, for the user that may see nobody else.
#[test]
fn nobody_sees_no_processes_and_is_told_once_what_it_takes() {
    const NOBODY: u32 = 65_534;

    if env::var_os(AS_NOBODY).is_some() {
        assert_eq!(geteuid().as_raw(), NOBODY);
        log::set_logger(&Warnings).unwrap();
        log::set_max_level(LevelFilter::Info);
        let (clients, processes) = look_at_this_machine();
        assert!(!clients.sees_everybody());
        assert_eq!((processes, clients.busy_pct(0)), (vec![], None));
        let warnings = mem::take(&mut *WARNINGS.lock().unwrap());
        assert!(is_visible_without(1), "the first process may be shielded from everybody");
        assert!(!is_visible_without(40));
        assert!(matches!(&warnings[..], [one] if one.contains("CAP_SYS_PTRACE") && one.contains("CAP_DAC_READ_SEARCH")), "{warnings:?}");
        return;
    }
    assert!(geteuid().is_root(), "needs root, to become somebody else");
    let name = std::thread::current().name().unwrap().to_owned();
    let child = Command::new("/proc/self/exe")
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(AS_NOBODY, "1")
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&child.stderr));
}
