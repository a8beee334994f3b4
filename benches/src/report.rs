//! Writes RESULTS.md: the targets, then every bench with its question, then the machine.

use crate::batches::{Distance, Figures, Measured};
use crate::machine::Machine;
use crate::results::{Bench, Group, Results};
use crate::targets;

const HEAD: &str = "\
# Results

Written by `cargo xtask bench`; not by hand. The results are the **ratios**: the median, over interleaved rounds, of
the ratio within each round, with its 10th and 90th percentile. Absolute times are context: they are those of one
machine on one day. [README.md](README.md) says how they are measured and how to read them.

";

/// Returns the whole page.
pub fn page(results: &Results, machine: &Machine) -> String {
    let mut text = String::from(HEAD);
    text += &machine.summary();
    text += "\n## Targets\n\nComputed from this run; within 10 % counts as met.\n\n";
    text += "| target | wanted | measured | met? |\n| --- | ---: | ---: | --- |\n";
    for target in targets::all(results) {
        text +=
            &format!("| {} | {} | {} | {} |\n", target.what, target.want, target.measured, target.verdict);
    }
    text += "\n![Nanoseconds per operation, on a logarithmic axis](results.svg)\n";
    for bench in &results.benches {
        text += &of_bench(bench);
    }
    text += &machine.versions();
    text
}

fn of_bench(bench: &Bench) -> String {
    let mut text = format!("\n## {}\n\n{}\n", bench.name, bench.question);
    if bench.contended {
        text += "\nNear and far rounds are separate; rounds in which the distance changed do not count. Nanoseconds \
                 are elapsed time divided by the operations of all processes. A ratio below 2 (and above ½) is no result.\n";
    }
    for group in &bench.groups {
        let reference = bench.row(&group.reference);
        for distance in bench.distances() {
            text += &of_group(group, reference, *distance);
        }
    }
    for remark in &bench.remarks {
        text += &format!("\n{}\n", remark.trim_end());
    }
    text
}

fn of_group(group: &Group<Measured>, reference: Option<&Measured>, distance: Distance) -> String {
    let title = match distance {
        Distance::Near => format!("{}: near", group.title),
        Distance::Far => format!("{}: far", group.title),
        Distance::NoMatter | Distance::Unknown => group.title.clone(),
    };
    let contended = distance != Distance::NoMatter;
    if contended && group.rows.iter().all(|row| row.figures(distance).is_none()) {
        return format!("\n### {title}\n\nNo round.\n");
    }
    let rounds = if contended { " rounds |" } else { "" };
    let line = if contended { " ---: |" } else { "" };
    let name = reference.map_or("?", |row| row.name.as_str());
    let mut text = format!("\n### {title}\n\nRatios to: {name}.\n\n");
    text += &format!(
        "| | ns | 10–90 % |{rounds} ratio (10–90 %) | |\n| --- | ---: | ---: |{line} ---: | --- |\n"
    );
    for row in &group.rows {
        text += &of_row(row, reference, distance, contended);
    }
    text
}

fn of_row(row: &Measured, reference: Option<&Measured>, distance: Distance, contended: bool) -> String {
    let name =
        if row.whose == crate::batches::Whose::Ours { format!("**{}**", row.name) } else { row.name.clone() };
    let Some(figures) = row.figures(distance) else {
        let why = row.not_run.as_deref().unwrap_or("no round at this distance");
        let rounds = if contended { " 0 |" } else { "" };
        return format!("| {name} | not run | |{rounds} | {why} |\n");
    };
    let ratio = reference.and_then(|reference| row.ratio(reference, distance));
    let ratio = match ratio {
        Some(ratio) if reference.is_some_and(|it| it.key == row.key) => plain(ratio.median),
        Some(ratio) if contended && ratio.median > 0.5 && ratio.median < 2.0 => {
            format!("no result ({})", plain(ratio.median))
        }
        Some(ratio) => ratio_text(&ratio),
        None => "no round in common".to_owned(),
    };
    let rounds = if contended { format!(" {} |", figures.count) } else { String::new() };
    let spread = format!("{} – {}", ns(figures.low), ns(figures.high));
    format!("| {name} | {} | {spread} |{rounds} {ratio} | {} |\n", ns(figures.median), row.note)
}

/// Formats a ratio with its spread.
pub fn ratio_text(figures: &Figures) -> String {
    format!("{} ({} – {})", plain(figures.median), plain(figures.low), plain(figures.high))
}

/// Formats a number with three significant digits.
pub fn plain(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Formats nanoseconds, or a larger unit with its name.
pub fn ns(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{} ms", plain(value / 1e6)),
        value if value >= 1e4 => format!("{} µs", plain(value / 1e3)),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_matter() {
        assert_eq!([0.123, 1.234, 12.34, 123.4].map(plain), ["0.12", "1.23", "12.3", "123"]);
        assert_eq!([1.25, 345.6, 28_400.0, 2.5e7].map(ns), ["1.2", "346", "28.4 µs", "25.0 ms"]);
    }
}
