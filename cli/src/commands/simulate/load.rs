//! The requests of a simulation.

use std::fs;
use std::path::Path;
use std::time::Duration;

use limitset::Limit;

use super::Args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::grammar;

/// The maximum number of requests: more would take too long and could not be plotted.
const MOST_REQUESTS: u128 = 5_000_000;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) at: Duration,
    /// The amounts by key. Keys that are not named get the library's defaults.
    pub(super) amounts: Vec<(String, u64)>,
    pub(super) hold: Duration,
    /// The line in the trace, for messages.
    pub(super) line: Option<usize>,
}

/// All requests, in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) asks: Vec<Ask>,
    /// The time after which no more requests arrive.
    pub(super) end: Duration,
}

impl Load {
    /// Returns a load of equal requests at a steady rate.
    pub(super) fn steady(args: &Args) -> Result<Self, Failure> {
        let every = grammar::length(&args.every)?;
        let end = grammar::length(&args.lasting)?;
        let hold = grammar::length(&args.hold)?;
        let needs = grammar::needs(&args.need)?;
        let amounts: Vec<_> =
            needs.amounts().into_iter().map(|(key, amount)| (key.to_owned(), amount)).collect();
        if every.is_zero() || end.as_nanos() / every.as_nanos().max(1) > MOST_REQUESTS {
            let message = format!(
                "too many requests: every {} for {} is more than {MOST_REQUESTS}; use a longer --every or a shorter --for",
                args.every, args.lasting
            );
            return Err(Failure::usage(message));
        }
        let mut asks = Vec::new();
        let mut at = Duration::ZERO;
        while at < end {
            asks.push(Ask { at, amounts: amounts.clone(), hold, line: None });
            at += every;
        }
        Ok(Self { asks, end })
    }

    /// Reads a load from a CSV file with a heading.
    pub(super) fn from_trace(path: &Path, limits: &[Limit]) -> Result<Self, Failure> {
        let about = |error: std::io::Error| Failure::from(error).about(path.display());
        let text = fs::read_to_string(path).map_err(about)?;
        // Spreadsheets write a byte order mark, which is not part of the first heading.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        read(text, limits).map_err(|failure| failure.about(path.display()))
    }
}

/// The meaning of a column.
enum Column {
    Time,
    Hold,
    Amount(String),
}

fn read(text: &str, limits: &[Limit]) -> Result<Load, Failure> {
    let wrong = |line: usize, message: String| {
        Failure::new(Exit::Usage, "bad_trace", format!("line {line}: {message}"))
    };
    let is_content = |(_, line): &(usize, &str)| !line.trim().is_empty() && !line.starts_with('#');
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(is_content);
    let (number, heading) = lines.next().ok_or_else(|| {
        wrong(1, "unexpected end of file, expected a heading such as time,tokens".to_owned())
    })?;
    let mut columns = Vec::new();
    for name in heading.split(',').map(cell) {
        // Keys are spelled as on the command line: `calls` stands for `call_count`.
        let written = limits.iter().find(|limit| grammar::show_key(limit.name()) == name);
        let name = written.map_or(name, |limit| limit.name().to_owned());
        columns.push(match name.as_str() {
            "time" => Column::Time,
            "hold" if !limits.iter().any(|limit| limit.name() == "hold") => Column::Hold,
            key if limits.iter().any(|limit| limit.name() == key) => Column::Amount(name),
            key => {
                let known: Vec<_> = limits.iter().map(Limit::name).collect();
                let message =
                    format!("unknown column {key:?}: expected time, hold or a limit ({})", known.join(", "));
                return Err(wrong(number, message));
            }
        });
    }
    if !columns.iter().any(|column| matches!(column, Column::Time)) {
        return Err(wrong(number, format!("missing column \"time\": found {heading:?}")));
    }
    let mut asks = Vec::new();
    for (number, line) in lines {
        let cells: Vec<_> = line.split(',').map(cell).collect();
        if cells.len() != columns.len() {
            let message =
                format!("found {} values, expected {} as in the heading", cells.len(), columns.len());
            return Err(wrong(number, message));
        }
        let mut ask =
            Ask { at: Duration::ZERO, amounts: Vec::new(), hold: Duration::ZERO, line: Some(number) };
        for (column, value) in columns.iter().zip(cells) {
            let seconds = || {
                let seconds = value.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
                seconds.ok_or_else(|| {
                    wrong(number, format!("{value:?} is not a number of seconds: expected one such as 0.25"))
                })
            };
            match column {
                Column::Time => ask.at = seconds()?,
                Column::Hold if value.is_empty() => {}
                Column::Hold => ask.hold = seconds()?,
                Column::Amount(_) if value.is_empty() => {}
                Column::Amount(key) => {
                    let amount = value.parse().map_err(|_| {
                        wrong(number, format!("{value:?} is not an amount: expected a whole number"))
                    })?;
                    ask.amounts.push((key.clone(), amount));
                }
            }
        }
        asks.push(ask);
    }
    // Logs are often written when requests end, not when they begin.
    asks.sort_by_key(|ask| ask.at);
    let end = asks.last().map_or(Duration::ZERO, |ask| ask.at);
    Ok(Load { asks, end })
}

/// Returns a value without its quotes.
fn cell(text: &str) -> String {
    let text = text.trim();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use limitset::{RateLimit, ResourceLimit};

    use super::*;

    fn limits() -> [Limit; 2] {
        [RateLimit::per_minute("tokens", 5).into(), ResourceLimit::new("db", 1).into()]
    }

    #[test]
    fn a_trace_is_read_in_order_of_time() {
        let load = read("# a log\ntime, \"tokens\",hold\n1.5,3,\n\n0,1,2\n", &limits()).unwrap();
        let seconds = Duration::from_secs_f64;
        let ask = |at, tokens, hold, line| {
            let amounts = vec![("tokens".to_owned(), tokens)];
            Ask { at: seconds(at), amounts, hold: seconds(hold), line: Some(line) }
        };
        assert_eq!(load.asks, [ask(0.0, 1, 2.0, 5), ask(1.5, 3, 0.0, 3)]);
        assert_eq!(load.end, seconds(1.5));
    }

    #[test]
    fn what_is_wrong_with_a_trace_is_said_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("tokens\n1\n", 1),
            ("time,other\n0,1\n", 1),
            ("time,tokens\n0\n", 2),
            ("time,tokens\n0,1\nx,1\n", 3),
            ("time,tokens\n-1,1\n", 2),
            ("time,tokens\n0,1.5\n", 2),
        ] {
            let message = read(text, &limits()).unwrap_err().message;
            assert!(message.starts_with(&format!("line {line}: ")), "{text:?}: {message}");
        }
    }
}
