//! Draws results.svg from the numbers of the run: a bar for each row, nanoseconds on a logarithmic axis.

use std::fmt::Write;

use crate::batches::{Figures, Whose};
use crate::report::ns;
use crate::results::{Bench, Results};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 18.0;
const TITLE: f64 = 30.0;
const TOP: f64 = 64.0;
/// The axis: from 1 ns to 1 ms.
const DECADES: u32 = 6;

/// A group of bars.
struct Block {
    title: String,
    bars: Vec<(String, Whose, Figures)>,
}

pub fn svg(results: &Results) -> String {
    let blocks = blocks(results);
    let rows: usize = blocks.iter().map(|block| block.bars.len()).sum();
    let height = TOP + blocks.len() as f64 * TITLE + rows as f64 * ROW + 30.0;
    let mut out = String::new();
    draw(&mut out, &blocks, height).expect("a string takes everything");
    out
}

fn blocks(results: &Results) -> Vec<Block> {
    let mut blocks = Vec::new();
    for bench in &results.benches {
        if bench.name == "growth" || bench.name == "clocks" {
            continue;
        }
        for group in &bench.groups {
            let bars: Vec<_> = group.rows.iter().filter_map(|row| bar(bench, row)).collect();
            if !bars.is_empty() {
                blocks.push(Block { title: group.title.clone(), bars });
            }
        }
    }
    blocks
}

/// Returns the bar of a row. If there are near and far rounds, it shows the more frequent distance.
fn bar(bench: &Bench, row: &crate::batches::Measured) -> Option<(String, Whose, Figures)> {
    let figures = bench.distances().iter().filter_map(|distance| row.figures(*distance));
    let figures = figures.max_by_key(|figures| figures.count)?;
    Some((row.name.replace('`', ""), row.whose, figures))
}

fn x(value: f64) -> f64 {
    let place = value.max(1.0).log10() / f64::from(DECADES);
    LEFT + place.min(1.0) * (WIDTH - LEFT - RIGHT)
}

fn draw(out: &mut String, blocks: &[Block], height: f64) -> std::fmt::Result {
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"16\" font-weight=\"bold\">Nanoseconds per operation (logarithmic; \
         shorter is better)</text>\n\
         <text x=\"12\" y=\"42\" fill=\"#555555\">Medians of interleaved batches; the thin line is the 10th to 90th \
         percentile. Ours is dark.</text>"
    )?;
    for decade in 0..=DECADES {
        let value = 10_f64.powi(decade as i32);
        let (at, label) =
            (x(value), ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms"][decade as usize]);
        writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555555\">{label}</text>",
            height - 22.0,
            height - 8.0
        )?;
    }
    let mut y = TOP;
    for block in blocks {
        y += TITLE;
        writeln!(
            out,
            "<text x=\"12\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
            y - 8.0,
            escaped(&block.title)
        )?;
        for (name, whose, figures) in &block.bars {
            draw_bar(out, y, name, *whose, figures)?;
            y += ROW;
        }
    }
    writeln!(out, "</svg>")
}

fn draw_bar(out: &mut String, y: f64, name: &str, whose: Whose, figures: &Figures) -> std::fmt::Result {
    let (colour, weight) = if whose == Whose::Ours { ("#14507a", "bold") } else { ("#a9c4d8", "normal") };
    let (end, middle, text) = (x(figures.median), y + ROW / 2.0 - 2.0, y + ROW - 6.0);
    let (low, high) = (x(figures.low), x(figures.high));
    writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\n\
         <line x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\" stroke=\"#d9822b\" \
         stroke-width=\"2\"/>\n\
         <text x=\"{:.1}\" y=\"{text:.1}\">{}</text>",
        LEFT - 8.0,
        escaped(name),
        y + 1.0,
        (end - LEFT).max(1.0),
        ROW - 6.0,
        end.max(high) + 6.0,
        with_unit(figures.median)
    )
}

fn with_unit(value: f64) -> String {
    let text = ns(value);
    if text.ends_with('s') { text } else { format!("{text} ns") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_logarithmic_and_ends_at_its_ends() {
        assert_eq!(x(1.0), LEFT);
        assert_eq!(x(1e9), WIDTH - RIGHT);
        assert!((x(1000.0) - (LEFT + (WIDTH - LEFT - RIGHT) / 2.0)).abs() < 1e-9);
    }

    #[test]
    fn without_results_there_is_still_a_picture() {
        assert!(svg(&Results::default()).ends_with("</svg>\n"));
        assert_eq!(escaped("a<b & c"), "a&lt;b &amp; c");
    }
}
