//! Man pages and shell completions, made from what the programs say of themselves.
//!
//! Not in xtask, which must build on a machine that has no libelf yet: it is what installs it.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::{bridge_dump_args, help};

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

/// A section that only the page has: its heading, and paragraphs, each with a tag or without.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

fn page(command: &Command, sections: &[Section]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
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
    let closing = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for section in help::sections(&closing) {
        rest.control("SH", [section.heading.to_uppercase().as_str()]);
        section.paragraphs.iter().for_each(|paragraph| add(&mut rest, paragraph.tag, &paragraph.text));
    }
    for (heading, paragraphs) in sections {
        rest.control("SH", [*heading]);
        paragraphs.iter().for_each(|(tag, text)| add(&mut rest, tag, text));
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

fn add(roff: &mut Roff, tag: &str, text: &str) {
    if tag.is_empty() {
        roff.control("PP", []);
    } else {
        roff.control("TP", []);
        roff.text([bold(tag)]);
    }
    roff.text([roman(text)]);
}

const BRIDGE: &[Section] = &[
    (
        "ENVIRONMENT",
        &[
            ("NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID", "Set by systemd for Type=notify and WatchdogSec=."),
            ("NO_COLOR, TERM", "NO_COLOR, if not empty, and TERM=dumb keep the help and the log on a terminal without colours."),
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
    ("SEE ALSO", &[("", "bridge-dump(8), bpftool(8), nvidia-smi(1), systemctl(1)")]),
];

const DUMP: &[Section] = &[
    ("FILES", &[("/sys/fs/bpf/gpu_*", "The maps, unless --pin-dir says otherwise.")]),
    ("EXAMPLES", &[("bridge-dump", "The maps as text."), ("bridge-dump --pin-dir=/sys/fs/bpf/gpu", "The same from another directory.")]),
    ("SEE ALSO", &[("", "gpu-ebpf-bridge(8)")]),
];
