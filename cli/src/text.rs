//! Instants, sizes and counts as text.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use unicode_width::UnicodeWidthStr;

/// Formats an instant as `2026-11-18T03:50:00Z`.
pub(crate) fn instant(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// Returns year, month and day of a number of days since 1970, by the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

/// Formats the time since an instant, roughly: `12s`, `3min`, `5h`, `2d`.
pub(crate) fn age(at: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(at).map_or(0, |age| age.as_secs());
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}min", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a number of bytes, roughly: `364 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scale = 0;
    let mut left = bytes;
    while left >= 10_240 && scale + 1 < units.len() {
        left /= 1_024;
        scale += 1;
    }
    format!("{left} {}", units.get(scale).unwrap_or(&"bytes"))
}

/// Returns the text with control characters replaced by question marks, so that text from another user is
/// safe for a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Returns the number of terminal columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Returns a line that is safe for a terminal, and a line to print below it that marks these characters.
pub(crate) fn marked(line: &str, at: &Range<usize>) -> (String, String) {
    let line = clean(&line.replace('\t', " "));
    let columns = |from: usize, to: usize| {
        let part: String = line.chars().skip(from).take(to.saturating_sub(from)).collect();
        width(&part)
    };
    let mark = " ".repeat(columns(0, at.start)) + &"^".repeat(columns(at.start, at.end).max(1));
    (line, mark)
}

/// Formats a number of things: `1 process`, `2 processes`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns a length of time in seconds, for JSON.
pub(crate) fn seconds(length: Duration) -> f64 {
    length.as_secs_f64()
}

/// Formats a length of time, rounded down to a readable precision.
pub(crate) fn about(length: Duration) -> String {
    let round = |unit: u64| {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos / unit * unit)
    };
    let short = match length.as_secs() {
        0 if length < Duration::from_millis(1) => length,
        0..=9 => round(1_000_000),
        10..=3_599 => round(1_000_000_000),
        _ => round(60_000_000_000),
    };
    crate::grammar::show_length(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(instant(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_mark_stands_below_what_it_marks_however_wide_that_is() {
        for (line, at, mark) in [
            ("tokens=x", 7..8, "       ^"),
            ("令牌=x", 3..4, "     ^"),
            ("x=令牌", 2..4, "  ^^^^"),
            ("\u{1f680}=x", 2..3, "   ^"),
            ("e\u{301}=x", 3..4, "  ^"),
            ("\ta\u{1b}=x", 4..5, "    ^"),
            ("end", 3..4, "   ^"),
        ] {
            assert_eq!(marked(line, &at).1, mark, "{line}");
        }
        assert_eq!(marked("\ta\u{1b}=x", &(0..1)).0, " a?=x");
    }

    #[test]
    fn sizes_and_lengths_are_rounded_down() {
        assert_eq!(
            [size(5), size(10_239), size(10_240), size(u64::MAX)],
            ["5 bytes", "10239 bytes", "10 KiB", "15 EiB"]
        );
        assert_eq!(about(Duration::from_nanos(1_234_567_890)), "1s234ms");
        assert_eq!(about(Duration::from_secs(3_725)), "1h2min");
        assert_eq!(about(Duration::from_micros(7)), "7us");
    }
}
