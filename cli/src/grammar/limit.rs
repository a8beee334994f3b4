//! Limits: `calls=500/min`, `tokens=200000/min:gcra:burst=50000`, `connections=8`.

use std::ops::Range;
use std::time::Duration;

use limitset::limit::{CALL_COUNT, validate};
use limitset::{Algorithm, CallLimit, Limit, LimitStats, RateLimit, Report, ResourceLimit};

use super::cursor::{BadText, Cursor, show_key};
use super::length::{lengths, show_length, unit};
use crate::failure::Failure;

/// A limit as the user wrote it. Parts that were left out have no value yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitText {
    pub(crate) key: String,
    pub(crate) number: u64,
    window: Option<Duration>,
    options: Options,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Options {
    algorithm: Option<Algorithm>,
    burst: Option<u64>,
    resolution: Option<u32>,
    report: Option<Report>,
    is_calls: Option<bool>,
}

/// Reads the limits of one set. The library validates them.
pub(crate) fn limits<T: AsRef<str>>(texts: &[T]) -> Result<Vec<Limit>, Failure> {
    let read = |text: &T| Ok::<_, BadText>(LimitText::read(text.as_ref())?.limit());
    let limits = texts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    validate(&limits)?;
    Ok(limits)
}

impl LimitText {
    /// Reads `KEY=NUMBER[/TIME[:OPTION]...]`.
    pub(crate) fn read(text: &str) -> Result<Self, BadText> {
        let mut cursor = Cursor::new(text);
        let key = cursor.key()?;
        if !cursor.take('=') {
            return Err(cursor.expected("= and a number, as in tokens=200000/min"));
        }
        let number = cursor.number()?;
        let window = if cursor.take('/') { Some(window(&mut cursor)?) } else { None };
        let mut options = Options::default();
        while cursor.take(':') {
            let from = cursor.at();
            if window.is_none() {
                cursor.take_while(|_| true);
                let what = "only rates have options: give a time first, as in tokens=200000/min:gcra";
                return Err(cursor.wrong_since(from, what));
            }
            options.read(&mut cursor)?;
        }
        if !cursor.is_done() {
            let what =
                if window.is_none() { "/ and a time, or the end" } else { ": and an option, or the end" };
            return Err(cursor.expected(what));
        }
        Ok(Self { key, number, window, options })
    }

    /// Returns the limit that the text describes. Parts that were left out are the library's defaults.
    pub(crate) fn limit(&self) -> Limit {
        let Some(window) = self.window else { return ResourceLimit::new(&self.key, self.number).into() };
        let Options { algorithm, burst, resolution, report, is_calls } = self.options.clone();
        if is_calls.unwrap_or(self.key == CALL_COUNT) {
            let mut limit = CallLimit::new(self.number, window).key(&self.key);
            limit = algorithm.into_iter().fold(limit, CallLimit::algorithm);
            limit = burst.into_iter().fold(limit, CallLimit::burst);
            return resolution.into_iter().fold(limit, CallLimit::resolution).into();
        }
        let mut limit = RateLimit::new(&self.key, self.number, window);
        limit = algorithm.into_iter().fold(limit, RateLimit::algorithm);
        limit = burst.into_iter().fold(limit, RateLimit::burst);
        limit = resolution.into_iter().fold(limit, RateLimit::resolution);
        report.into_iter().fold(limit, RateLimit::report).into()
    }

    /// Returns the text's limit as a change of an existing limit: parts that were left out keep their current
    /// values. A burst that equals the capacity follows a change of the capacity.
    pub(crate) fn changed(&self, declared: &Limit, now: &LimitStats) -> Limit {
        let mut full = self.clone();
        full.window = self.window.or(now.window);
        let was = declared.rate_settings();
        let options = &mut full.options;
        if let Some(was) = was {
            let has_own_burst = was.algorithm.has_burst() && now.burst != now.capacity;
            options.algorithm = options.algorithm.or(Some(was.algorithm));
            options.burst = options.burst.or(has_own_burst.then_some(now.burst));
            options.resolution = options.resolution.or(was.resolution);
        }
        options.is_calls = options.is_calls.or(Some(matches!(declared, Limit::Call(_))));
        let report = if declared.must_report() { Report::Required } else { Report::Optional };
        options.report = options.report.or(Some(report));
        full.limit()
    }

