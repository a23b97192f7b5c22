//! Numbers for people.

use std::time::Duration;

/// Bytes with a binary unit, as in `12.3 GiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    scaled(count as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A rate in kB/s, as in `1.2 GB/s`.
#[must_use]
pub fn rate(kbps: u64) -> String {
    scaled(kbps as f64, 1000.0, &["kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Milliwatts as watts, as in `312 W`.
#[must_use]
pub fn power(milliwatts: u32) -> String {
    format!("{:.0} W", f64::from(milliwatts) / 1000.0)
}

/// An age, as in `43 ms`, `2.5 s`, `7 min`, `3 h` or `12 d`.
#[must_use]
pub fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0 => format!("{} ms", age.as_millis()),
        1..60 => format!("{:.1} s", (age.as_millis() / 100) as f64 / 10.0),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A mebibyte and more is told to a tenth; the smallest unit as a whole.
fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What rounds to the base in one unit is one of the next.
    while unit + 1 < units.len() && value >= base - 0.05 {
        value /= base;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_what_a_person_would_choose() {
        assert_eq!(
            [0, 1023, 1024, 1536, 268_435_456, 85_899_345_920].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "256.0 MiB", "80.0 GiB"]
        );
        assert_eq!(bytes((1 << 30) - 1), "1.0 GiB", "not 1024.0 MiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
        assert_eq!([0, 999, 1000, 25_600_000].map(rate), ["0 kB/s", "999 kB/s", "1.0 MB/s", "25.6 GB/s"]);
        assert_eq!([0, 499, 311_600, u32::MAX].map(power), ["0 W", "0 W", "312 W", "4294967 W"]);
    }

    #[test]
    fn ages_lose_precision_as_they_grow() {
        let told = |ms| age(Duration::from_millis(ms));
        assert_eq!([0, 43, 999, 1000, 2_560, 59_999].map(told), ["0 ms", "43 ms", "999 ms", "1.0 s", "2.5 s", "59.9 s"]);
        assert_eq!([60_000, 3_599_000, 3_600_000, 172_800_000].map(told), ["1 min", "59 min", "1 h", "2 d"]);
        assert_eq!(age(Duration::from_nanos(u64::MAX)), "213503 d");
    }
}
