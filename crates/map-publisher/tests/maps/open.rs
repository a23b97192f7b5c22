//! Taking a pin directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use gpu_types::maps::{self, MAPS, MapDefinition, MapKind};
use serde_json::Value;
use test_support::{Bpffs, names};

use crate::world::{FIVE, check_published, consumer_map, id, ids, open, pinned, refusal, round};

/// What bpftool says, as JSON.
fn bpftool(arguments: &[&str]) -> Value {
    let output = Command::new("bpftool").arg("-j").args(arguments).output().expect("bpftool is needed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn bpftool_sees_the_five_maps_of_the_contract() {
    let bpffs = Bpffs::mount();
    let _publisher = open(bpffs.path());
    assert_eq!(bpffs.pins(), FIVE);
    for (name, kind, key, value, entries, flags) in [
        ("gpu_meta", "array", 4, 32, 1, 0),
        ("gpu_device", "array", 4, 128, 16, 0),
        ("gpu_per_pid", "lru_hash", 4, 32, 4096, 0),
        ("gpu_per_pid_per_device", "lru_hash", 8, 40, 4096, 0),
        ("gpu_bridge_state", "array", 4, 4080, 1, 0x400),
    ] {
        let path = bpffs.path().join(name);
        let shown = bpftool(&["map", "show", "pinned", path.to_str().unwrap()]);
        assert_eq!(shown["type"], kind, "{name}");
        assert_eq!(shown["name"], name[..name.len().min(15)], "{name}");
        for (attribute, expected) in [("bytes_key", key), ("bytes_value", value), ("max_entries", entries), ("flags", flags)] {
            assert_eq!(shown[attribute], expected, "{name}: {attribute}");
        }
        assert!(shown["btf_id"].as_u64().is_some_and(|id| id > 0), "{name} has no BTF");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600, "{name}");
    }
}

#[test]
fn bpftool_decodes_the_fields_by_name() {
    let bpffs = Bpffs::mount();
    let mut publisher = open(bpffs.path());
    let mut records = round(77, [4711]);
    records.devices[1].fan_speed_pct = 42;
    records.processes[0].1.gpu_device_primary = 3;
    records.process_devices[0].1.mig_instance = 9;
    publisher.publish(&records).unwrap();

    let dump = |name: &str| bpftool(&["map", "dump", "pinned", bpffs.path().join(name).to_str().unwrap()]);
    let entry = |name: &str, index: usize| dump(name)[index]["formatted"]["value"].clone();
    let meta = entry("gpu_meta", 0);
    assert_eq!((&meta["schema_version"], &meta["last_update_boottime_ns"], &meta["clock_offset_ns"]), (&1.into(), &77.into(), &5.into()));
    let device = entry("gpu_device", 1);
    assert_eq!((&device["timestamp_ns"], &device["fan_speed_pct"], &device["compute_mode"]), (&77.into(), &42.into(), &0.into()));
    assert_eq!(dump("gpu_per_pid")[0]["formatted"]["key"], 4711);
    let process = entry("gpu_per_pid", 0);
    assert_eq!((&process["used_gpu_memory_total"], &process["gpu_device_primary"]), (&77.into(), &3.into()));
    let on_device = entry("gpu_per_pid_per_device", 0);
    assert_eq!((&on_device["used_gpu_memory"], &on_device["mig_instance"]), (&77.into(), &9.into()));
    let state = entry("gpu_bridge_state", 0);
    assert_eq!((&state["version"], &state["rounds"], &state["helper_pid"]), (&1.into(), &1.into(), &std::process::id().into()));
}

#[test]
fn a_directory_on_another_file_system_is_refused_and_stays_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    assert_eq!(
        refusal(dir.path()),
        format!("cannot pin gpu_meta in {path}: not a BPF file system (mount one with: mount -t bpf bpf {path})")
    );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_directory_is_not_created_on_another_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let (wanted, path) = (dir.path().join("a/b"), dir.path().display());
    assert_eq!(
        refusal(&wanted),
        format!(
            "cannot pin gpu_meta in {path}/a/b: no such directory, and {path} is not a BPF file system \
             (mount one with: mkdir -p {path}/a/b && mount -t bpf bpf {path}/a/b)"
        )
    );
    assert!(names(dir.path()).is_empty());
}

