//! Lengths of time: `30s`, `100ms`, `1h30min`.

use std::time::Duration;

use super::cursor::{BadText, Cursor};

const UNITS: [(&str, u64); 15] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("second", 1_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("minute", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("hour", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("day", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
    ("week", 604_800_000_000_000),
];

/// The units for formatting lengths, the largest first.
const SHOWN: [&str; 7] = ["day", "h", "min", "s", "ms", "us", "ns"];

const TOO_LONG: &str = "time too long: the maximum is 584 years";

/// Reads a length of time; `0` needs no unit.
pub(crate) fn length(text: &str) -> Result<Duration, BadText> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut cursor = Cursor::new(text);
    let length = lengths(&mut cursor)?;
    if !cursor.is_done() {
        return Err(cursor.expected("the end"));
    }
    Ok(length)
}

/// Reads one or more numbers with units.
pub(super) fn lengths(cursor: &mut Cursor<'_>) -> Result<Duration, BadText> {
    let from = cursor.at();
    let mut nanos = 0u64;
    loop {
        let part = one(cursor)?;
        nanos = nanos.checked_add(part).ok_or_else(|| cursor.wrong_since(from, TOO_LONG))?;
        if !cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Ok(Duration::from_nanos(nanos));
        }
    }
}

/// Reads a number with an optional fraction, and its unit.
fn one(cursor: &mut Cursor<'_>) -> Result<u64, BadText> {
    let from = cursor.at();
    let whole = cursor.take_while(|c| c.is_ascii_digit());
    if whole.is_empty() {
        return Err(cursor.expected("a length of time such as 5s, 100ms or 1h30min"));
    }
    let fraction = if cursor.take('.') { cursor.take_while(|c| c.is_ascii_digit()) } else { String::new() };
    let unit = unit(cursor)?;
    let nanos = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit));
    // Fractions of a nanosecond are dropped.
    let digits = fraction.get(..fraction.len().min(18)).unwrap_or_default();
    let scale = 10u128.pow(u32::try_from(digits.len()).unwrap_or(0));
    let part = digits.parse::<u128>().unwrap_or(0) * u128::from(unit) / scale;
    let nanos = nanos.and_then(|nanos| nanos.checked_add(u64::try_from(part).ok()?));
    nanos.ok_or_else(|| cursor.wrong_since(from, TOO_LONG))
}

/// Reads a unit and returns its nanoseconds.
pub(super) fn unit(cursor: &mut Cursor<'_>) -> Result<u64, BadText> {
    let from = cursor.at();
    let word = cursor.take_while(char::is_alphabetic);
    let found = UNITS.iter().find(|(name, _)| *name == word || format!("{name}s") == word && name.len() > 1);
    match found {
        Some((_, nanos)) => Ok(*nanos),
        None if word.is_empty() => Err(cursor.expected("a unit of time: ns, us, ms, s, min, h, day or week")),
        None => {
            let what = format!("unknown unit of time {word:?}: expected ns, us, ms, s, min, h, day or week");
            Err(cursor.wrong_since(from, what))
        }
    }
}

/// Formats a length of time in this grammar, exactly.
pub(crate) fn show_length(length: Duration) -> String {
    let mut left = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for name in SHOWN {
        let unit = UNITS.iter().find(|(unit, _)| *unit == name).map_or(1, |(_, nanos)| *nanos);
        if left >= unit {
            text += &format!("{}{name}", left / unit);
            left %= unit;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_exactly_and_shown_as_they_are_read() {
        for (text, nanos, shown) in [
            ("5s", 5_000_000_000, "5s"),
            ("100ms", 100_000_000, "100ms"),
            ("1.5s", 1_500_000_000, "1s500ms"),
            ("1h30min", 5_400_000_000_000, "1h30min"),
            ("90m", 5_400_000_000_000, "1h30min"),
            ("2days", 172_800_000_000_000, "2day"),
            ("0.000000001s", 1, "1ns"),
            ("0.0000000001s", 0, "0s"),
            ("0", 0, "0s"),
            ("18446744073709551615ns", u64::MAX, "213503day23h34min33s709ms551us615ns"),
        ] {
            assert_eq!(length(text), Ok(Duration::from_nanos(nanos)), "{text}");
            let back = show_length(Duration::from_nanos(nanos));
            assert_eq!(back, shown);
            assert_eq!(length(&back), Ok(Duration::from_nanos(nanos)));
        }
    }

    #[test]
    fn what_is_no_length_is_pointed_at() {
        for (text, at) in [
            ("", 0..1),
            ("5", 1..2),
            ("s", 0..1),
            ("5 s", 1..2),
            ("5fortnights", 1..11),
            ("5s!", 2..3),
            ("1h5", 3..4),
            ("-5s", 0..1),
            ("99999999999999999999s", 0..21),
            ("18446744073709551615ns1ns", 0..25),
        ] {
            assert_eq!(length(text).unwrap_err().at, at, "{text}");
        }
    }
}
