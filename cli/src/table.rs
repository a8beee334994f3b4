//! Tables with aligned columns.

use std::io::{self, Write};

use crate::context::Context;
use crate::text;

/// Rows under a heading. Numbers are aligned to the right. Control characters in cells are replaced, because
/// a cell may contain text from another user.
pub(crate) struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| text::clean(&cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let is_number = |column: usize| {
            self.rows
                .iter()
                .all(|row| cell(row, column).starts_with(|c: char| c.is_ascii_digit() || c == '-'))
        };
        let columns: Vec<_> = self
            .heading
            .iter()
            .enumerate()
            .map(|(column, heading)| {
                let widest = self.rows.iter().map(|row| text::width(&cell(row, column))).max().unwrap_or(0);
                (widest.max(heading.len()), is_number(column) && !self.rows.is_empty())
            })
            .collect();
        let line = |cells: Vec<String>| {
            let mut text = String::new();
            for ((width, right), cell) in columns.iter().zip(cells) {
                let pad = " ".repeat(width.saturating_sub(text::width(&cell)));
                text += &if *right { format!("{pad}{cell}  ") } else { format!("{cell}{pad}  ") };
            }
            text.trim_end().to_owned()
        };
        let heading = line(self.heading.iter().map(|it| it.to_uppercase()).collect());
        writeln!(out, "{}", context.bold(&heading))?;
        for row in &self.rows {
            writeln!(out, "{}", line((0..self.heading.len()).map(|column| cell(row, column)).collect()))?;
        }
        Ok(())
    }
}
