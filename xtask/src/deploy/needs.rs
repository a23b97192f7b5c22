//! What building and testing for delivery need of a machine, beyond what the rest of the workspace needs.

use std::path::Path;

use crate::needs::Need;
use crate::shell::{command, succeeds};

/// For binaries, image and packages.
pub(super) const BUILDING: &[Need] = &[
    Need {
        what: "autoconf, automake, libtool, gettext, flex, bison and gawk",
        why: "build libelf into the release binaries",
        apt: &[&["autoconf"], &["automake"], &["libtool"], &["autopoint"], &["gettext"], &["flex"], &["bison"], &["gawk"]],
        dnf: &["autoconf", "automake", "libtool", "gettext-devel", "flex", "bison", "gawk"],
        present: || ["autoreconf", "autopoint", "flex", "bison", "gawk", "libtoolize"].iter().all(runs),
    },
    Need { what: "dpkg-deb", why: "makes .deb packages", apt: &[&["dpkg"]], dnf: &["dpkg"], present: || runs(&"dpkg-deb") },
    Need { what: "rpmbuild", why: "makes .rpm packages", apt: &[&["rpm"]], dnf: &["rpm-build"], present: || runs(&"rpmbuild") },
];

/// For the tests that need nothing built for delivery.
pub(super) const JUDGING: &[Need] = &[Need {
    what: "systemd-analyze",
    why: "judges the systemd unit",
    apt: &[&["systemd"]],
    dnf: &["systemd"],
    present: || runs(&"systemd-analyze"),
}];

/// For the others.
pub(super) const TESTING: &[Need] = &[
    Need {
        what: "buildah, podman and runc",
        why: "build and run the container image",
        apt: &[&["buildah"], &["podman"], &["runc"]],
        dnf: &["buildah", "podman", "runc"],
        present: || ["buildah", "podman", "runc"].iter().all(runs),
    },
    Need {
        what: "docker, with its daemon",
        why: "builds and runs the image too",
        apt: &[&["docker.io"]],
        dnf: &["moby-engine"],
        present: || ["docker", "dockerd"].iter().all(runs),
    },
    Need {
        what: "systemd-nspawn, nsenter and cpio",
        why: "boot a clean system for the service; look into an .rpm",
        apt: &[&["systemd-container"], &["util-linux"], &["cpio"]],
        dnf: &["systemd-container", "util-linux", "cpio"],
        present: || ["systemd-nspawn", "nsenter", "cpio"].iter().all(runs),
    },
    Need {
        what: "debootstrap",
        why: "makes a clean system to install the .deb in",
        apt: &[&["debootstrap"]],
        dnf: &["debootstrap"],
        present: || runs(&"debootstrap"),
    },
    Need {
        what: "qemu for programs of other processors, and a C library of theirs",
        why: "starts the aarch64 binaries",
        apt: &[&["qemu-user-static", "qemu-user"], &["libc6-arm64-cross"]],
        dnf: &["qemu-user-static"],
        present: || runs(&"qemu-aarch64-static") && Path::new("/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1").exists(),
    },
    Need {
        what: "lintian and rpmlint",
        why: "judge the packages",
        apt: &[&["lintian"], &["rpmlint"]],
        dnf: &["lintian", "rpmlint"],
        present: || ["lintian", "rpmlint"].iter().all(runs),
    },
    Need { what: "man", why: "judges the man pages", apt: &[&["man-db"]], dnf: &["man-db"], present: || runs(&"man") },
];

fn runs(program: &&str) -> bool {
    succeeds(command(program).arg("--version"))
}