#[test]
fn missing_levels_of_a_bpffs_are_created_and_at_the_end_removed_if_they_are_empty() {
    let bpffs = Bpffs::mount();
    let dir = bpffs.path().join("a/b");
    let publisher = open(&dir);
    assert_eq!(names(&dir), FIVE);
    assert_eq!(fs::metadata(bpffs.path().join("a")).unwrap().mode() & 0o777, 0o755);
    fs::create_dir(bpffs.path().join("a/other")).unwrap();
    publisher.close(false).unwrap();
    assert_eq!(names(&bpffs.path().join("a")), ["other"]);
}

#[test]
fn a_way_that_leads_off_the_bpffs_creates_nothing_there() {
    let bpffs = Bpffs::mount();
    let text = refusal(&bpffs.path().join("a/../../off-the-bpffs/c"));
    assert!(text.contains("not a BPF file system"), "{text}");
    assert!(!bpffs.path().join("../off-the-bpffs").exists());
    assert!(bpffs.pins().is_empty(), "what was created on the way is removed");
}

#[test]
fn a_dotted_name_is_refused_with_the_reason() {
    let bpffs = Bpffs::mount();
    for dir in ["a/v1.2", "v1.2/a", "v1.2/a/b"] {
        let text = refusal(&bpffs.path().join(dir));
        assert!(text.ends_with("a BPF file system takes no names with a dot, as in \"v1.2\""), "{text}");
        assert!(bpffs.pins().is_empty());
    }
}

#[test]
fn a_file_is_no_pin_directory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for dir in [file.path(), &file.path().join("sub")] {
        let text = refusal(dir);
        assert!(text.ends_with("Not a directory (os error 20)") && !text.contains("mount -t bpf"), "{text}");
    }
}

#[test]
fn a_pin_is_no_pin_directory() {
    let bpffs = Bpffs::mount();
    consumer_map(bpffs.path(), MAPS[0]);
    let text = refusal(&bpffs.path().join("gpu_meta"));
    assert!(text.ends_with("Not a directory (os error 20)"), "{text}");
    let text = refusal(&bpffs.path().join("gpu_meta/a"));
    assert!(text.ends_with("Not a directory (os error 20)"), "{text}");
    assert_eq!(bpffs.pins(), ["gpu_meta"]);
}

#[test]
fn maps_that_consumers_created_first_are_adopted_and_filled() {
    let bpffs = Bpffs::mount();
    let theirs: Vec<u32> = {
        let mut maps: Vec<_> = MAPS.to_vec();
        maps.sort_by_key(|definition| definition.name);
        maps.iter().map(|definition| id(&consumer_map(bpffs.path(), *definition))).collect()
    };
    let mut publisher = open(bpffs.path());
    assert_eq!(ids(bpffs.path()), theirs);
    let records = round(7, [1, 2, 3]);
    publisher.publish(&records).unwrap();
    check_published(bpffs.path(), &records);
}

#[test]
fn a_part_of_the_maps_is_adopted_and_the_rest_created() {
    let bpffs = Bpffs::mount();
    let theirs = consumer_map(bpffs.path(), MAPS[2]);
    let _publisher = open(bpffs.path());
    assert_eq!(bpffs.pins(), FIVE);
    assert_eq!(id(&pinned(bpffs.path(), MAPS[2].name)), id(&theirs));
}

#[test]
fn a_bridge_that_was_killed_is_followed_by_one_with_the_same_maps() {
    let bpffs = Bpffs::mount();
    let mut first = open(bpffs.path());
    first.publish(&round(1, [1, 2])).unwrap();
    let before = ids(bpffs.path());
    drop(first);
    let _second = open(bpffs.path());
    assert_eq!(ids(bpffs.path()), before);
}

