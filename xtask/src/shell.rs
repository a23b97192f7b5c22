//! Running other programs, each announced by a `$ …` line.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, bail};

use crate::say::say;

/// A command with the search path that all our children get.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

/// The cargo that started us.
pub(crate) fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command that runs as root: as it is when we are root, else through sudo.
///
/// # Errors
/// When we are not root and there is no sudo.
pub(crate) fn privileged(program: impl AsRef<OsStr>) -> Result<Command> {
    if is_root() {
        return Ok(command(program));
    }
    let mut sudo = command("sudo");
    sudo.args(sudo_arguments()?).arg(program);
    Ok(sudo)
}

/// What follows `sudo` so that a program sees our environment, the search path included (sudo replaces it).
///
/// # Errors
/// When there is no sudo.
pub(crate) fn sudo_arguments() -> Result<Vec<OsString>> {
    if find("sudo").is_none() {
        bail!("this needs root, and sudo is not installed: run it as root");
    }
    let mut path = OsString::from("PATH=");
    path.push(search_path());
    Ok(vec!["-E".into(), "env".into(), path])
}

/// Where cargo puts what it builds with the profile that we were built with: our own folder.
///
/// # Errors
/// When the system does not tell where we are.
pub(crate) fn built(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where this program lies")?;
    Ok(own.with_file_name(name))
}

/// Cargo's target folder.
///
/// # Errors
/// When the system does not tell where we are.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where this program lies")?;
    own.ancestors().nth(2).map(Path::to_owned).context("this program lies outside of a target folder")
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Announces a command, runs it and waits for it.
///
/// # Errors
/// When it cannot be started or does not exit with status 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", name(command));
    }
    Ok(())
}

/// Whether a command can be started and exits with status 0; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Prints the line by which a command is announced.
pub(crate) fn announce(command: &Command) {
    say!("$ {}", line(command));
}

/// A program on the search path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(search_path()).map(|folder| folder.join(program)).find(|path| path.is_file())
}

pub(crate) fn name(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned()
}

fn line(command: &Command) -> String {
    let settings = command
        .get_envs()
        .filter(|(name, _)| *name != "PATH")
        .filter_map(|(name, value)| value.map(|value| format!("{}={}", name.to_string_lossy(), quoted(value))));
    let arguments = command.get_args().filter(|argument| !argument.as_encoded_bytes().starts_with(b"PATH=")).map(quoted);
    settings.chain([name(command)]).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    let plain = |character: char| character.is_alphanumeric() || "-_./=:,+@%".contains(character);
    if !text.is_empty() && text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The caller's search path, the system folders that a plain user's lacks, and where Ubuntu hides a bpftool that works: its wrapper refuses
/// every kernel but the one that the tools were packaged with.
pub(crate) fn search_path() -> &'static OsStr {
    static SEARCH_PATH: LazyLock<OsString> = LazyLock::new(|| {
        let given = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = env::split_paths(&given).collect();
        for system in ["/usr/sbin", "/sbin"].map(PathBuf::from) {
            if !folders.contains(&system) {
                folders.push(system);
            }
        }
        if let Some(folder) = ubuntu_bpftool() {
            folders.insert(0, folder);
        }
        env::join_paths(folders).unwrap_or(given)
    });
    &SEARCH_PATH
}

fn ubuntu_bpftool() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir("/usr/lib/linux-tools").ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    folders.into_iter().rev().find(|folder| folder.join("bpftool").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_announced_as_one_could_type_it() {
        let mut command = command("/usr/bin/cargo");
        command.args(["doc", "it's here", ""]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line(&command), r"RUSTDOCFLAGS='-D warnings' cargo doc 'it'\''s here' ''");
    }
}
