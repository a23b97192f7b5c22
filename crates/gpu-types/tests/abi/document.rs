//! `docs/contract.md` against the contract's numbers.

use std::fs;

use gpu_types::maps::PID_CAPACITY;
use gpu_types::{GPU_BRIDGE_STATE_VERSION, GPU_DEVICE_PRIMARY_MULTI, GPU_MAX_DEVICES, GPU_SCHEMA_VERSION};

use crate::contract::{MAPS, STRUCTS};
use crate::support::repository;

fn document() -> String {
    let path = repository().join("docs/contract.md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The body rows of the first table after the line `heading`, up to the next heading; a cell without its backticks.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let mut lines = document.lines();
    lines.find(|line| *line == heading).unwrap_or_else(|| panic!("no heading {heading:?}"));
    lines
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            // An escaped bar is text.
            let row = line.trim_matches('|').replace("\\|", "\0");
            row.split('|').map(|cell| cell.trim().replace('`', "").replace('\0', "|")).collect()
        })
        .collect()
}

#[test]
fn the_document_describes_every_field_of_every_struct() {
    let document = document();
    for expected in STRUCTS {
        let heading = format!("### `struct {}`, {} bytes", expected.name, expected.size);
        let found: Vec<_> =
            table(&document, &heading).into_iter().map(|row| (row[0].parse().unwrap(), row[1].clone(), row[2].clone())).collect();
        let fields: Vec<_> = expected.fields.iter().map(|field| (field.offset, field.c_type.to_owned(), field.name.to_owned())).collect();
        assert_eq!(found, fields, "{heading}");
    }
    assert_eq!(document.matches("\n### `struct ").count(), STRUCTS.len());
}

#[test]
fn the_document_describes_every_map() {
    let found = table(&document(), "## Maps");
    let expected: Vec<Vec<String>> = MAPS
        .iter()
        .map(|map| {
            let key = match map.name {
                "gpu_device" => "u32, device index",
                "gpu_per_pid" => "u32, host PID (tgid)",
                "gpu_per_pid_per_device" => "u64, (PID << 32) | device index",
                _ => "u32, always 0",
            };
            let value = format!("struct {}, {} bytes", map.value_type, map.value_size);
            [map.name, map.kind, key, &value, &map.max_entries.to_string(), &map.flags.to_string()].map(str::to_owned).to_vec()
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_document_gives_the_constants() {
    let found: Vec<_> = table(&document(), "## Constants").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let expected = [
        ("GPU_SCHEMA_VERSION", GPU_SCHEMA_VERSION),
        ("GPU_MAX_DEVICES", GPU_MAX_DEVICES),
        ("GPU_DEVICE_PRIMARY_MULTI", GPU_DEVICE_PRIMARY_MULTI.into()),
        ("GPU_BRIDGE_PID_ENTRIES", PID_CAPACITY),
        ("GPU_BRIDGE_STATE_VERSION", GPU_BRIDGE_STATE_VERSION),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_string()));
    assert_eq!(found, expected);
}
