//! A pin directory that others move, remove and take while the bridge runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gpu_types::maps::{self, MapDefinition};
use map_publisher::{PinEvent, PublishError, Publisher};
use test_support::{Bpffs, names};

use crate::pins::check_events;
use crate::world::{FIVE, check_published, consumer_map, ids, open, options, round, text};

#[test]
fn a_pin_directory_that_was_removed_is_made_and_locked_again() {
    let bpffs = Bpffs::mount();
    let dir = bpffs.path().join("gpu");
    let mut publisher = open(&dir);
    let records = round(1, [1]);
    publisher.publish(&records).unwrap();
    for name in FIVE {
        fs::remove_file(dir.join(name)).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
    let events = publisher.check_pins().unwrap();
    assert_eq!(events[0].to_string(), format!("{} had been replaced: taken again", dir.display()));
    assert_eq!(events.iter().filter(|event| matches!(event, PinEvent::Repinned { .. })).count(), 5);
    check_published(&dir, &records);
    assert!(matches!(Publisher::open(&options(&dir)), Err(PublishError::Held { .. })));
}

fn held(dir: &Path, holder: &str) -> String {
    format!(
        "{} had been replaced, and another bridge publishes there ({holder}): this one goes on for programs that hold its maps open, and takes the \
         directory when the other ends; stop one of the two",
        dir.display()
    )
}

#[test]
fn a_pin_directory_that_another_bridge_has_is_told_once_and_taken_when_it_ends() {
    let bpffs = Bpffs::mount();
    let dir = bpffs.path().join("gpu");
    let mut first = open(&dir);
    let before = ids(&dir);
    fs::rename(&dir, bpffs.path().join("old")).unwrap();
    let mut second = open(&dir);
    check_events(&mut first, &[&held(&dir, "it has not published yet")]);
    check_events(&mut first, &[]);
    second.publish(&round(1, [1])).unwrap();
    // Now it has a name.
    check_events(&mut first, &[&held(&dir, &format!("helper_pid {}", std::process::id()))]);
    check_events(&mut first, &[]);
    let records = round(2, [2]);
    first.publish(&records).unwrap();
    check_published(&bpffs.path().join("old"), &records);
    check_published(&dir, &round(1, [1]));

    second.close(false).unwrap();
    let events = first.check_pins().unwrap();
    assert_eq!(events[0].to_string(), format!("{} had been replaced: taken again", dir.display()));
    assert_eq!((ids(&dir), events.len()), (before, 6));
    check_published(&dir, &records);
    check_events(&mut first, &[]);
}

#[test]
fn another_bridges_pins_stay_when_this_one_ends() {
    let bpffs = Bpffs::mount();
    let dir = bpffs.path().join("gpu");
    let mut first = open(&dir);
    fs::rename(&dir, bpffs.path().join("old")).unwrap();
    let _second = open(&dir);
    assert_eq!(first.check_pins().unwrap().len(), 1);
    first.close(false).unwrap();
    assert_eq!(names(&dir), FIVE);
}

#[test]
fn a_pin_directory_that_comes_back_is_told_and_so_is_its_next_loss() {
    let bpffs = Bpffs::mount();
    let (dir, old, theirs) = (bpffs.path().join("gpu"), bpffs.path().join("old"), bpffs.path().join("theirs"));
    let mut first = open(&dir);
    fs::rename(&dir, &old).unwrap();
    let _second = open(&dir);
    for _ in 0..2 {
        check_events(&mut first, &[&held(&dir, "it has not published yet")]);
        check_events(&mut first, &[]);
        fs::rename(&dir, &theirs).unwrap();
        fs::rename(&old, &dir).unwrap();
        check_events(&mut first, &[&format!("{} is back in its place", dir.display())]);
        check_events(&mut first, &[]);
        fs::rename(&dir, &old).unwrap();
        fs::rename(&theirs, &dir).unwrap();
    }
}

#[test]
fn a_place_that_cannot_be_looked_at_is_an_error_and_no_event() {
    let bpffs = Bpffs::mount();
    let dir = bpffs.path().join("gpu");
    let mut publisher = open(&dir);
    fs::rename(&dir, bpffs.path().join("old")).unwrap();
    symlink(&dir, &dir).unwrap();
    for _ in 0..2 {
        let expected = format!("cannot look at the pin directory {}: Too many levels of symbolic links (os error 40)", dir.display());
        assert_eq!(text(&publisher.check_pins().unwrap_err()), expected);
    }
    fs::remove_file(&dir).unwrap();
    fs::rename(bpffs.path().join("old"), &dir).unwrap();
    check_events(&mut publisher, &[]);
}

#[test]
fn a_pin_directory_that_cannot_be_had_back_is_told_once() {
    let bpffs = Bpffs::mount();
    let dir = bpffs.path().join("gpu");
    let mut publisher = open(&dir);
    for name in FIVE {
        fs::remove_file(dir.join(name)).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
    consumer_map(bpffs.path(), MapDefinition { name: "gpu", ..maps::META });
    let text = format!(
        "{0} is gone: cannot open the pin directory {0}: Not a directory (os error 20); publishing goes on for programs that hold the maps open, \
         and they are pinned again when the directory can be had",
        dir.display()
    );
    check_events(&mut publisher, &[&text]);
    check_events(&mut publisher, &[]);
    fs::remove_file(&dir).unwrap();
    assert_eq!(publisher.check_pins().unwrap().len(), 6);
    assert_eq!(names(&dir), FIVE);
}
