//! The simulated cards against captures of real ones.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use drm_sim::{Profile, Tree, profiles::ALL};
use telemetry::{Memory, Metrics};
use tempfile::TempDir;

use crate::machine::{Machine, SECOND_MS, at};

/// Where captures lie: `amd/NAME/cardN` and `intel/NAME/cardN`, as in `/sys/class/drm`, links followed.
const TREES: &str = "DRM_TREES";
/// Of these there is no capture.
const OUR_OWN: [&str; 1] = ["mi300x"];

/// Files that the source reads, wherever they are.
const OF_INTEREST: [&str; 23] = [
    "gpu_busy_percent",
    "mem_busy_percent",
    "vcn_busy_percent",
    "mem_info_vram_total",
    "mem_info_vram_used",
    "mem_info_gtt_total",
    "mem_info_gtt_used",
    "gpu_metrics",
    "product_name",
    "unique_id",
    "umc_err_count",
    "act_freq",
    "cur_freq",
    "rps_act_freq_mhz",
    "rps_cur_freq_mhz",
    "gt_act_freq_mhz",
    "gt_cur_freq_mhz",
    "name",
    "pwm1",
    "in1_label",
    "runtime_status",
    "control",
    "autosuspend_delay_ms",
];
/// The same for families of names.
const FAMILIES: [(&str, &str); 7] = [
    ("temp", "_label"),
    ("temp", "_input"),
    ("freq", "_label"),
    ("freq", "_input"),
    ("energy", "_input"),
    ("throttle_reason_", ""),
    ("reason_", ""),
];

#[test]
fn profiles_show_what_real_trees_show() {
    let Some(trees) = std::env::var_os(TREES) else {
        println!("{TREES} is not set: the simulated cards were NOT compared with captures of real ones");
        return;
    };
    for profile in ALL.iter().filter(|profile| !OUR_OWN.contains(&profile.name)) {
        let card = real_card(Path::new(&trees), profile.name);
        check_files(profile, &card);
        check_figures(profile, &card);
    }
}

fn real_card(trees: &Path, name: &str) -> PathBuf {
    let tree = ["amd", "intel"].map(|vendor| trees.join(vendor).join(name)).into_iter().find(|tree| tree.is_dir());
    let tree = tree.unwrap_or_else(|| panic!("{} has no {name}", trees.display()));
    let cards = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().path());
    cards.into_iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("card")).unwrap()
}

/// The same files, with the same words and kinds of figures in them.
fn check_files(profile: &Profile, card: &Path) {
    let name = profile.name;
    let place = |file: &str| file.strip_prefix("card/").map_or_else(|| card.join("device").join(file), |file| card.join(file));
    for (file, ours) in profile.files {
        if profile.supplied.contains(file) || *file == "pcie_bw" && !place(file).exists() {
            continue;
        }
        let real = fs::read(place(file)).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
        let real = String::from_utf8(real).unwrap();
        let real = real.trim_matches(['\0', '\n', ' ']);
        let is_number = |text: &str| text.split(' ').all(|word| word.parse::<i64>().is_ok());
        let ours = ours.trim();
        match *file {
            "unique_id" => assert_eq!(real.len(), ours.len(), "{name}: {file}"),
            "power/control" | "power/runtime_status" => assert_eq!(real, ours, "{name}: {file}"),
            _ if is_number(ours) => assert!(is_number(real), "{name}: {file}: {real:?}"),
            _ => assert_eq!(real, ours, "{name}: {file}"),
        }
    }
    let known: BTreeSet<&str> =
        profile.files.iter().map(|(file, _)| *file).chain(profile.table.is_some().then_some("gpu_metrics")).collect();
    for file in files_of_interest(card) {
        assert!(known.contains(file.as_str()), "{name}: the real one has {file}");
    }
    if let Some(table) = &profile.table {
        let real = fs::read(place("gpu_metrics")).unwrap();
        assert_eq!(real[..4], table.bytes()[..4], "{name}: size and version");
    }
}

/// What the source would read of a card: of its own directories, not of others that its device has.
fn files_of_interest(card: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let device = card.join("device");
    let hwmons: Vec<_> = fs::read_dir(device.join("hwmon")).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    let mut look = |directory: &Path, prefix: String| {
        for entry in fs::read_dir(directory).into_iter().flatten().map(Result::unwrap) {
            let file = entry.file_name().into_string().unwrap();
            let is_family = FAMILIES.iter().any(|(start, end)| file.starts_with(start) && file.ends_with(end));
            let has_text = fs::read(entry.path()).is_ok_and(|text| text.iter().any(|byte| !matches!(byte, 0 | b'\n')));
            // A capture of a file that failed is empty.
            if (is_family || OF_INTEREST.contains(&file.as_str())) && has_text {
                found.push(format!("{prefix}{file}"));
            }
        }
    };
    look(card, "card/".to_owned());
    look(&card.join("gt/gt0"), "card/gt/gt0/".to_owned());
    look(&device, String::new());
    look(&device.join("power"), "power/".to_owned());
    look(&device.join("tile0/gt0/freq0"), "tile0/gt0/freq0/".to_owned());
    look(&device.join("tile0/gt0/freq0/throttle"), "tile0/gt0/freq0/throttle/".to_owned());
    for hwmon in hwmons {
        let name = hwmon.file_name().unwrap().to_str().unwrap().to_owned();
        look(&hwmon, format!("hwmon/{name}/"));
    }
    found
}

/// The source publishes the same fields of both.
fn check_figures(profile: &Profile, card: &Path) {
    let root = TempDir::new().unwrap();
    let class = root.path().join("sys/class/drm");
    fs::create_dir_all(&class).unwrap();
    symlink(card, class.join(card.file_name().unwrap())).unwrap();
    let real = published(Machine::of(at(root.path())));
    let tree = Tree::new();
    tree.add(0, profile);
    let ours = published(Machine::open(&tree));
    assert_eq!(real, ours, "{}", profile.name);
}

/// The name, and which fields there are; those aside that are no part of a capture, clients and what is counted over time.
fn published(mut machine: Machine) -> (String, Metrics) {
    machine.tick(SECOND_MS);
    machine.tick(SECOND_MS);
    let there = |value: Option<u32>| value.map(|_| 1);
    let metrics = machine.metrics(0);
    let fields = Metrics {
        mem_util_pct: there(metrics.mem_util_pct),
        memory: metrics.memory.map(|_| Memory::default()),
        temp_c: there(metrics.temp_c),
        power_mw: there(metrics.power_mw),
        sm_clock_mhz: there(metrics.sm_clock_mhz),
        mem_clock_mhz: there(metrics.mem_clock_mhz),
        throttle_reasons: metrics.throttle_reasons.map(|_| 1),
        fan_speed_pct: there(metrics.fan_speed_pct),
        enc_util_pct: there(metrics.enc_util_pct),
        dec_util_pct: there(metrics.dec_util_pct),
        ecc_corrected_total: metrics.ecc_corrected_total.map(|_| 1),
        ecc_uncorrected_total: metrics.ecc_uncorrected_total.map(|_| 1),
        ..Metrics::default()
    };
    (machine.lanes[0].device.identity().name.clone(), fields)
}
