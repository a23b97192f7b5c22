//! What building and testing need of a machine, and how to see whether it is there.
//!
//! Tools and headers are tried, not looked up in a package manager: what works is there, however it came.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use crate::shell::{command, succeeds};

/// Something that must be installed.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
    /// Packages of Debian and Ubuntu; where one has alternatives, the first that the distribution has.
    pub(crate) apt: &'static [&'static [&'static str]],
    /// Packages of Fedora and RHEL.
    pub(crate) dnf: &'static [&'static str],
    pub(crate) present: fn() -> bool,
}

/// What building and the tests of `make test` need.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        what: "a C compiler with the C library's and the kernel's headers",
        why: "builds libbpf, links everything",
        apt: &[&["gcc"], &["libc6-dev"]],
        dnf: &["gcc", "glibc-devel", "kernel-headers"],
        present: || compiles("cc", &[], "#include <stdio.h>\n#include <linux/types.h>\n"),
    },
    Need { what: "make", why: "builds libbpf", apt: &[&["make"]], dnf: &["make"], present: || succeeds(command("make").arg("--version")) },
    Need {
        what: "pkg-config",
        why: "libbpf's build asks it for libelf and zlib",
        apt: &[&["pkg-config"]],
        dnf: &["pkgconf-pkg-config"],
        present: || succeeds(command("pkg-config").arg("--version")),
    },
    Need {
        what: "libelf's headers",
        why: "libbpf reads BPF objects with it",
        apt: &[&["libelf-dev"]],
        dnf: &["elfutils-libelf-devel"],
        present: || compiles("cc", &[], "#include <gelf.h>\n#include <libelf.h>\n"),
    },
    Need {
        what: "zlib's headers",
        why: "libelf's companion in libbpf",
        apt: &[&["zlib1g-dev"]],
        dnf: &["zlib-devel"],
        present: || compiles("cc", &[], "#include <zlib.h>\n"),
    },
    Need {
        what: "clang with the BPF target",
        why: "compiles the BPF programs",
        apt: &[&["clang"]],
        dnf: &["clang"],
        present: || compiles("clang", &["-target", "bpf", "-O2", "-c", "-o", "/dev/null"], "int x;\n"),
    },
    Need {
        what: "libclang",
        why: "reads include/gadget for `cargo xtask codegen`",
        apt: &[&["libclang1", "libclang-dev"]],
        dnf: &["clang-libs"],
        present: libclang,
    },
    Need {
        what: "bpftool",
        why: "an independent reader of the maps, in tests",
        apt: &[&["bpftool", "linux-tools-generic"]],
        dnf: &["bpftool"],
        present: || succeeds(command("bpftool").arg("version")),
    },
    Need {
        what: "valgrind",
        why: "watches how process lists are read from NVML, and counts instructions",
        apt: &[&["valgrind"]],
        dnf: &["valgrind"],
        present: || succeeds(command("valgrind").arg("--version")),
    },
    Need {
        what: "mkfs.ext4 and fsfreeze",
        why: "a file system that hangs, for tests of a driver that does",
        apt: &[&["e2fsprogs"], &["util-linux"]],
        dnf: &["e2fsprogs", "util-linux"],
        present: || succeeds(command("mkfs.ext4").arg("-V")) && succeeds(command("fsfreeze").arg("--version")),
    },
    Need {
        what: "unshare, setpriv and setsid",
        why: "namespaces, capabilities and terminals of the tests' own",
        apt: &[&["util-linux"]],
        dnf: &["util-linux"],
        present: || ["unshare", "setpriv", "setsid"].iter().all(|tool| succeeds(command(tool).arg("--version"))),
    },
    Need {
        what: "nm",
        why: "shows what the simulated NVML exports",
        apt: &[&["binutils"]],
        dnf: &["binutils"],
        present: || succeeds(command("nm").arg("--version")),
    },
    Need {
        what: "git",
        why: "tells `make check` which files are the project's",
        apt: &[&["git"]],
        dnf: &["git"],
        present: || succeeds(command("git").arg("--version")),
    },
    Need {
        what: "python3 with venv and pip",
        why: "NVIDIA's header and NVIDIA's own client, for tests of the simulated NVML; tools of `make check`",
        apt: &[&["python3"], &["python3-venv"], &["python3-pip"]],
        dnf: &["python3", "python3-pip"],
        present: || succeeds(command("python3").args(["-S", "-c", "import ensurepip, venv"])),
    },
];

/// Those of the needs that this machine does not meet, all looked at side by side.
pub(crate) fn missing(needs: &'static [Need]) -> Vec<&'static Need> {
    thread::scope(|scope| {
        let probes: Vec<_> = needs.iter().map(|need| (need, scope.spawn(need.present))).collect();
        probes.into_iter().filter_map(|(need, probe)| (!probe.join().unwrap_or(false)).then_some(need)).collect()
    })
}

fn compiles(compiler: &str, arguments: &[&str], source: &str) -> bool {
    let mut compiler = command(compiler);
    if arguments.is_empty() {
        compiler.arg("-fsyntax-only");
    }
    compiler.args(arguments).args(["-x", "c", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = compiler.spawn() else {
        return false;
    };
    let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(source.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| status.success()) && written
}

/// bindgen loads libclang at run time, from the folders that clang-sys searches.
fn libclang() -> bool {
    let is_libclang = |name: &str| name.starts_with("libclang.so") || (name.starts_with("libclang-") && name.contains(".so"));
    let mut folders: Vec<PathBuf> = env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    folders
        .extend(["/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"].map(PathBuf::from));
    for parent in ["/usr/lib", "/usr/lib64"] {
        let llvm = fs::read_dir(parent).into_iter().flatten().flatten();
        folders.extend(llvm.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm")).map(|entry| entry.path().join("lib")));
    }
    folders.iter().any(|folder| {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.into_iter().any(|file| is_libclang(&file.file_name().to_string_lossy()))
    })
}