    /// Returns an existing limit with its current parameters.
    pub(crate) fn live(declared: &Limit, now: &LimitStats) -> Limit {
        let same = Self {
            key: now.key.clone(),
            number: now.capacity,
            window: now.window,
            options: Options::default(),
        };
        same.changed(declared, now)
    }
}

/// Reads the time of a rate: `min`, `30s`.
fn window(cursor: &mut Cursor<'_>) -> Result<Duration, BadText> {
    match cursor.peek() {
        Some(c) if c.is_ascii_digit() => lengths(cursor),
        Some(c) if c.is_alphabetic() => unit(cursor).map(Duration::from_nanos),
        _ => Err(cursor.expected("a time such as s, min, h, day or 30s")),
    }
}

impl Options {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<(), BadText> {
        let from = cursor.at();
        let word = cursor.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-'));
        let named = from..cursor.at();
        if let Ok(algorithm) = word.parse::<Algorithm>() {
            return once(&mut self.algorithm, algorithm, cursor, &named);
        }
        match word.as_str() {
            "calls" => once(&mut self.is_calls, true, cursor, &named),
            "rate" => once(&mut self.is_calls, false, cursor, &named),
            "burst" => {
                let burst = value(cursor, "burst=50000")?.number()?;
                once(&mut self.burst, burst, cursor, &named)
            }
            "resolution" => {
                let cursor = value(cursor, "resolution=60")?;
                let from = cursor.at();
                let number = u32::try_from(cursor.number()?).map_err(|_| {
                    cursor.wrong_since(from, format!("resolution too large: the maximum is {}", u32::MAX))
                })?;
                once(&mut self.resolution, number, cursor, &named)
            }
            "report" => {
                let cursor = value(cursor, "report=optional")?;
                let from = cursor.at();
                let report = match cursor.take_while(char::is_alphabetic).as_str() {
                    "required" => Report::Required,
                    "optional" => Report::Optional,
                    _ => return Err(cursor.wrong_since(from, "expected required or optional")),
                };
                once(&mut self.report, report, cursor, &named)
            }
            "" => {
                Err(cursor.expected("an option: an algorithm, burst=, resolution=, report=, calls or rate"))
            }
            other => {
                let algorithms: Vec<_> = Algorithm::ALL.iter().map(|it| it.name()).collect();
                let what = format!(
                    "unknown option {other:?}: expected {}, burst=, resolution=, report=, calls or rate",
                    algorithms.join(", ")
                );
                Err(cursor.wrong_since(from, what))
            }
        }
    }
}

fn value<'c, 't>(cursor: &'c mut Cursor<'t>, example: &str) -> Result<&'c mut Cursor<'t>, BadText> {
    if cursor.take('=') {
        Ok(cursor)
    } else {
        Err(cursor.expected(&format!("= and a value, as in {example}")))
    }
}

fn once<T>(place: &mut Option<T>, value: T, cursor: &Cursor<'_>, at: &Range<usize>) -> Result<(), BadText> {
    if place.replace(value).is_some() {
        let wrong = cursor.wrong_since(at.start, "option given twice: remove one");
        return Err(BadText { at: at.clone(), ..wrong });
    }
    Ok(())
}

