//! The bill of materials in packages and image: it has the published format, and is true.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "test code")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use deploy::artifacts::{ARCHITECTURES, PROGRAMS, VERSION, crates_in, deb, dist, rpm, source, succeed, tarball, tool};
use deploy::container::unpacked;
use serde_json::Value;
use tempfile::TempDir;

const INSTALLED: &str = "usr/share/doc/gpu-ebpf-bridge/sbom.cdx.json";
/// Those that libbpf-sys brings as source.
const C_LIBRARIES: [&str; 3] = ["elfutils", "libbpf", "zlib"];

/// What a line of shell prints of a package.
fn shell(script: &str, package: &Path) -> String {
    succeed(Command::new("sh").args(["-c", script]).arg(package))
}

fn of_package(architecture: &str) -> String {
    let of_tarball = shell(
        &format!("tar --extract --to-stdout --file \"$0\" gpu-ebpf-bridge-{VERSION}-{architecture}/{INSTALLED}"),
        &tarball(architecture),
    );
    let of_deb = shell(&format!("dpkg-deb --fsys-tarfile \"$0\" | tar --extract --to-stdout ./{INSTALLED}"), &deb(VERSION, architecture));
    let of_rpm = shell(&format!("rpm2cpio \"$0\" | cpio --quiet --extract --to-stdout ./{INSTALLED}"), &rpm(VERSION, architecture));
    assert!(of_tarball == of_deb && of_deb == of_rpm);
    of_tarball
}

fn of_image() -> String {
    fs::read_to_string(unpacked().path().join(INSTALLED)).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn names(bill: &Value, of: impl Fn(&Value) -> bool) -> BTreeSet<(String, String)> {
    let components = bill["components"].as_array().unwrap().iter().filter(|component| of(component));
    components.map(|component| (text(&component["name"]), text(&component["version"]))).collect()
}

#[track_caller]
fn check_crates(bill: &Value, architecture: &str) {
    let mut expected = BTreeSet::new();
    for program in PROGRAMS {
        let list = crates_in(&dist(Path::new(architecture).join(program)));
        let delivered = list.iter().filter(|package| package["kind"] != "build" && package["source"] != "local");
        expected.extend(delivered.map(|package| (text(&package["name"]), text(&package["version"]))));
    }
    let is_crate = |component: &Value| component["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/"));
    assert_eq!(names(bill, is_crate), expected);

    let lock = fs::read_to_string(source("Cargo.lock")).unwrap();
    for component in bill["components"].as_array().unwrap().iter().filter(|component| is_crate(component)) {
        assert!(!component["licenses"][0]["expression"].as_str().unwrap().is_empty(), "{component}");
        let hash = component["hashes"][0]["content"].as_str().unwrap();
        assert!(lock.contains(&format!("checksum = \"{hash}\"")), "{component}");
    }
    let libraries: BTreeSet<_> = names(bill, |component| component["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:generic/")));
    assert_eq!(libraries.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), C_LIBRARIES);
}

/// What a component needs is a component; and everything is needed, by way of the whole.
#[track_caller]
fn check_graph(bill: &Value) {
    let mut reached = BTreeSet::new();
    let mut next = vec!["gpu-ebpf-bridge".to_owned()];
    while let Some(reference) = next.pop() {
        if reached.insert(reference.clone()) {
            let entry = bill["dependencies"].as_array().unwrap().iter().find(|entry| entry["ref"] == *reference).expect(&reference);
            next.extend(entry["dependsOn"].as_array().unwrap().iter().map(|needed| needed.as_str().unwrap().to_owned()));
        }
    }
    let components: BTreeSet<_> =
        bill["components"].as_array().unwrap().iter().map(|component| component["bom-ref"].as_str().unwrap().to_owned()).collect();
    reached.remove("gpu-ebpf-bridge");
    assert_eq!(reached, components);
}

#[test]
fn packages_say_what_is_in_their_programs() {
    for architecture in ARCHITECTURES {
        let bill: Value = serde_json::from_str(&of_package(architecture)).unwrap();
        assert_eq!(bill["metadata"]["component"]["version"], VERSION);
        check_crates(&bill, architecture);
        check_graph(&bill);
    }
}

#[test]
fn the_image_says_what_it_has_of_the_system_too() {
    let bill: Value = serde_json::from_str(&of_image()).unwrap();
    check_crates(&bill, std::env::consts::ARCH);
    check_graph(&bill);
    let is_of_the_system =
        |component: &Value| component["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:deb/") || purl.starts_with("pkg:rpm/"));
    let system = names(&bill, is_of_the_system);
    assert!(system.iter().any(|(name, _)| name == "libc6" || name == "glibc"), "{system:?}");
    assert!(system.iter().any(|(name, _)| name.starts_with("libgcc")), "{system:?}");
}

#[test]
fn they_have_the_published_format() {
    const JUDGE: &str = "\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
judge = JsonStrictValidator(SchemaVersion.V1_5)
for file in sys.argv[1:]:
    print(judge.validate_str(open(file).read()) or 'valid')
";
    let package = of_package(std::env::consts::ARCH);
    let wrong = package.replace("\"bomFormat\"", "\"bomformat\"");
    let folder = TempDir::new().unwrap();
    let mut judge = Command::new(tool("judges/bin/python"));
    judge.args(["-c", JUDGE]);
    for (name, text) in [("package", package), ("image", of_image()), ("wrong", wrong)] {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        judge.arg(file);
    }
    let said = succeed(&mut judge);
    let verdicts: Vec<_> = said.lines().collect();
    assert!(verdicts.len() >= 3 && verdicts[..2] == ["valid", "valid"] && verdicts[2] != "valid", "{said}");
}
