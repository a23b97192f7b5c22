//! The source on the machine that the tests run on, whatever it has.

use std::{fs, path::Path, time::Duration};

use telemetry::{Answer, Now, OpenError, Reading, TelemetrySource};

use crate::machine::at;

#[test]
fn the_real_sysfs_has_cards_of_the_three_drivers_or_none_is_published() {
    match at(Path::new("/")).open() {
        Err(OpenError::NotAvailable(text)) => {
            println!("{text}");
            assert!(text.contains("/sys/class/drm"), "{text}");
            assert_eq!(cards_of_the_three_drivers(), 0, "{text}");
        }
        Err(OpenError::Failed(text)) => panic!("{text}"),
        Ok(open) => {
            assert_eq!(open.devices.len(), cards_of_the_three_drivers());
            for mut device in open.devices {
                assert!([0x1002, 0x8086].contains(&device.identity().vendor_id), "{:?}", device.identity());
                let mut reading = Reading::default();
                for tick in 1..=3 {
                    let now = Now { boottime_ns: tick * 1_000_000_000, clock_offset_ns: 0 };
                    for probe in 0..device.probes().len() {
                        let answer = device.ask(probe, now, &mut reading).unwrap();
                        assert!(matches!(answer, Answer::Answered | Answer::NotSupported));
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
                println!("{:?}: {:?}", device.identity(), reading.metrics);
                assert!(reading.metrics.sm_util_pct.is_none_or(|pct| pct <= 100));
            }
        }
    }
}

/// Counted another way than the source does.
fn cards_of_the_three_drivers() -> usize {
    let drivers = ["amdgpu", "i915", "xe"].map(|driver| Path::new("/sys/bus/pci/drivers").join(driver));
    let devices = drivers.iter().filter_map(|driver| fs::read_dir(driver).ok()).flatten().filter_map(Result::ok);
    devices
        .filter_map(|device| fs::read_dir(device.path().join("drm")).ok())
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("card"))
        .count()
}
