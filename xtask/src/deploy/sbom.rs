//! What is in the programs, as a bill of materials in the format `CycloneDX`. The crates are those that the linked programs themselves list
//! (cargo-auditable); what else is known of them comes from cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{VERSION, binaries, output, source_date, write};
use crate::shell;

/// Where it is installed, in packages and in the image.
pub(super) const INSTALLED: &str = "usr/share/doc/gpu-ebpf-bridge/sbom.cdx.json";

const URL: &str = "https://github.com/gpu-ebpf-bridge/gpu-ebpf-bridge";
const OWN: &str = "gpu-ebpf-bridge";

/// A library, and what it is linked with.
#[derive(Debug)]
pub(super) struct Component {
    reference: String,
    description: Value,
    needs: BTreeSet<String>,
}

/// Writes the bill of the programs in a folder, and of what an image has besides.
///
/// # Errors
/// When a program has no list, or cargo does not tell of a crate in it.
pub(super) fn write_for(programs: &Path, architecture: &str, besides: Vec<Component>, to: &Path) -> Result<()> {
    let known = Known::read()?;
    let mut components = BTreeMap::new();
    let mut own = BTreeSet::new();
    for program in binaries::PROGRAMS {
        add_crates(&programs.join(program), &known, &mut components, &mut own)?;
    }
    let (carrier, libraries) = known.c_libraries()?;
    let carrier = components.get_mut(&carrier).context("no program has libbpf in it")?;
    carrier.needs.extend(libraries.iter().map(|library| library.reference.clone()));
    own.extend(besides.iter().map(|component| component.reference.clone()));
    components.extend(libraries.into_iter().chain(besides).map(|component| (component.reference.clone(), component)));

    let dependencies =
        [(OWN, &own)].into_iter().chain(components.iter().map(|(reference, component)| (reference.as_str(), &component.needs)));
    let dependencies: Vec<_> = dependencies.map(|(reference, needs)| json!({"ref": reference, "dependsOn": needs})).collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp()?,
            "component": {
                "type": "application",
                "bom-ref": OWN,
                "name": OWN,
                "version": VERSION,
                "licenses": [{"expression": "Apache-2.0"}],
                "externalReferences": [{"type": "vcs", "url": URL}],
                "properties": [{"name": "architecture", "value": architecture}],
            },
        },
        "components": components.values().map(|component| &component.description).collect::<Vec<_>>(),
        "dependencies": dependencies,
    });
    write(to, format!("{bill:#}\n").as_bytes(), 0o644)
}

/// The crates that a program lists, and which of them the program is.
fn add_crates(program: &Path, known: &Known, components: &mut BTreeMap<String, Component>, own: &mut BTreeSet<String>) -> Result<()> {
    let list = auditable_info::json_from_file(program, auditable_info::Limits::default())
        .with_context(|| format!("{} does not tell what is in it", program.display()))?;
    let list: List = serde_json::from_str(&list).with_context(|| format!("cannot read what {} tells is in it", program.display()))?;
    for package in list.packages.iter().filter(|package| package.is_in_the_program()) {
        let needs = package.dependencies.iter().map(|index| &list.packages[*index]);
        let needs: BTreeSet<_> = needs.filter(|needed| needed.is_in_the_program()).map(Listed::reference).collect();
        if package.root {
            own.insert(package.reference());
        }
        let component = components.entry(package.reference()).or_insert(Component {
            reference: package.reference(),
            description: known.describe(package)?,
            needs: BTreeSet::new(),
        });
        component.needs.extend(needs);
    }
    Ok(())
}

/// The list in a program: <https://github.com/rust-secure-code/cargo-auditable/blob/master/cargo-auditable.schema.json>.
#[derive(Debug, Deserialize)]
struct List {
    packages: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    version: String,
    source: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    dependencies: Vec<usize>,
    #[serde(default)]
    root: bool,
}

impl Listed {
    /// Those for building only are not.
    fn is_in_the_program(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "runtime")
    }

    fn is_own(&self) -> bool {
        self.source == "local"
    }

    fn reference(&self) -> String {
        reference(&self.name, &self.version, self.is_own())
    }
}

/// A crate of this workspace is no crate of the registry, whatever has its name there.
fn reference(name: &str, version: &str, is_own: bool) -> String {
    format!("{}/{name}@{version}", if is_own { OWN } else { "pkg:cargo" })
}

/// What cargo knows of the crates in the lock file.
#[derive(Debug)]
struct Known {
    packages: Vec<Value>,
    /// By name and version.
    checksums: BTreeMap<(String, String), String>,
}

impl Known {
    fn read() -> Result<Self> {
        let metadata = output(shell::cargo().args(["metadata", "--locked", "--format-version=1"]))?;
        let mut metadata: Value = serde_json::from_slice(&metadata).context("cargo's metadata cannot be read")?;
        let Value::Array(packages) = metadata["packages"].take() else {
            return Ok(Self { packages: Vec::new(), checksums: BTreeMap::new() });
        };
        Ok(Self { packages, checksums: checksums(&fs::read_to_string("Cargo.lock").context("cannot read Cargo.lock")?) })
    }

    fn package(&self, name: &str, version: &str) -> Result<&Value> {
        let found = self.packages.iter().find(|package| package["name"] == name && package["version"] == version);
        found.with_context(|| format!("cargo does not know {name} {version}: is the program of another lock file?"))
    }