/// Formats a limit in this grammar.
pub(crate) fn show_limit(limit: &Limit) -> String {
    let mut text = format!("{}={}", show_key(limit.name()), limit.capacity());
    let Some(rate) = limit.rate_settings() else { return text };
    let one = Duration::from_secs;
    let window = match rate.window {
        it if it == one(1) => "s".to_owned(),
        it if it == one(60) => "min".to_owned(),
        it if it == one(3_600) => "h".to_owned(),
        it if it == one(86_400) => "day".to_owned(),
        other => show_length(other),
    };
    text += &format!("/{window}");
    if rate.algorithm != Algorithm::default() {
        text += &format!(":{}", rate.algorithm);
    }
    if let Some(burst) = rate.burst {
        text += &format!(":burst={burst}");
    }
    if let Some(resolution) = rate.resolution {
        text += &format!(":resolution={resolution}");
    }
    let (is_calls, would_be_calls) = (matches!(limit, Limit::Call(_)), limit.name() == CALL_COUNT);
    if is_calls != would_be_calls {
        text += if is_calls { ":calls" } else { ":rate" };
    }
    if !is_calls && !limit.must_report() {
        text += ":report=optional";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Limit {
        LimitText::read(text).unwrap().limit()
    }

    #[test]
    fn limits_are_read_and_shown_so_that_they_are_read_again() {
        for (text, limit, shown) in [
            ("calls=500/min", CallLimit::per_minute(500).into(), "calls=500/min"),
            ("call_count=500/1min", CallLimit::per_minute(500).into(), "calls=500/min"),
            (
                "\"calls\"=500/min:calls",
                CallLimit::per_minute(500).key("calls").into(),
                "\"calls\"=500/min:calls",
            ),
            ("rpd=10k/day:calls", CallLimit::per_day(10_000).key("rpd").into(), "rpd=10000/day:calls"),
            ("calls=5/s:rate", RateLimit::per_second("call_count", 5).into(), "calls=5/s:rate"),
            (
                "tokens=200_000/min:gcra:burst=50000",
                RateLimit::per_minute("tokens", 200_000).algorithm(Algorithm::Gcra).burst(50_000).into(),
                "tokens=200000/min:gcra:burst=50000",
            ),
            (
                "rows=1000/1h30min:sliding-window:resolution=60:report=optional",
                RateLimit::new("rows", 1_000, Duration::from_secs(5_400))
                    .algorithm(Algorithm::SlidingWindow)
                    .resolution(60)
                    .report(Report::Optional)
                    .into(),
                "rows=1000/1h30min:sliding_window:resolution=60:report=optional",
            ),
            ("connections=8", ResourceLimit::new("connections", 8).into(), "connections=8"),
            (
                r#""a=b \"c\" \\"=2M"#,
                Limit::from(ResourceLimit::new(r#"a=b "c" \"#, 2_000_000)),
                r#""a=b \"c\" \\"=2000000"#,
            ),
        ] {
            assert_eq!(read(text), limit, "{text}");
            assert_eq!(show_limit(&limit), shown);
            assert_eq!(read(shown), limit);
        }
    }

    #[test]
    fn what_is_no_limit_is_pointed_at() {
        for (text, at, what) in [
            ("", 0..1, "a key"),
            ("=5", 0..1, "a key"),
            ("tokens", 6..7, "expected = and a number"),
            ("tokens=", 7..8, "a whole number"),
            ("tokens=-5", 7..8, "a whole number"),
            ("tokens=5.5/s", 8..9, "/ and a time"),
            ("tokens=99999999999999999999", 7..27, "too large"),
            ("tokens=20000000000G", 7..19, "too large"),
            ("tokens=5/", 9..10, "a time"),
            ("tokens=5/fortnight", 9..18, "unknown unit of time"),
            ("tokens=5/min:", 13..14, "an option"),
            ("tokens=5/min:gcar", 13..17, "gcra"),
            ("tokens=5/min:burst", 18..19, "burst=50000"),
            ("tokens=5/min:burst=x", 19..20, "a whole number"),
            ("tokens=5/min:gcra:burst=1:burst=2", 26..31, "twice"),
            ("tokens=5/min:gcra:leaky_bucket", 18..30, "twice"),
            ("tokens=5/min:report=maybe", 20..25, "required or optional"),
            ("tokens=5/min:resolution=9999999999", 24..34, "too large"),
            ("connections=8:gcra", 14..18, "only rates have options"),
            ("tokens=5/min gcra", 12..13, "an option, or the end"),
            ("\"tokens=5", 0..9, "unclosed quote"),
        ] {
            let bad = LimitText::read(text).unwrap_err();
            assert_eq!(bad.at, at, "{text}: {bad}");
            assert!(bad.what.contains(what), "{text}: {bad}");
            let excerpt = bad.excerpt();
            let mark = excerpt.lines().nth(1).unwrap();
            assert_eq!(mark.find('^'), Some(at.start + 2), "{excerpt}");
        }
    }
}
