//! Pins that are missing, foreign or something else.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, dead_code, unreachable_pub, missing_docs, reason = "test code")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use gpu_types::GpuMeta;
use gpu_types::maps::{DEVICE, META, MapDefinition, PER_PID, PER_PID_PER_DEVICE, STATE};
use libbpf_rs::MapType;
use map_reader::{Error, Map, Order, Reader};

mod support;
use support::{PinDir, put};

/// `map` fails with a message that contains `message`, and the other maps are open.
#[track_caller]
fn check_only(dir: &Path, map: Map, message: &str) -> Error {
    let reader = Reader::open(dir);
    for other in Map::ALL.iter().copied().filter(|&other| other != map) {
        reader.status(other).unwrap();
    }
    let error = reader.status(map).unwrap_err();
    assert!(error.to_string().contains(message), "{error}");
    assert_eq!(error.map(), map.name());
    error
}

/// All maps fail with the variant that `matches`.
#[track_caller]
fn check_all(dir: impl AsRef<Path>, message: &str, matches: impl Fn(&Error) -> bool) {
    let reader = Reader::open(dir);
    for &map in Map::ALL {
        let error = reader.status(map).unwrap_err();
        assert!(matches(&error), "{error:?}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_missing_pin_is_an_error_of_that_map_alone() {
    for &map in Map::ALL {
        let (pins, _maps) = PinDir::full();
        pins.remove(map.name());
        let error = check_only(pins.path(), map, "is not pinned in");
        assert!(matches!(error, Error::NotPinned { .. }) && error.is_absent());
    }
}

#[test]
fn every_read_of_a_map_that_is_not_open_tells_why() {
    let pins = PinDir::empty();
    let reader = Reader::open(pins.path());
    let errors = [
        reader.meta().unwrap_err(),
        reader.device(0).unwrap_err(),
        reader.devices().unwrap_err(),
        reader.process(1).unwrap_err(),
        reader.processes(Order::Unsorted).unwrap_err(),
        reader.process_devices(Order::ByKey).unwrap_err(),
        reader.state().unwrap_err(),
    ];
    assert!(errors.iter().all(|error| matches!(error, Error::NotPinned { .. })), "{errors:?}");
}

#[test]
fn a_foreign_map_is_named_with_the_attribute_that_differs() {
    let larger = |definition: MapDefinition| MapDefinition { max_entries: definition.max_entries * 2, ..definition };
    let wider = |definition: MapDefinition| MapDefinition { value_size: definition.value_size + 8, ..definition };
    const BPF_F_NO_COMMON_LRU: u32 = 2;
    let cases = [
        (Map::Meta, MapType::Hash, META, "type is hash, expected array"),
        (Map::Meta, MapType::Array, larger(META), "max_entries is 2, expected 1"),
        (Map::Device, MapType::Array, larger(DEVICE), "max_entries is 32, expected 16"),
        (Map::Device, MapType::Array, wider(DEVICE), "value_size is 136, expected 128"),
        (Map::PerPid, MapType::Hash, PER_PID, "type is hash, expected lru_hash"),
        (Map::PerPid, MapType::LruPercpuHash, PER_PID, "type is lru_percpu_hash, expected lru_hash"),
        (Map::PerPid, MapType::LruHash, MapDefinition { key_size: 8, ..PER_PID }, "key_size is 8, expected 4"),
        (Map::PerPid, MapType::LruHash, MapDefinition { flags: BPF_F_NO_COMMON_LRU, ..PER_PID }, "map_flags is 0x2, expected 0x0"),
        (Map::PerPidPerDevice, MapType::LruHash, wider(PER_PID_PER_DEVICE), "value_size is 48, expected 40"),
        (Map::State, MapType::Array, MapDefinition { flags: 0, ..STATE }, "map_flags is 0x0, expected 0x400"),
    ];
    for (map, map_type, definition, message) in cases {
        let (pins, _maps) = PinDir::full();
        pins.remove(map.name());
        pins.create_as(map_type, &definition);
        let error = check_only(pins.path(), map, message);
        assert!(matches!(error, Error::Foreign { .. }) && !error.is_absent());
    }
}

#[test]
fn something_else_under_a_maps_name_is_said_to_be_that() {
    let (pins, _maps) = PinDir::full();
    let place = pins.pin("gpu_device");
    pins.remove("gpu_device");

    fs::create_dir(&place).unwrap();
    check_only(pins.path(), Map::Device, "is a directory, not a pinned BPF map");
    fs::remove_dir(&place).unwrap();

    symlink(pins.pin("nothing"), &place).unwrap();
    check_only(pins.path(), Map::Device, "is a dangling symbolic link, not a pinned BPF map");
    fs::remove_file(&place).unwrap();

    symlink(&place, &place).unwrap();
    check_only(pins.path(), Map::Device, "is a dangling symbolic link, not a pinned BPF map");
    fs::remove_file(&place).unwrap();

    symlink("/etc/passwd", &place).unwrap();
    check_only(pins.path(), Map::Device, "is a file outside any BPF file system, not a pinned BPF map");
}

#[test]
fn a_link_to_a_pinned_map_is_as_good_as_the_map() {
    let (pins, _maps) = PinDir::full();
    fs::rename(pins.pin("gpu_meta"), pins.pin("elsewhere")).unwrap();
    symlink(pins.pin("elsewhere"), pins.pin("gpu_meta")).unwrap();
    Reader::open(pins.path()).meta().unwrap();
}

#[test]
fn pinned_programs_and_links_are_no_maps() {
    let (pins, _maps) = PinDir::full();
    let build = tempfile::tempdir().unwrap();
    let (source, object) = (build.path().join("nothing.c"), build.path().join("nothing.o"));
    // An iterator can be attached, and so pinned as a link, on every kernel that has BTF.
    let text = "char LICENSE[] __attribute__((section(\"license\"), used)) = \"GPL\";\n\
                __attribute__((section(\"iter/bpf_map\"), used)) int nothing(void *context) { return 0; }\n";
    fs::write(&source, text).unwrap();
    succeed(Command::new("clang").args(["-g", "-O2", "-target", "bpf", "-c", "-o"]).arg(&object).arg(&source));

    pins.remove("gpu_per_pid");
    succeed(Command::new("bpftool").args(["prog", "load"]).arg(&object).arg(pins.pin("gpu_per_pid")));
    check_only(pins.path(), Map::PerPid, "is a pinned BPF program, not a pinned BPF map");
    pins.remove("gpu_per_pid");

    succeed(Command::new("bpftool").args(["iter", "pin"]).arg(&object).arg(pins.pin("gpu_per_pid")));
    check_only(pins.path(), Map::PerPid, "is a pinned BPF object of another kind, not a pinned BPF map");
}

#[track_caller]
fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_directory_without_maps_is_told_from_one_where_none_can_be() {
    let pins = PinDir::empty();
    check_all(pins.path(), "is a bridge running with this pin directory?", |error| matches!(error, Error::NotPinned { .. }));
    check_all(pins.pin("missing"), "there is no directory", |error| matches!(error, Error::NoDirectory { .. }));

    let plain = tempfile::tempdir().unwrap();
    let remedy = format!("mount -t bpf bpf {}", plain.path().display());
    check_all(plain.path(), &remedy, |error| matches!(error, Error::NotBpffs { .. }));

    let file = plain.path().join("file");
    fs::write(&file, "").unwrap();
    check_all(&file, "there is no directory", |error| matches!(error, Error::NoDirectory { .. }));
}

#[test]
fn a_path_that_no_file_can_have_is_an_error() {
    check_all("/sys/fs/bpf\0x", "cannot open", |error| matches!(error, Error::Open { .. }));
    check_all("x".repeat(5000), "cannot open", |error| matches!(error, Error::Open { .. }));
}

#[test]
fn only_the_maps_that_were_asked_for_are_opened() {
    let (pins, maps) = PinDir::full();
    let meta = GpuMeta { n_devices: 3, ..GpuMeta::default() };
    put(&maps.meta, 0u32, meta);
    let reader = Reader::open_only(pins.path(), &[Map::Meta]);
    assert_eq!(reader.meta().unwrap(), meta);
    assert!(matches!(reader.devices(), Err(Error::NotAskedFor { map: "gpu_device" })));
}

#[test]
fn a_reader_keeps_its_maps_when_they_are_unpinned() {
    let (pins, maps) = PinDir::full();
    let reader = Reader::open(pins.path());
    pins.remove("gpu_meta");
    let meta = GpuMeta { n_devices: 4, ..GpuMeta::default() };
    put(&maps.meta, 0u32, meta);
    assert_eq!(reader.meta().unwrap(), meta);
}
