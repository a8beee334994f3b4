//! Plots the admitted requests over time, with the denied ones on top.

use std::io::{self, Write};
use std::time::Duration;

use super::Bucket;
use crate::context::Context;
use crate::text;

const HEIGHT: usize = 8;

/// Draws a plot in which `most` is the full height. Compared plots share it.
pub(super) fn plot(
    buckets: &[Bucket],
    most: usize,
    context: &Context,
    out: &mut dyn Write,
) -> io::Result<()> {
    let most = most.max(1);
    // A count above 0 gets at least one line.
    let lines = |count: usize| (count * HEIGHT).div_ceil(most);
    for line in (1..=HEIGHT).rev() {
        let label = if line == HEIGHT { most.to_string() } else { String::new() };
        let mut row = String::new();
        for bucket in buckets {
            let admitted = lines(bucket.admitted);
            row += &if line <= admitted {
                context.good("█")
            } else if line
                <= lines(bucket.admitted + bucket.denied).max(admitted + usize::from(bucket.denied > 0))
            {
                context.bad("░")
            } else {
                " ".to_owned()
            };
        }
        writeln!(out, "{label:>8} ┤{}", row.trim_end())?;
    }
    writeln!(out, "{:>8} └{}", 0, "─".repeat(buckets.len()))?;
    let step = buckets.get(1).map_or(0.0, |bucket| bucket.from_seconds);
    let end = step * f64::from(u32::try_from(buckets.len()).unwrap_or(0));
    let length = |seconds: f64| text::about(Duration::from_secs_f64(seconds));
    let right = length(end);
    writeln!(out, "{:>10}{:<width$}{right}", "", 0, width = buckets.len().saturating_sub(right.len()))?;
    writeln!(
        out,
        "{:>10}{} admitted  {} denied, per {}",
        "",
        context.good("█"),
        context.bad("░"),
        length(step)
    )
}
