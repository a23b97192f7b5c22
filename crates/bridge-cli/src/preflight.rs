//! What of this process's surroundings stands in the way, told precisely: capabilities, mounts, device files, namespaces.

use std::{
    fs::{self, File},
    io,
    os::linux::fs::MetadataExt,
    path::{Path, PathBuf},
};

use bridge::{BridgeError, PublishError};
use caps::Capability;
use nix::{
    errno::Errno,
    sys::statvfs::{FsFlags, statvfs},
    unistd::{AccessFlags, access, geteuid},
};

use crate::privileges;

/// `PROC_PID_INIT_INO` of the kernel: the inode of the PID namespace that the machine started with.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// `PROC_USER_INIT_INO`, the same for user namespaces.
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// A line for the log when this process does not see the machine's own process ids.
pub(crate) fn pid_namespace_warning() -> Option<String> {
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    (namespace.st_ino() != INITIAL_PID_NAMESPACE).then(|| {
        "not in the host's PID namespace: helper_pid in gpu_meta is not the host's (run with the host's: hostPID: true, or --pid=host)"
            .to_owned()
    })
}

/// A line for the log when those who use GPUs of AMD and Intel are not looked at, since these capabilities are missing.
pub(crate) fn processes_warning(missing: &[Capability]) -> Option<String> {
    let names: Vec<_> = missing.iter().map(Capability::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "without {} the processes of GPUs of AMD and Intel are not looked at: they are absent, and so are utilization and memory of Intel's \
             (to look at other users' processes takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)",
            names.join(" and ")
        )
    })
}

/// What is to be mended so that the maps in `pin_dir` can be had.
pub(crate) fn remedy(error: &BridgeError, pin_dir: &Path) -> Option<String> {
    match error {
        BridgeError::Maps(PublishError::NotPermitted { .. }) => {
            obstacle_to_maps(pin_dir, privileges::may_use_bpf()).or_else(|| obstacle_to_bpf(Path::new("/proc/self")))
        }
        BridgeError::Maps(PublishError::Map { .. } | PublishError::Pin { .. } | PublishError::Directory { .. }) => {
            obstacle_to_maps(pin_dir, privileges::may_use_bpf())
        }
        _ => None,
    }
}

/// What refuses the bpf system call to a process that has the capability, by what `/proc/PID` tells of it.
fn obstacle_to_bpf(process: &Path) -> Option<String> {
    let namespace = fs::metadata(process.join("ns/user")).ok()?;
    if namespace.st_ino() != INITIAL_USER_NAMESPACE {
        return Some(
            "the capability is worth nothing to bpf in a user namespace: run it in the machine's own (no rootless container, hostUsers: true)"
                .to_owned(),
        );
    }
    // 2 is SECCOMP_MODE_FILTER.
    let status = fs::read_to_string(process.join("status")).ok()?;
    let filtered = status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() == "2");
    filtered.then(|| {
        "the capability is there, and a seccomp filter is in force, which seems to refuse bpf (in a container: seccomp=unconfined, or \
         seccompProfile: {type: Unconfined}; in a unit: SystemCallFilter=bpf; older runtimes allow it together with CAP_SYS_ADMIN)"
            .to_owned()
    })
}

fn obstacle_to_maps(pin_dir: &Path, may_use_bpf: bool) -> Option<String> {
    let here = Path::new(".");
    let at = pin_dir.ancestors().map(|path| if path.as_os_str().is_empty() { here } else { path }).find(|path| path.exists())?;
    if statvfs(at).is_ok_and(|file_system| file_system.flags().contains(FsFlags::ST_RDONLY)) {
        return Some(format!(
            "{} is mounted read-only (systemd's ProtectKernelTunables=yes does that whatever ReadWritePaths= says: use ReadOnlyPaths=/sys with \
             ReadWritePaths={}; in a container: mount it writable)",
            at.display(),
            at.display(),
        ));
    }
    if !may_use_bpf {
        return Some("this process has neither CAP_BPF nor CAP_SYS_ADMIN".to_owned());
    }
    match access(at, AccessFlags::W_OK | AccessFlags::X_OK) {
        Err(Errno::EACCES) if at.is_dir() => Some(format!("user {} may not write in {}", geteuid(), at.display())),
        _ => None,
    }
}

/// Where the driver's device files and version are, and should be.
#[derive(Debug)]
pub(crate) struct Driver {
    control: PathBuf,
    version: PathBuf,
    host_control: Option<PathBuf>,
}

impl Driver {
    /// As seen from here, and at `host_path` from the host.
    pub(crate) fn of(host_path: Option<&Path>) -> Self {
        Self {
            control: "/dev/nvidiactl".into(),
            version: "/proc/driver/nvidia/version".into(),
            host_control: host_path.map(|host_path| host_path.join("dev/nvidiactl")),
        }
    }