    fn describe(&self, listed: &Listed) -> Result<Value> {
        let Listed { name, version, .. } = listed;
        let package = self.package(name, version)?;
        let mut component = json!({"type": "library", "bom-ref": listed.reference(), "name": name, "version": version});
        if !listed.is_own() {
            component["purl"] = json!(format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")));
        }
        if let Some(license) = package["license"].as_str() {
            // The form that crates had before SPDX.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(repository) = package["repository"].as_str().filter(|url| url.starts_with("https://")) {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        if let Some(checksum) = self.checksums.get(&(name.clone(), version.clone())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        Ok(component)
    }

    /// Those that libbpf-sys brings as source and links in, after its own reference.
    fn c_libraries(&self) -> Result<(String, Vec<Component>)> {
        const CRATE: &str = "libbpf-sys";
        let package = self.packages.iter().find(|package| package["name"] == CRATE).context("no libbpf-sys in the lock file")?;
        let crate_version = package["version"].as_str().context("libbpf-sys without a version")?;
        let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent().context("libbpf-sys lies nowhere")?;
        let quoted = |file: &str, after: &str| version_in(&folder.join(file), after);
        let libbpf =
            crate_version.split_once("+v").map(|(_, version)| version.to_owned()).context("libbpf-sys does not say which libbpf")?;
        let libraries = [
            ("libbpf", libbpf, "LGPL-2.1-only OR BSD-2-Clause", "https://github.com/libbpf/libbpf"),
            (
                "elfutils",
                quoted("elfutils/configure.ac", "AC_INIT([elfutils],[")?,
                "GPL-2.0-or-later OR LGPL-3.0-or-later",
                "https://sourceware.org/elfutils/",
            ),
            ("zlib", quoted("zlib/zlib.h", "#define ZLIB_VERSION \"")?, "Zlib", "https://zlib.net/"),
        ];
        let component = |(name, version, license, url): (&str, String, &str, &str)| {
            let reference = format!("pkg:generic/{name}@{version}");
            let description = json!({
                "type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
                "licenses": [{"expression": license}], "externalReferences": [{"type": "website", "url": url}],
                "properties": [{"name": "source", "value": format!("{CRATE} {crate_version}")}],
            });
            Component { reference, description, needs: BTreeSet::new() }
        };
        Ok((reference(CRATE, crate_version, false), libraries.into_iter().map(component).collect()))
    }
}

impl Component {
    /// A package of this system, of which an image has files.
    fn of_the_system(kind: &str, name: &str, version: &str, architecture: &str) -> Self {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let vendor = system.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("unknown").trim_matches('"').to_owned();
        let reference = format!("pkg:{kind}/{vendor}/{name}@{}?arch={architecture}", version.replace('+', "%2B"));
        let description = json!({"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference});
        Self { reference, description, needs: BTreeSet::new() }
    }
}

/// The packages that files of this system are from.
///
/// # Errors
/// When a file is no package's.
pub(super) fn packages_of(files: &[PathBuf]) -> Result<Vec<Component>> {
    let mut found = BTreeMap::new();
    for file in files {
        let component = package_of(file).with_context(|| format!("cannot tell which package {} is from", file.display()))?;
        found.insert(component.reference.clone(), component);
    }
    Ok(found.into_values().collect())
}

fn package_of(file: &Path) -> Option<Component> {
    // /lib may be a link to /usr/lib, and a package know its file by either name.
    let merged = Path::new("/usr").join(file.strip_prefix("/").ok()?);
    let names = [Some(file), Some(merged.as_path()), file.strip_prefix("/usr").ok()];
    let ask = |command: &mut std::process::Command| output(command).ok().and_then(|said| String::from_utf8(said).ok());
    for name in names.into_iter().flatten() {
        let name = Path::new("/").join(name);
        if let Some(owner) = ask(shell::command("dpkg-query").arg("--search").arg(&name)) {
            let package = owner.split_once(": ")?.0.to_owned();
            let said = ask(shell::command("dpkg-query").args(["--show", "--showformat=${Package} ${Version} ${Architecture}", &package]))?;
            let mut words = said.split(' ');
            return Some(Component::of_the_system("deb", words.next()?, words.next()?, words.next()?));
        }
        if let Some(said) = ask(shell::command("rpm").args(["--query", "--queryformat=%{NAME} %{EVR} %{ARCH}", "--file"]).arg(&name)) {
            let mut words = said.split(' ');
            return Some(Component::of_the_system("rpm", words.next()?, words.next()?, words.next()?));
        }
    }
    None
}

/// What stands in the lock file, of those crates that have one.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, key: &str| {
        package.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned()))
    };
    let packages = lock.split("[[package]]");
    packages.filter_map(|package| Some(((value(package, "name")?, value(package, "version")?), value(package, "checksum")?))).collect()
}

/// The text after `after`, up to what cannot be part of a version.
fn version_in(file: &Path, after: &str) -> Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (_, rest) = text.split_once(after).with_context(|| format!("no {after} in {}", file.display()))?;
    Ok(rest.chars().take_while(|character| character.is_ascii_alphanumeric() || *character == '.').collect())
}

fn timestamp() -> Result<String> {
    let date = format!("--date=@{}", source_date());
    let said = output(shell::command("date").args(["--utc", &date, "+%Y-%m-%dT%H:%M:%SZ"]))?;
    Ok(String::from_utf8(said).context("date says something strange")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\ndependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found, [(("a".to_owned(), "1.0.0".to_owned()), "00ff".to_owned())].into());
    }

    #[test]
    fn the_package_of_a_file_is_found() {
        assert!(packages_of(&["/bin/cat".into()]).is_ok_and(|found| found.len() == 1));
        assert!(packages_of(&["/no/such/file".into()]).is_err());
    }
}
