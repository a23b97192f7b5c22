//! Durations as on the command lines of both programs: Go's syntax (`100ms`, `1.5s`, `1m30s`, `.5s`, `1500µs`), read exactly as Go's `time.ParseDuration` reads it.

use thiserror::Error;

/// The largest magnitude that Go's parser takes while it sums up: 2^63 ns, which only a negative duration can have.
const LIMIT: u64 = 1 << 63;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Not a sequence of numbers with units.
    #[error("not a duration")]
    Malformed,
    /// A number without a unit, as in `100`.
    #[error("missing unit")]
    MissingUnit,
    /// A unit that there is not.
    #[error("unknown unit {0:?}")]
    UnknownUnit(String),
    /// More than 2^63 − 1 ns, about 292 years.
    #[error("too long")]
    TooLong,
}

/// Reads a signed sequence of decimal numbers with units (`ns`, `us`, `µs`, `μs`, `ms`, `s`, `m`, `h`) and returns nanoseconds.
///
/// Fractions of a nanosecond are cut off; `0`, `+0` and `-0` need no unit.
///
/// # Errors
/// On whatever Go's parser refuses.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError::Malformed);
    }

    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        total = total.checked_add(part).filter(|total| *total <= LIMIT).ok_or(DurationError::TooLong)?;
        rest = after;
    }

    if negative { 0i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }.ok_or(DurationError::TooLong)
}

