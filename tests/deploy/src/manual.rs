//! Man pages and shell completions.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::bridge_dump_args;

/// What stands in the folder: name and content, all of it generated.
///
/// # Errors
/// When a page cannot be rendered.
pub fn files() -> io::Result<Vec<(String, Vec<u8>)>> {
    let bridge = bridge_cli::args::command();
    let dump = bridge_dump_args::Args::command().name("bridge-dump");
    let mut files = vec![("gpu-ebpf-bridge.8".to_owned(), page(&bridge, BRIDGE)?), ("bridge-dump.8".to_owned(), page(&dump, DUMP)?)];
    for (command, name) in [(bridge, "gpu-ebpf-bridge"), (dump, "bridge-dump")] {
        for (shell, file) in
            [(Shell::Bash, format!("{name}.bash")), (Shell::Zsh, format!("_{name}")), (Shell::Fish, format!("{name}.fish"))]
        {
            let mut script = Vec::new();
            generate(shell, &mut command.clone(), name, &mut script);
            files.push((file, script));
        }
    }
    Ok(files)
}

/// Writes them; gives what to say.
///
/// # Errors
/// When that is not possible, in words.
pub fn write(folder: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot write the manuals in {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let files = files().map_err(failed)?;
    for (name, content) in &files {
        fs::write(folder.join(name), content).map_err(failed)?;
    }
    Ok(format!("wrote {} files in {}", files.len(), folder.display()))
}

/// Compares them with what is there; gives what to say.
///
/// # Errors
/// When they differ, naming the files.
pub fn check(folder: &Path) -> Result<String, String> {
    let files = files().map_err(|error| format!("cannot render the manuals: {error}"))?;
    let outdated: Vec<_> = files
        .iter()
        .filter(|(name, content)| fs::read(folder.join(name)).ok().as_ref() != Some(content))
        .map(|(name, _)| name.as_str())
        .collect();
    if outdated.is_empty() {
        return Ok(format!("{} is what the flags say", folder.display()));
    }
    Err(format!("not what the flags say: {} in {}; run `cargo xtask deploy manual`", outdated.join(", "), folder.display()))
}

/// A section of a page: its heading, and paragraphs, each with a tag or without.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

fn page(command: &Command, sections: &[Section]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    // The help's own closing text is the sections below.
    let man = Man::new(command.clone().after_help("").after_long_help("")).section("8").date("").manual("System administration");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let mut usage = Roff::new();
    usage.control("SH", ["SYNOPSIS"]);
    usage.text([bold(command.get_name()), roman(" [flags]")]);
    usage.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut rest = Roff::new();
    for (heading, paragraphs) in sections {
        rest.control("SH", [*heading]);
        for (tag, text) in *paragraphs {
            if tag.is_empty() {
                rest.control("PP", []);
            } else {
                rest.control("TP", []);
                rest.text([bold(*tag)]);
            }
            rest.text([roman(*text)]);
        }
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

const BRIDGE: &[Section] = &[
    (
        "FORMS OF FLAGS",
        &[
            (
                "",
                "--flag value, --flag=value, -flag value and -flag=value are the same. A boolean flag stands alone or takes its value with \"=\": true, false, t, f, 1, 0. Of a flag given twice the last one counts.",
            ),
            ("", "Durations are Go's: 100ms, 1.5s, 1m30s, .5s, 1500us."),
        ],
    ),
    (
        "SIGNALS",
        &[
            (
                "SIGINT, SIGTERM, SIGHUP",
                "Empty and unpin the maps (unless --keep-pins) and end within a second; a second one ends the program at once. SIGHUP has no effect under nohup.",
            ),
            ("SIGUSR1", "Let go of the driver, for replacing it or resetting a GPU; the maps are empty."),
            ("SIGUSR2", "Take the driver up again."),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "Ended as asked; with --health: publishing, or idle by design."),
            ("1", "Failed; the last line on standard error says what, why, and where possible what helps. With --health: unknown."),
            ("2", "The command line cannot be used; nothing was touched."),
            ("3", "With --health: stale; the bridge is gone, stuck or waiting for a driver."),
            ("4", "With --health: there are no maps."),
            ("129, 130, 143", "Ended at once by a second SIGHUP, SIGINT or SIGTERM."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID", "Set by systemd for Type=notify and WatchdogSec=."),
            ("NO_COLOR", "No colours in the log on a terminal."),
        ],
    ),
    (
        "FILES",
        &[
            ("/sys/fs/bpf/gpu_meta, gpu_device, gpu_per_pid, gpu_per_pid_per_device", "The maps of the contract, pinned."),
            ("/sys/fs/bpf/gpu_bridge_state", "The bridge's own map: what it is doing, and which GPU is which index."),
            ("/etc/default/gpu-ebpf-bridge", "Flags for the systemd service, in GPU_EBPF_BRIDGE_FLAGS."),
            ("/usr/include/gadget/gpu_bridge_maps.h", "For eBPF programs that look the data up."),
        ],
    ),
    (
        "EXAMPLES",
        &[
            ("gpu-ebpf-bridge", "NVML where there is a GPU, else invented data, with a loud warning."),
            (
                "gpu-ebpf-bridge --mode=real --idle-if-no-gpu",
                "On every node of a cluster: waits where there is no GPU, never invents data.",
            ),
            (
                "gpu-ebpf-bridge --mode=real --host-path=/host --symlink-nvidia-devs",
                "In a container that has the host's file system mounted at /host.",
            ),
            ("gpu-ebpf-bridge --dump", "Print what the maps hold now."),
            ("gpu-ebpf-bridge --health", "Say in one line, and by the exit status, whether what they hold may be believed."),
        ],
    ),
    ("SEE ALSO", &[("", "bridge-dump(8), bpftool(8), nvidia-smi(1), systemctl(1)")]),
];

const DUMP: &[Section] = &[
    (
        "EXIT STATUS",
        &[
            ("0", "All four maps, or those asked for, were printed."),
            ("1", "At least one was not, or the output failed."),
            ("2", "Wrong usage."),
        ],
    ),
    ("FILES", &[("/sys/fs/bpf/gpu_*", "The maps, unless --pin-dir says otherwise.")]),
    ("EXAMPLES", &[("bridge-dump", "The maps as text."), ("bridge-dump --pin-dir=/sys/fs/bpf/gpu", "The same from another directory.")]),
    ("SEE ALSO", &[("", "gpu-ebpf-bridge(8)")]),
];
