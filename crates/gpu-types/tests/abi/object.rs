//! The compiled map object against the contract's numbers: its BTF, what libbpf reads from it, and what the kernel makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use libbpf_rs::btf::types::{Array, Composite, DataSec, Int, IntEncoding, MemberAttr, Ptr, Struct, Typedef, Var};
use libbpf_rs::btf::{Btf, BtfType, HasSize, ReferencesType};
use libbpf_rs::{MapCore, ObjectBuilder};

use crate::contract::{Field, MAPS, STRUCTS};
use test_support::Bpffs;

use crate::support::{compile_bridge_maps, temporary_directory};

/// The C type as the contract writes it.
fn type_name(ty: BtfType<'_>) -> String {
    if let Ok(array) = Array::try_from(ty) {
        return format!("{}[{}]", type_name(array.contained_type()), array.capacity());
    }
    let name = ty.name().map_or_else(|| format!("{:?} without name", ty.kind()), |name| name.to_string_lossy().into_owned());
    name.trim_start_matches("__").to_owned()
}

/// (field, type, offset) of each of a struct's fields, and its size.
fn fields(btf: &Btf<'_>, name: &str) -> (Vec<(String, String, usize)>, usize) {
    let found: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("no struct {name} in the BTF"));
    let fields = found
        .iter()
        .map(|member| {
            let MemberAttr::Normal { offset: bits } = member.attr else { panic!("{name} has a bit field") };
            assert_eq!(bits % 8, 0);
            let ty = btf.type_by_id(member.ty).unwrap();
            (member.name.unwrap().to_string_lossy().into_owned(), type_name(ty), bits as usize / 8)
        })
        .collect();
    (fields, found.size())
}

/// The attributes of a map definition: numbers, or type names for key and value.
fn definition(btf: &Btf<'_>, var: &Var<'_>) -> BTreeMap<String, String> {
    let definition = Composite::try_from(var.referenced_type()).expect("a map definition is a struct");
    definition
        .iter()
        .map(|member| {
            let pointer = btf.type_by_id::<Ptr<'_>>(member.ty).expect("each attribute is a pointer").referenced_type();
            // __uint(x, n) is a pointer to int[n], __type(x, t) one to t.
            let value = Array::try_from(pointer).map_or_else(type_name, |array| array.capacity().to_string());
            (member.name.unwrap().to_string_lossy().into_owned(), value)
        })
        .collect()
}

#[track_caller]
fn check_structs(btf: &Btf<'_>) {
    for expected in STRUCTS {
        let (found, size) = fields(btf, expected.name);
        let fields: Vec<_> =
            expected.fields.iter().map(|&Field { name, c_type, offset }| (name.to_owned(), c_type.to_owned(), offset)).collect();
        assert_eq!(found, fields, "{}", expected.name);
        assert_eq!(size, expected.size, "{}", expected.name);
    }
}

#[test]
fn the_objects_structs_are_the_contracts() {
    let directory = temporary_directory();
    let object = compile_bridge_maps(directory.path());
    check_structs(&Btf::from_path(&object).unwrap());
}

#[test]
fn the_objects_integers_are_as_wide_and_signed_as_their_names_say() {
    let directory = temporary_directory();
    let object = compile_bridge_maps(directory.path());
    let btf = Btf::from_path(&object).unwrap();
    for (name, size, signed) in [("__u8", 1, false), ("__u16", 2, false), ("__u32", 4, false), ("__u64", 8, false), ("__s64", 8, true)] {
        let ty = btf.type_by_name::<Typedef<'_>>(name).unwrap_or_else(|| panic!("no {name}")).skip_mods_and_typedefs();
        let int = Int::try_from(ty).unwrap();
        assert_eq!((int.size(), matches!(int.encoding, IntEncoding::Signed)), (size, signed), "{name}");
    }
}

#[test]
fn the_objects_map_definitions_are_the_contracts() {
    let directory = temporary_directory();
    let object = compile_bridge_maps(directory.path());
    let btf = Btf::from_path(&object).unwrap();
    let section: DataSec<'_> = btf.type_by_name(".maps").expect("a .maps section");
    let found: Vec<_> = section
        .iter()
        .map(|info| {
            let var: Var<'_> = btf.type_by_id(info.ty).unwrap();
            (var.name().unwrap().to_string_lossy().into_owned(), definition(&btf, &var))
        })
        .collect();

    let expected: Vec<_> = MAPS
        .iter()
        .map(|map| {
            let mut attributes = BTreeMap::from([
                ("type".to_owned(), map.bpf_type.to_string()),
                ("max_entries".to_owned(), map.max_entries.to_string()),
                ("key".to_owned(), map.key_type.to_owned()),
                ("value".to_owned(), map.value_type.to_owned()),
                // LIBBPF_PIN_BY_NAME
                ("pinning".to_owned(), "1".to_owned()),
            ]);
            if map.flags != 0 {
                attributes.insert("map_flags".to_owned(), map.flags.to_string());
            }
            (map.name.to_owned(), attributes)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn libbpf_reads_the_contracts_maps_from_the_object() {
    let directory = temporary_directory();
    let object = ObjectBuilder::default().open_file(compile_bridge_maps(directory.path())).unwrap();
    let found: Vec<_> = object
        .maps()
        .map(|map| {
            let name = map.name().to_str().unwrap().to_owned();
            (name, map.map_type() as u32, map.key_size(), map.value_size(), map.max_entries(), map.map_flags())
        })
        .collect();
    let expected: Vec<_> =
        MAPS.iter().map(|map| (map.name.to_owned(), map.bpf_type, map.key_size, map.value_size, map.max_entries, map.flags)).collect();
    assert_eq!(found, expected);
    assert_eq!(object.progs().count(), 0, "the object has no programs");
}

#[test]
fn the_kernel_creates_and_pins_the_contracts_maps_with_their_types() {
    let file_system = Bpffs::mount();
    // Some kernels put iterators of their own into every BPF file system.
    let before = pins(file_system.path());
    let directory = temporary_directory();
    let object = load(&compile_bridge_maps(directory.path()), file_system.path());

    let added: BTreeSet<_> = pins(file_system.path()).difference(&before).cloned().collect();
    assert_eq!(added, MAPS.iter().map(|map| map.name.to_owned()).collect(), "one pin for each map, and nothing else");

    for expected in &MAPS {
        let map = object.maps().find(|map| map.name() == expected.name).unwrap();
        let info = map.info().unwrap().info;
        let found = (info.type_, info.key_size, info.value_size, info.max_entries, info.map_flags);
        let numbers = (expected.bpf_type, expected.key_size, expected.value_size, expected.max_entries, expected.flags);
        assert_eq!(found, numbers, "{}", expected.name);
        assert!(info.btf_key_type_id != 0 && info.btf_value_type_id != 0, "{} has its types in BTF", expected.name);
    }
}

fn load(object: &Path, pins: &Path) -> libbpf_rs::Object {
    let object = ObjectBuilder::default().pin_root_path(pins).unwrap().open_file(object).unwrap().load();
    object.unwrap_or_else(|error| panic!("cannot load the maps (root or CAP_BPF is needed): {error:#}"))
}

fn pins(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