/// Reads one number with its unit; returns its nanoseconds, at most [`LIMIT`], and the rest of the text.
fn part(text: &str) -> Result<(u64, &str), DurationError> {
    let (digits, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => split_digits(after),
        None => ("", rest),
    };
    if digits.is_empty() && fraction.is_empty() {
        return Err(DurationError::Malformed);
    }

    let whole = digits
        .bytes()
        .try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(DurationError::TooLong)?;

    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit = nanoseconds(unit)?;

    let whole = whole.checked_mul(unit).ok_or(DurationError::TooLong)?;
    let nanoseconds = whole.checked_add(fraction_of(fraction, unit)).ok_or(DurationError::TooLong)?;
    if nanoseconds > LIMIT {
        return Err(DurationError::TooLong);
    }
    Ok((nanoseconds, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.<digits>` of `unit` nanoseconds. Digits beyond 2^63 are ignored and the product goes through a double, as in Go: the same text
/// gives the same nanosecond.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale: f64 = 1.0;
    for digit in digits.bytes() {
        let Some(next) = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0'))).filter(|v| *v <= LIMIT) else {
            break;
        };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn nanoseconds(unit: &str) -> Result<u64, DurationError> {
    Ok(match unit {
        "ns" => 1,
        // U+00B5 (micro sign) and U+03BC (Greek mu) look alike.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        "" => return Err(DurationError::MissingUnit),
        other => return Err(DurationError::UnknownUnit(other.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};

    use super::{DurationError, parse};

    const US: i64 = 1_000;
    const MS: i64 = 1_000_000;
    const S: i64 = 1_000_000_000;
    const M: i64 = 60 * S;
    const H: i64 = 60 * M;

    #[track_caller]
    fn check(text: &str, expected: i64) {
        assert_eq!(parse(text), Ok(expected), "{text:?}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: DurationError) {
        assert_eq!(parse(text), Err(expected), "{text:?}");
    }

    #[test]
    fn every_form_of_the_contract_is_read() {
        check("100ms", 100 * MS);
        check("1.5s", 1_500 * MS);
        check("1m30s", M + 30 * S);
        check(".5s", 500 * MS);
        check("1500us", 1_500 * US);
        check("1500\u{b5}s", 1_500 * US);
        check("1500\u{3bc}s", 1_500 * US);
        check("2000000ns", 2 * MS);
        check("1h", H);
    }

    #[test]
    fn signs_zeros_and_odd_but_valid_forms_are_read_as_go_reads_them() {
        check("0", 0);
        check("+0", 0);
        check("-0", 0);
        check("0s", 0);
        check("5s", 5 * S);
        check("+5s", 5 * S);
        check("-5s", -5 * S);
        check("5.s", 5 * S);
        check("-.5s", -500 * MS);
        check("1.0s", S);
        check("1.004s", S + 4 * MS);
        check("1.00400s", S + 4 * MS);
        check("100.00100s", 100 * S + MS);
        check("3h30m", 3 * H + 30 * M);
        check("10.5s4m", 4 * M + 10 * S + 500 * MS);
        check("-2m3.4s", -(2 * M + 3 * S + 400 * MS));
        check("1h2m3s4ms5us6ns", H + 2 * M + 3 * S + 4 * MS + 5 * US + 6);
        check("39h9m14.425s", 39 * H + 9 * M + 14 * S + 425 * MS);
        check("52763797000ns", 52_763_797_000);
        check("0.3333333333333333333h", 20 * M);
        check("9007199254740993ns", (1 << 53) + 1);
        check("0.100000000000000000000h", 6 * M);
        check("0.830103483285477580700h", 49 * M + 48 * S + 372_539_827);
        check("0.9223372036854775807h", 55 * M + 20 * S + 413_933_267);
    }

    #[test]
    fn the_range_is_that_of_64_signed_bits_of_nanoseconds() {
        check("9223372036854775807ns", i64::MAX);
        check("9223372036854775.807us", i64::MAX);
        check("9223372036s854ms775us807ns", i64::MAX);
        check("-9223372036854775808ns", i64::MIN);
        check("-9223372036854775.808us", i64::MIN);
        check("-9223372036s854ms775us808ns", i64::MIN);
        check_error("9223372036854775808ns", DurationError::TooLong);
        check_error("9223372036854775.808us", DurationError::TooLong);
        check_error("-9223372036854775809ns", DurationError::TooLong);
        check_error("9223372036854ms775us808ns", DurationError::TooLong);
        check_error("3000000h", DurationError::TooLong);
        check_error("99999999999999999999999s", DurationError::TooLong);
        check_error("18446744073709551616ns", DurationError::TooLong);
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "-", "+", ".", "-.", ".s", "+.s", "s", "ms", "-s", "--5s", "+-5s", "abc", "\u{b5}s", " 5s", "\u{661}s"] {
            check_error(text, DurationError::Malformed);
        }
        for text in ["3", "1", "00", "5s3", "1.5", "1.2.3s"] {
            check_error(text, DurationError::MissingUnit);
        }
        for (text, unit) in
            [("1M", "M"), ("1d", "d"), ("5 s", " s"), ("5s ", "s "), ("1e3s", "e"), ("1S", "S"), ("1\0s", "\0s"), ("3\u{ff}s", "\u{ff}s")]
        {
            check_error(text, DurationError::UnknownUnit(unit.to_owned()));
        }
    }

    /// Texts that are nearly durations find more than arbitrary ones.
    fn nearly() -> impl Strategy<Value = String> {
        "[-+]?([0-9]{0,22}\\.?[0-9]{0,22}(ns|us|\u{b5}s|\u{3bc}s|ms|s|m|h|x|)){0,4}"
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            drop(parse(&text));
        }

        #[test]
        fn no_near_duration_makes_the_parser_panic(text in nearly()) {
            drop(parse(&text));
        }

        #[test]
        fn nanoseconds_are_read_back(value in any::<i64>()) {
            prop_assert_eq!(parse(&format!("{value}ns")), Ok(value));
        }

        #[test]
        fn parts_add_up(h in 0i64..1_000, m in 0i64..10_000, s in 0i64..100_000, ms in 0i64..100_000, us in 0i64..100_000, ns in 0i64..100_000) {
            prop_assert_eq!(parse(&format!("{h}h{m}m{s}s{ms}ms{us}\u{b5}s{ns}ns")), Ok(h * H + m * M + s * S + ms * MS + us * US + ns));
        }

        #[test]
        fn decimal_fractions_are_exact_to_the_nanosecond(s in 0i64..1_000, micros in 0i64..1_000_000) {
            let nanoseconds = parse(&format!("{s}.{micros:06}s")).unwrap();
            let exact = s * S + micros * US;
            // Go's double cuts off at most one nanosecond.
            assert!((exact - 1..=exact).contains(&nanoseconds), "{nanoseconds} for {exact}");
        }
    }
}