    /// Why NVML could not open the driver, where that can be seen. Opens the driver's control file, as NVML does.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let control = self.control.display();
        let error = File::options().read(true).write(true).open(&self.control).err()?;
        match (error.kind(), Errno::from_raw(error.raw_os_error()?)) {
            (io::ErrorKind::NotFound, _) => match &self.host_control {
                Some(host_control) if host_control.symlink_metadata().is_ok() => {
                    Some(format!("{} is there and {control} is not: --symlink-nvidia-devs links it", host_control.display()))
                }
                _ if self.version.exists() => Some(format!(
                    "the driver is loaded and {control} is missing: in a container, let NVIDIA's container toolkit provide the devices, or use \
                     --host-path with --symlink-nvidia-devs; elsewhere nvidia-modprobe makes them"
                )),
                _ => None,
            },
            (_, Errno::EPERM) => Some(format!("{control} is there and may not be opened: the container's device rules forbid it")),
            (_, Errno::EACCES) => Some(format!("{control} is there and its mode forbids it to user {}", geteuid())),
            (_, Errno::ENXIO | Errno::ENODEV) => Some(format!("{control} is there and no driver answers behind it")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::{
        mount::{MsFlags, mount, umount},
        sys::stat::{Mode, SFlag, makedev, mknod},
    };
    use tempfile::TempDir;

    use super::*;

    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            Self(TempDir::new().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        #[track_caller]
        fn check(&self, expected: Option<&str>) {
            let driver = Driver {
                control: self.path("dev/nvidiactl"),
                version: self.path("proc/version"),
                host_control: Some(self.path("host/dev/nvidiactl")),
            };
            let obstacle = driver.obstacle();
            match expected {
                Some(part) => assert!(obstacle.as_ref().is_some_and(|text| text.contains(part)), "{obstacle:?} does not say {part:?}"),
                None => assert_eq!(obstacle, None),
            }
        }
    }

    #[test]
    fn a_missing_control_file_is_told_where_there_is_a_driver() {
        let machine = Machine::new();
        machine.check(None);
        fs::write(machine.path("proc/version"), "NVRM version").unwrap();
        machine.check(Some("container toolkit"));
        fs::write(machine.path("host/dev/nvidiactl"), "").unwrap();
        machine.check(Some("--symlink-nvidia-devs links it"));
        fs::write(machine.path("dev/nvidiactl"), "").unwrap();
        machine.check(None);
    }

    #[test]
    fn a_control_file_without_a_driver_is_told() {
        let machine = Machine::new();
        // No driver has this number.
        mknod(&machine.path("dev/nvidiactl"), SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(0, 999_999)).unwrap();
        machine.check(Some("no driver answers"));
    }

    #[test]
    fn a_read_only_mount_is_named_before_anything_else() {
        let directory = TempDir::new().unwrap();
        mount(Some("bpf"), directory.path(), Some("bpf"), MsFlags::MS_RDONLY, None::<&str>).unwrap();
        let told = [true, false].map(|may_use_bpf| obstacle_to_maps(&directory.path().join("sub/dir"), may_use_bpf));
        umount(directory.path()).unwrap();
        for told in told {
            assert!(told.as_ref().is_some_and(|text| text.contains("read-only") && text.contains("ReadWritePaths=")), "{told:?}");
        }
    }

    #[test]
    fn what_refuses_bpf_is_told_by_the_process() {
        let machine = Machine::new();
        let tell = |status: &str| {
            fs::write(machine.path("status"), status).unwrap();
            obstacle_to_bpf(machine.0.path()).unwrap_or_default()
        };
        fs::write(machine.path("ns/user"), "").unwrap();
        assert!(tell("Seccomp:\t2\n").contains("in a user namespace"));
        fs::remove_file(machine.path("ns/user")).unwrap();
        std::os::unix::fs::symlink("/proc/self/ns/user", machine.path("ns/user")).unwrap();
        assert!(tell("Name:\tbridge\nSeccomp:\t2\nSeccomp_filters:\t1\n").contains("a seccomp filter is in force"));
        assert_eq!(tell("Seccomp:\t0\nSeccomp_filters:\t0\n"), "");
    }

    #[test]
    fn want_of_capabilities_is_told_only_where_they_are_wanting() {
        let directory = TempDir::new().unwrap();
        assert_eq!(obstacle_to_maps(directory.path(), true), None);
        assert_eq!(obstacle_to_maps(directory.path(), false).as_deref(), Some("this process has neither CAP_BPF nor CAP_SYS_ADMIN"));
    }
}
