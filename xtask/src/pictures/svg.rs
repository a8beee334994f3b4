//! Converts a terminal's screen to SVG: text with colours and weights, each run at its column.

use std::fmt::Write;

const CELL: f32 = 8.4;
const LINE: f32 = 18.0;
const MARGIN: f32 = 14.0;

/// Colours 0 to 7, then the bright ones, for a dark background.
const COLOURS: [&str; 16] = [
    "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4", "#6e7681",
    "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
];
const GROUND: &str = "#0d1117";
const TEXT: &str = "#c9d1d9";

/// The style of a run of characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    colour: Option<usize>,
    bold: bool,
    dim: bool,
    reverse: bool,
}

/// A run of characters in one style, and its first column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    column: usize,
    text: String,
    look: Look,
}

/// Returns the screen as a picture, without empty lines at the end.
pub(super) fn draw(screen: &str, title: &str) -> String {
    let mut look = Look::default();
    let mut lines: Vec<Vec<Run>> = screen.lines().map(|line| runs(line, &mut look)).collect();
    while lines.last().is_some_and(|line| line.iter().all(|run| run.text.trim().is_empty())) {
        lines.pop();
    }
    let columns = lines.iter().flatten().map(|run| run.column + run.text.trim_end().chars().count()).max();
    let (width, height) =
        (number(columns.unwrap_or(0)) * CELL + 2.0 * MARGIN, number(lines.len()) * LINE + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\">\n<title>{}</title>\n<style>text{{font-family:ui-monospace,SFMono-Regular,Menlo,\
         'DejaVu Sans Mono',monospace;font-size:14px;white-space:pre}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n",
        escape(title)
    );
    for (index, line) in lines.iter().enumerate() {
        let top = MARGIN + number(index) * LINE;
        for run in line.iter().filter(|run| run.look.reverse || !run.text.trim().is_empty()) {
            let _ = svg.write_str(&element(run, top));
        }
    }
    svg + "</svg>\n"
}

fn element(run: &Run, top: f32) -> String {
    let (x, length) = (MARGIN + number(run.column) * CELL, number(run.text.chars().count()) * CELL);
    let colour = run.look.colour.and_then(|colour| COLOURS.get(colour)).copied().unwrap_or(TEXT);
    let mut text = String::new();
    let fill = if run.look.reverse {
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{LINE}\" fill=\"{colour}\"/>"
        );
        GROUND
    } else {
        colour
    };
    let weight = if run.look.bold { " font-weight=\"700\"" } else { "" };
    let opacity = if run.look.dim { " opacity=\".6\"" } else { "" };
    let _ = writeln!(
        text,
        "<text xml:space=\"preserve\" x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" fill=\"{fill}\"{weight}{opacity}>{}</text>",
        top + 13.5,
        escape(&run.text)
    );
    text
}

/// Splits a line where the style changes.
fn runs(line: &str, look: &mut Look) -> Vec<Run> {
    let mut found: Vec<Run> = Vec::new();
    let mut column = 0;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            let codes: String = rest.by_ref().skip(1).take_while(|c| !c.is_ascii_alphabetic()).collect();
            look.apply(codes.split(';').map(|code| code.parse().unwrap_or(0)));
            continue;
        }
        match found.last_mut().filter(|run| run.look == *look) {
            Some(run) => run.text.push(c),
            None => found.push(Run { column, text: c.to_string(), look: *look }),
        }
        column += 1;
    }
    found
}

impl Look {
    fn apply(&mut self, mut codes: impl Iterator<Item = usize>) {
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                7 => self.reverse = true,
                22 => (self.bold, self.dim) = (false, false),
                27 => self.reverse = false,
                30..=37 => self.colour = Some(code - 30),
                90..=97 => self.colour = Some(code - 82),
                // An indexed colour: 5 and its number.
                38 => self.colour = codes.by_ref().nth(1),
                39 => self.colour = None,
                _ => {}
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[expect(clippy::cast_precision_loss, reason = "a screen has few columns")]
fn number(count: usize) -> f32 {
    count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_where_its_look_changes() {
        let mut look = Look::default();
        let found = runs("a\u{1b}[1;31mbc\u{1b}[0m d", &mut look);
        let red = Look { colour: Some(1), bold: true, ..Look::default() };
        let run = |column, text: &str, look| Run { column, text: text.to_owned(), look };
        assert_eq!(found, [run(0, "a", Look::default()), run(1, "bc", red), run(3, " d", Look::default())]);
        assert_eq!(look, Look::default());
        runs("\u{1b}[38;5;2mx", &mut look);
        assert_eq!(look, Look { colour: Some(2), ..Look::default() }, "2 is a colour here");
    }

    #[test]
    fn a_picture_has_what_was_on_the_screen_and_no_markup_of_it() {
        let picture = draw("\u{1b}[7m<a> & b\u{1b}[0m\n\n\n", "A & B");
        assert!(picture.contains("&lt;a&gt; &amp; b</text>") && picture.contains("<title>A &amp; B</title>"));
        assert_eq!(picture.matches("<rect").count(), 2, "the background, and the reversed text");
        assert!(picture.contains(&format!("height=\"{:.0}\"", LINE + 2.0 * MARGIN)), "one line: {picture}");
    }
}