/// Changes one attribute of one map at a time, and expects that one to be named.
#[test]
fn a_map_of_another_make_is_named_with_what_differs_and_nothing_is_changed() {
    for definition in &MAPS[..4] {
        let other_kind = match definition.kind {
            MapKind::Array => MapKind::LruHash,
            MapKind::LruHash => MapKind::Array,
        };
        // An array takes no other key size: for that the kind differs too, and the kind is named first.
        let mut variants = vec![
            (MapDefinition { value_size: definition.value_size + 8, ..*definition }, "value_size"),
            (MapDefinition { max_entries: definition.max_entries + 1, ..*definition }, "max_entries"),
        ];
        match definition.kind {
            MapKind::Array => {
                variants.push((MapDefinition { kind: other_kind, ..*definition }, "type"));
                variants.push((MapDefinition { flags: maps::BPF_F_MMAPABLE, ..*definition }, "map_flags"));
            }
            MapKind::LruHash => {
                variants.push((MapDefinition { kind: other_kind, key_size: 4, ..*definition }, "type"));
                variants.push((MapDefinition { key_size: definition.key_size + 4, ..*definition }, "key_size"));
                const BPF_F_NUMA_NODE_OF_ZERO: u32 = 1 << 2;
                variants.push((MapDefinition { flags: BPF_F_NUMA_NODE_OF_ZERO, ..*definition }, "map_flags"));
            }
        }
        for (variant, attribute) in variants {
            let bpffs = Bpffs::mount();
            let theirs = consumer_map(bpffs.path(), variant);
            let text = refusal(bpffs.path());
            let expected = format!("{}/{} is another kind of map: its {attribute} is ", bpffs.path().display(), definition.name);
            assert!(text.starts_with(&expected), "{text}");
            assert_eq!(bpffs.pins(), [definition.name], "nothing is created");
            assert_eq!(id(&pinned(bpffs.path(), definition.name)), id(&theirs));
        }
    }
}

#[test]
fn a_mismatch_says_what_was_expected_and_what_was_found() {
    let bpffs = Bpffs::mount();
    let definition = maps::PER_PID;
    consumer_map(bpffs.path(), MapDefinition { max_entries: 1024, ..definition });
    assert_eq!(
        refusal(bpffs.path()),
        format!(
            "{}/gpu_per_pid is another kind of map: its max_entries is 1024, expected 4096 \
             (stop the program that made it and remove the pin)",
            bpffs.path().display()
        )
    );
}

#[test]
fn something_else_than_a_map_is_called_what_it_is() {
    fn check(prepare: impl FnOnce(&Path), found: &str) {
        let bpffs = Bpffs::mount();
        let place = bpffs.path().join("gpu_device");
        prepare(&place);
        assert_eq!(refusal(bpffs.path()), format!("{} is {found}, not a map: remove it", place.display()));
        assert_eq!(bpffs.pins(), ["gpu_device"]);
    }
    check(|place| fs::create_dir(place).unwrap(), "a directory");
    check(|place| std::os::unix::fs::symlink("nowhere", place).unwrap(), "a symbolic link that leads nowhere");
    check(pin_program, "a BPF program");
}

fn pin_program(place: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("nothing.bpf.c"), dir.path().join("nothing.bpf.o"));
    let text = "__attribute__((section(\"socket\"), used)) int nothing(void *context) { return 0; }\
                char text[] __attribute__((section(\"license\"), used)) = \"GPL\";";
    fs::write(&source, text).unwrap();
    let mut clang = Command::new("clang");
    assert!(clang.args(["-target", "bpf", "-O2", "-c"]).arg(&source).arg("-o").arg(&object).status().unwrap().success());
    assert!(Command::new("bpftool").args(["prog", "load"]).arg(&object).arg(place).status().unwrap().success());
}

#[test]
fn the_four_maps_do_without_a_place_for_the_state() {
    let bpffs = Bpffs::mount();
    let place = bpffs.path().join("gpu_bridge_state");
    fs::create_dir(&place).unwrap();
    let mut publisher = open(bpffs.path());
    publisher.set_state(|state| state.late_ticks = 1);
    let records = round(3, [1]);
    publisher.publish(&records).unwrap();
    check_published(bpffs.path(), &records);
    assert!(publisher.check_pins().unwrap().is_empty());
    publisher.close(false).unwrap();
    assert_eq!(bpffs.pins(), ["gpu_bridge_state"]);
}
