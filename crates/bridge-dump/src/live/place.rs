//! Where a process runs, as its cgroup path tells.

const SHORT_ID: usize = 12;

/// The container, pod or service in the text of `/proc/<pid>/cgroup`; empty when there is none to tell.
pub(super) fn place(cgroups: &str) -> String {
    let paths = || cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let parts = || paths().flat_map(|path| path.split('/'));
    let pod = parts().find_map(pod);
    let container = parts().filter_map(container).next_back();
    match (pod, container) {
        (Some(pod), Some(container)) => format!("pod {pod} {container}"),
        (Some(pod), None) => format!("pod {pod}"),
        (None, Some(container)) => container,
        (None, None) => parts().rfind(|part| part.ends_with(".service")).unwrap_or_default().to_owned(),
    }
}

/// `kubepods-burstable-pod0123abcd_….slice` (systemd) or `pod0123abcd-…` (cgroupfs): the first group of the pod's uid.
fn pod(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = if part.starts_with("kubepods") { name.rsplit_once("-pod")?.1 } else { name.strip_prefix("pod")? };
    let first = uid.split(['-', '_']).next()?;
    (uid.len() >= 32 && is_hex(first)).then(|| first.to_owned())
}

/// `docker-<id>.scope`, `cri-containerd-<id>.scope`, `crio-<id>`, `libpod-<id>.scope` or the bare id: its first twelve digits, as tools show them.
fn container(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    let id = id.rsplit_once(':').map_or(id, |(_, id)| id);
    (id.len() == 64 && is_hex(id)).then(|| id[..SHORT_ID].to_owned())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[track_caller]
    fn check(path: &str, expected: &str) {
        assert_eq!(place(&format!("0::{}\n", path.replace("ID", ID))), expected);
    }

    #[test]
    fn pods_and_containers_are_told_from_the_path() {
        let uid = "9f8e7d6c-1111-2222-3333-444455556666";
        let slice = uid.replace('-', "_");
        check(
            &format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-ID.scope"),
            "pod 9f8e7d6c 0123456789ab",
        );
        check(&format!("/kubepods.slice/kubepods-pod{slice}.slice/crio-ID.scope/container"), "pod 9f8e7d6c 0123456789ab");
        check(&format!("/kubepods/besteffort/pod{uid}/ID"), "pod 9f8e7d6c 0123456789ab");
        check(&format!("/kubepods-besteffort-pod{slice}.slice:cri-containerd:ID"), "pod 9f8e7d6c 0123456789ab");
        check("/system.slice/docker-ID.scope", "0123456789ab");
        check("/docker/ID", "0123456789ab");
        check("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container", "0123456789ab");
    }

    #[test]
    fn a_service_is_told_where_there_is_no_container() {
        check("/system.slice/train.service", "train.service");
        check("/user.slice/user-1000.slice/session-3.scope", "");
        check("/podium/pod-of-whales", "");
        check("/", "");
    }

    #[test]
    fn the_older_hierarchies_have_a_line_each() {
        let text = format!("12:memory:/docker/{ID}\n11:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}\n");
        assert_eq!(place(&text), "0123456789ab");
        assert_eq!(place(""), "");
        assert_eq!(place("nonsense"), "");
    }
}
