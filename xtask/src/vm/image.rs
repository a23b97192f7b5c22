//! An initramfs: programs with the libraries that they need, each at the path that it has here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::shell::command;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const TEXT: u32 = 0o100_644;
const LINK: u32 = 0o120_777;
const CONSOLE: u32 = 0o020_600;
const CONSOLE_DEVICE: (u32, u32) = (5, 1);

/// Mount points.
const EMPTY: [&str; 4] = ["/proc", "/sys", "/dev", "/tmp"];

/// What goes into the initramfs, by path.
#[derive(Debug)]
pub(crate) struct Image {
    files: BTreeMap<PathBuf, (u32, Content)>,
}

#[derive(Debug)]
enum Content {
    Copy(PathBuf),
    Bytes(Vec<u8>),
}

impl Image {
    pub(crate) fn new() -> Self {
        Self { files: BTreeMap::new() }
    }

    /// Adds a program or library under another path, and the libraries that it is linked with under their own.
    ///
    /// # Errors
    /// When one of these cannot be found.
    pub(crate) fn program(&mut self, from: &Path, to: impl Into<PathBuf>) -> Result<()> {
        self.files.insert(to.into(), (PROGRAM, Content::Copy(from.to_owned())));
        let ldd = command("ldd").arg(from).output().context("cannot start ldd")?;
        for library in libraries(&String::from_utf8_lossy(&ldd.stdout)).with_context(|| format!("{} cannot run", from.display()))? {
            self.files.entry(library.clone()).or_insert((PROGRAM, Content::Copy(library)));
        }
        Ok(())
    }

    pub(crate) fn script(&mut self, path: &str, text: String) {
        self.files.insert(path.into(), (PROGRAM, Content::Bytes(text.into())));
    }

    pub(crate) fn text(&mut self, path: &str, text: String) {
        self.files.insert(path.into(), (TEXT, Content::Bytes(text.into())));
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.files.insert(path.into(), (LINK, Content::Bytes(target.into())));
    }

    /// Writes it as the kernel wants it: a cpio archive of the kind `newc`.
    ///
    /// # Errors
    /// When a file cannot be read or the archive not be written.
    pub(crate) fn write(&self, to: &Path) -> Result<()> {
        let write = || -> Result<()> {
            let mut archive = Archive { out: BufWriter::new(File::create(to)?), entries: 0 };
            for folder in self.folders() {
                archive.entry(&folder, DIRECTORY, (0, 0), &[])?;
            }
            archive.entry(Path::new("/dev/console"), CONSOLE, CONSOLE_DEVICE, &[])?;
            for (path, (mode, content)) in &self.files {
                let read = |from: &PathBuf| fs::read(from).with_context(|| format!("cannot read {}", from.display()));
                match content {
                    Content::Copy(from) => archive.entry(path, *mode, (0, 0), &read(from)?)?,
                    Content::Bytes(bytes) => archive.entry(path, *mode, (0, 0), bytes)?,
                }
            }
            Ok(archive.end()?)
        };
        write().with_context(|| format!("cannot write {}", to.display()))
    }

    fn folders(&self) -> BTreeSet<PathBuf> {
        let parents = self.files.keys().flat_map(|path| path.ancestors().skip(1)).chain(EMPTY.iter().map(Path::new));
        parents.filter(|folder| folder.parent().is_some()).map(Path::to_owned).collect()
    }
}

struct Archive<W: Write> {
    out: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    fn entry(&mut self, path: &Path, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        self.entries += 1;
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        // Inode, mode, user, group, links, time, size, device, device that it stands for, size of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let header = fields.iter().fold(String::from("070701"), |header, field| header + &format!("{field:08x}"));
        write!(self.out, "{header}{name}\0")?;
        self.pad(header.len() + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }

    fn end(mut self) -> io::Result<()> {
        self.entry(Path::new("TRAILER!!!"), 0, (0, 0), &[])?;
        self.out.flush()
    }
}

/// The paths in what ldd prints.
fn libraries(ldd: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in ldd.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place.starts_with("not found") {
            bail!("its library {name} is not here");
        }
        if let Some(path) = place.split(" (").next().filter(|path| path.starts_with('/')) {
            found.push(path.into());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_path() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5b)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f5c)\n";
        let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(printed).expect("all are there"), paths);
        assert!(libraries("\tstatically linked\n").expect("none are needed").is_empty());
        let error = libraries("\tlibelf.so.1 => not found\n").expect_err("one is missing");
        assert_eq!(error.to_string(), "its library libelf.so.1 is not here");
    }

    #[test]
    fn cpio_reads_the_archive() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("image.cpio");
        let mut image = Image::new();
        image.text("/etc/some/text", "five\n".into());
        image.link("/init", "/etc/some/text");
        image.program(Path::new("/bin/sh"), "/bin/sh").expect("sh runs");
        image.write(&path).expect("it can be written");

        // busybox and GNU alike; where neither is, the virtual machines cannot be set up either.
        let list = "cpio -t <\"$0\" || busybox cpio -t <\"$0\"";
        let output = command("sh").args(["-c", list]).arg(&path).output().expect("sh starts");
        let names = String::from_utf8(output.stdout).expect("names");
        for name in ["etc/some", "etc/some/text", "init", "bin/sh", "proc", "dev/console"] {
            assert!(names.lines().any(|line| line == name), "{name} is missing: {names}");
        }
    }
}
