//! A card's hwmon directory: which of its files is which sensor.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Driver;
use crate::{
    parse::trimmed,
    sysfs::{Attribute, Files},
};

/// More sensors of one kind than any of these drivers has.
const MOST_SENSORS: u32 = 8;

/// The directory that the card's driver registered; i915 registers others for its GTs, `i915_gt0`.
pub(crate) fn find(device: &Path, driver: Driver, files: &dyn Files) -> Option<PathBuf> {
    let mut directories: Vec<_> = fs::read_dir(device.join("hwmon")).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    directories.sort();
    directories.into_iter().find(|directory| is_text(&directory.join("name"), driver.name().as_bytes(), files))
}

/// The `input` files of the sensors with these labels, in the order of the labels. Where no sensor has a label, there is only one, and
/// `unlabelled` is its number.
pub(crate) fn by_label(hwmon: &Path, kind: &str, labels: &[&str], unlabelled: u32, files: &dyn Files) -> Vec<Attribute> {
    let mut found: Vec<Option<u32>> = vec![None; labels.len()];
    let mut has_labels = false;
    for number in 1..=MOST_SENSORS {
        let mut buffer = [0; 32];
        let Ok(label) = Attribute::new(hwmon.join(format!("{kind}{number}_label"))).read(files, 0, &mut buffer).map(trimmed) else {
            continue;
        };
        has_labels = true;
        if let Some(place) = labels.iter().position(|wanted| wanted.as_bytes() == label) {
            found[place].get_or_insert(number);
        }
    }
    if !has_labels {
        found = vec![Some(unlabelled)];
    }
    found.into_iter().flatten().map(|number| Attribute::new(hwmon.join(format!("{kind}{number}_input")))).collect()
}

fn is_text(path: &Path, text: &[u8], files: &dyn Files) -> bool {
    let mut buffer = [0; 64];
    Attribute::new(path).read(files, 0, &mut buffer).is_ok_and(|found| trimmed(found) == text)
}
