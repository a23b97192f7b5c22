//! Opening NVML.

use std::{fs, path::Path};

use log::warn;
use telemetry::{Identity, OpenError, OpenSource, SourceInfo, TelemetrySource};

use crate::{
    LibraryChoice,
    device::{LateDevice, NvmlDevice, Turnstiles},
    library::{self, Candidate},
    sys::{Code, Gpu, Library, LoadError},
};

const NVIDIA: u32 = 0x10de;
/// The kernel's own number for it, the same on every machine (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// How to open NVML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmlOptions {
    /// Which library.
    pub library: LibraryChoice,
}

/// NVIDIA's GPUs, through NVML.
///
/// The library is loaded by [`open`](TelemetrySource::open) and let go of with the last device. What a process has once loaded may stay in it
/// all the same (glibc keeps a library whose thread-local storage a living thread has used), so a driver that may be replaced is best read
/// by a process of its own.
///
/// A device whose handle cannot be had is handed out as lost and without a name; it is looked for until it has one.
#[derive(Debug, Default)]
pub struct NvmlSource {
    options: NvmlOptions,
    warned_of_namespace: bool,
}

impl NvmlSource {
    /// A source that looks for its library as `options` say, at every opening anew.
    pub const fn new(options: NvmlOptions) -> Self {
        Self { options, warned_of_namespace: false }
    }

    /// Loads and initialises the first library that can be.
    fn load(&self) -> Result<(Library, String), OpenError> {
        let candidates = self.options.library.candidates();
        let mut failures = Vec::new();
        for candidate in candidates.found {
            match Library::load(candidate.as_os_str()) {
                Ok(library) => return Ok((library, loaded_from(&candidate))),
                // It is NVML: another copy would say the same.
                Err(LoadError::Init(code)) => return Err(init_error(code, &loaded_from(&candidate))),
                // That the loader does not know the name is the normal case that the other places are for.
                Err(LoadError::NotLoadable(_)) if matches!(candidate, Candidate::Name(_)) => {}
                Err(LoadError::NotLoadable(text)) => failures.push(text),
                Err(LoadError::NotNvml(text)) => failures.push(format!("{} is not NVML: {text}", candidate.as_os_str().display())),
            }
        }
        if failures.is_empty() {
            Err(OpenError::NotAvailable(format!(
                "NVIDIA's NVML library was not found: {} (is the NVIDIA driver installed, and in a container: mounted?)",
                candidates.looked_at
            )))
        } else {
            Err(OpenError::Failed(format!(
                "NVIDIA's NVML library cannot be loaded: {} (it takes the driver's own {} for {})",
                failures.join("; "),
                library::FILE_NAME,
                std::env::consts::ARCH,
            )))
        }
    }
}

impl TelemetrySource for NvmlSource {
    fn open(&mut self) -> Result<OpenSource, OpenError> {
        let (library, path) = self.load()?;
        if !self.warned_of_namespace && fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link != Path::new(INITIAL_PID_NAMESPACE)) {
            self.warned_of_namespace = true;
            warn!(
                "not in the host's PID namespace: some drivers leave GPU processes out then, or name them by other PIDs than consumers do"
            );
        }
        let count = library.device_count().map_err(|code| init_error(code, &path))?;
        if count == 0 {
            return Err(OpenError::NotAvailable(format!(
                "NVML ({path}) reports no GPU (is one attached to the driver? nvidia-smi lists them)"
            )));
        }
        let turnstiles = Turnstiles::default();
        let mut devices = Vec::new();
        let mut failures = Vec::new();
        for index in 0..count {
            match library.device(index) {
                Ok(gpu) => devices.push(NvmlDevice::boxed(identify(&gpu, index), gpu, &turnstiles)),
                Err(code) if code.is_source_gone() => return Err(init_error(code, &path)),
                Err(code) => {
                    devices.push(LateDevice::boxed(index, NVIDIA, library.clone(), &turnstiles, code));
                    failures.push(format!("GPU {index}: {code}"));
                }
            }
        }
        if failures.len() == devices.len() {
            return Err(OpenError::Failed(format!(
                "none of {count} GPUs can be reached: {} (are /dev/nvidia0 and its like there, and accessible?)",
                failures.join(", ")
            )));
        }
        let driver_version = library.driver_version().ok().filter(|version| !version.is_empty());
        Ok(OpenSource { info: SourceInfo { name: "nvml".into(), driver_version, library: Some(path) }, devices })
    }
}

/// What can be had of a device's identity; a part that cannot is empty.
pub(crate) fn identify(gpu: &Gpu, index: u32) -> Identity {
    Identity {
        index,
        uuid: gpu.uuid().unwrap_or_default(),
        pci_bus_id: gpu.pci_bus_id().unwrap_or_default(),
        name: gpu.name().unwrap_or_default(),
        vendor_id: NVIDIA,
    }
}

/// What a failed initialisation means, and what to do about it.
fn init_error(code: Code, path: &str) -> OpenError {
    let text = |remedy: &str| format!("NVML ({path}) does not start: {code} ({remedy})");
    match code {
        Code::DRIVER_NOT_LOADED => OpenError::NotAvailable(text("is the nvidia kernel module loaded? try: nvidia-smi, or modprobe nvidia")),
        Code::GPU_NOT_FOUND => OpenError::NotAvailable(text("no NVIDIA GPU is attached to the driver")),
        Code::NO_PERMISSION => OpenError::Failed(text("read and write access to /dev/nvidiactl and /dev/nvidia* is needed")),
        Code::LIB_RM_VERSION_MISMATCH => OpenError::Failed(text(
            "the library and the loaded kernel module are of different driver versions: reload the module, or reboot",
        )),
        Code::UNKNOWN => OpenError::Failed(text("in a container: it may have lost its access to /dev/nvidia*, and must be recreated")),
        _ => OpenError::Failed(text("nvidia-smi and the kernel log may say more")),
    }
}

/// The path of a library that was loaded, through its name the one that the loader chose.
fn loaded_from(candidate: &Candidate) -> String {
    match candidate {
        Candidate::File(path) => path.display().to_string(),
        Candidate::Name(name) => {
            let name = name.display().to_string();
            let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
            mapped_path(&maps, &name).unwrap_or(name)
        }
    }
}

/// The mapped file whose name begins as the library's does (the name is usually a link to one with the version).
fn mapped_path(maps: &str, name: &str) -> Option<String> {
    let stem = name.strip_suffix(".1")?;
    maps.lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]))
        .rfind(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(stem)))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapped_library_is_found_by_its_stem() {
        let maps = "\
7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r--p 00000000 08:01 43 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08
7f04-7f05 rw-p 00000000 00:00 0
";
        assert_eq!(mapped_path(maps, "libnvidia-ml.so.1").as_deref(), Some("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.105.08"));
        assert_eq!(mapped_path("", "libnvidia-ml.so.1"), None);
    }

    #[test]
    fn what_is_not_there_is_told_from_what_does_not_work() {
        assert!(
            matches!(init_error(Code::DRIVER_NOT_LOADED, "x"), OpenError::NotAvailable(text) if text.contains("kernel module loaded?"))
        );
        assert!(matches!(init_error(Code::NO_PERMISSION, "x"), OpenError::Failed(text) if text.contains("/dev/nvidiactl")));
        assert!(
            matches!(init_error(Code::LIB_RM_VERSION_MISMATCH, "x"), OpenError::Failed(text) if text.contains("different driver versions"))
        );
        assert!(matches!(init_error(Code(23), "x"), OpenError::Failed(text) if text.contains("insufficient resources (23)")));
    }
}
