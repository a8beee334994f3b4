//! Draws the screen: sets at the top, the limits of the selected set in the middle, its participants and
//! their holdings at the bottom. Everything fits on 80 columns and 24 lines; on a larger screen the bars, the
//! history and the lists get more room.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::state::{Panel, State, Watched, percent};
use crate::commands::show::{Shown, ShownLimit, ShownParticipant};
use crate::grammar::show_key;
use crate::text;

const EIGHTHS: [&str; 8] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
const LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const KEYS: &str = " q end  up/down select  Tab switch  s sort  r reverse  space pause  +/- pace";

/// Colours, or bold and reverse video where there are none.
#[derive(Clone, Copy)]
struct Paint {
    has_colour: bool,
}

impl Paint {
    fn colour(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// Returns the style for a usage: green, yellow or red.
    fn level(self, percent: u64) -> Style {
        self.colour(match percent {
            0..=69 => Color::Green,
            70..=94 => Color::Yellow,
            _ => Color::Red,
        })
    }

    fn faint(self) -> Style {
        if self.has_colour {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn selected(self, is_here: bool) -> Style {
        if is_here {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new().add_modifier(Modifier::BOLD)
        }
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, interval: Duration) {
    let paint = Paint { has_colour: state.has_colour() };
    let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let limits = state.selected().and_then(|set| set.shown.as_ref()).map_or(0, |shown| shown.limits.len());
    let height = usize::from(frame.area().height);
    let sets = lines(state.sets().len().clamp(1, (height / 5).max(1)) + 1);
    let limits = lines(limits.clamp(1, (height / 3).max(1)) + 1);
    let rows = [1, sets, 1, limits, 1].map(Constraint::Length);
    let rows = [&rows[..], &[Constraint::Fill(1), Constraint::Length(1)]].concat();
    let parts = Layout::vertical(rows).split(frame.area());
    let part = |index: usize| parts.get(index).copied().unwrap_or_default();
    put(frame, part(0), vec![title(state, interval, paint)]);
    let (area, selected) = (part(1), state.set_panel.selected);
    put(frame, area, list(area, set_heading(state), set_lines(state, area, paint), selected, paint));
    put(frame, part(2), vec![rule(state, part(2), paint)]);
    put(frame, part(3), limit_lines(state, part(3), paint));
    put(frame, part(4), vec![trouble_line(state, paint)]);
    let (area, selected) = (part(5), state.process_panel.selected);
    put(frame, area, list(area, process_heading(state), process_lines(state, area, paint), selected, paint));
    put(frame, part(6), vec![Line::styled(KEYS, paint.faint())]);
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

/// Draws a heading and as many lines as fit, including the selected one.
fn list<'a>(
    area: Rect,
    heading: String,
    lines: Vec<Line<'a>>,
    selected: usize,
    paint: Paint,
) -> Vec<Line<'a>> {
    let room = usize::from(area.height).saturating_sub(1);
    let skip = (selected + 1).saturating_sub(room);
    let heading = Line::styled(heading, paint.strong());
    std::iter::once(heading).chain(lines.into_iter().skip(skip).take(room)).collect()
}

fn title(state: &State, interval: Duration, paint: Paint) -> Line<'static> {
    let sets = text::count(state.sets().len() as u64, "set", "sets");
    let processes: usize = state.shown().map(|shown| shown.participants.len()).sum();
    let processes = text::count(processes as u64, "process", "processes");
    let waiters: u64 = state.shown().map(|shown| shown.waiters).sum();
    let pace =
        if state.stands_still() { "paused".to_owned() } else { format!("every {}", text::about(interval)) };
    Line::from(vec![
        Span::styled(" limitset top ", paint.strong()),
        Span::raw(format!(" {sets}, {processes}, {waiters} waiting, {pace}")),
    ])
}

fn sorted(panel: &Panel) -> String {
    format!("by {}{}", panel.order.name(), if panel.is_turned { ", reversed" } else { "" })
}

fn set_heading(state: &State) -> String {
    format!(
        " {:<24} {:>9} {:>7} {:<18} {:>8}  {}",
        "SET",
        "PROCESSES",
        "WAITING",
        "FULLEST LIMIT",
        "GRANTS/S",
        sorted(&state.set_panel)
    )
}

fn set_lines(state: &State, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    if state.sets().is_empty() {
        return vec![Line::styled(" no sets: create one with `limitset create`", paint.faint())];
    }
    let line = |(index, set): (usize, &Watched)| {
        let name = if index == state.set_panel.selected {
            Span::styled(fit(&format!(" {}", set.name), 25), paint.selected(!state.is_in_processes))
        } else {
            Span::raw(fit(&format!(" {}", set.name), 25))
        };
        if let Some(trouble) = &set.trouble {
            let text = format!(" {}", trouble.message);
            let text = fit(&text, usize::from(area.width).saturating_sub(25));
            return Line::from(vec![name, Span::styled(text, paint.colour(Color::Red))]);
        }
        let Some(shown) = &set.shown else { return Line::from(vec![name]) };
        let used = set.percent();
        let mut spans = vec![name, Span::raw(format!(" {:>9} ", shown.participants.len()))];
        let waiting = if shown.waiters > 0 { paint.colour(Color::Yellow) } else { Style::new() };
        spans.push(Span::styled(format!("{:>7} ", shown.waiters), waiting));
        spans.extend(bar(used, 12, paint));
        spans.push(Span::styled(format!(" {:>5}", format!("{used}%")), paint.level(used)));
        spans.push(Span::raw(format!(" {:>8}", speed(set.speed()))));
        if let Some(left) = pause(shown) {
            spans.push(Span::styled(format!("  cooling {left:.1}s"), paint.colour(Color::Yellow)));
        }
        Line::from(spans)
    };
    state.sets().iter().enumerate().map(line).collect()
}

fn pause(shown: &Shown) -> Option<f64> {
    shown.cooldown.remaining_seconds.or(shown.cooldown.next_admission_seconds)
}

fn rule(state: &State, area: Rect, paint: Paint) -> Line<'static> {
    let name = state.selected().map_or_else(String::new, |set| format!(" {} ", set.name));
    let config = state.selected().and_then(|set| set.shown.as_ref()).map_or_else(String::new, |shown| {
        shown.config.iter().map(|(key, value)| format!("{key}={value} ")).collect()
    });
    let left = usize::from(area.width).saturating_sub(2 + name.chars().count() + config.chars().count());
    Line::from(vec![
        Span::styled("──", paint.faint()),
        Span::styled(name, paint.strong()),
        Span::styled(config, paint.faint()),
        Span::styled("─".repeat(left), paint.faint()),
    ])
}

fn limit_lines(state: &State, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    // The bar and the history each get half of the remaining width.
    let free = width.saturating_sub(17 + 7 + 18 + 9 + 10).max(8);
    let (bar_width, past_width) = (free / 2, free - free / 2);
    let heading = format!(
        " {:<16}{:<bar_width$}  {:>4}{:>18}{:>9}{:>9}  PAST",
        "LIMIT", "USED", "", "", "WAITING", "GRANTS/S"
    );
    let mut lines = vec![Line::styled(heading, paint.strong())];
    let Some(set) = state.selected() else { return lines };
    let Some(shown) = &set.shown else { return lines };
    let line = |limit: &ShownLimit| {
        let used = percent(limit);
        let mut spans = vec![Span::raw(fit(&format!(" {}", show_key(&limit.key)), 17))];
        spans.extend(bar(used, bar_width, paint));
        spans.push(Span::styled(format!(" {:>5}", format!("{used}%")), paint.level(used)));
        let of = format!("{}/{}", short(limit.in_use.saturating_add(limit.debt)), short(limit.burst));
        let per = limit.window_seconds.map_or_else(String::new, |window| {
            let window = text::about(Duration::from_secs_f64(window.max(0.0)));
            // Write `min`, not `1min`, as in the grammar.
            let one = window.strip_prefix('1').filter(|unit| unit.chars().all(char::is_alphabetic));
            format!(" {}/{}", short(limit.capacity), one.unwrap_or(&window))
        });
        spans.push(Span::raw(format!(" {:>17}", fit_left(&format!("{of}{per}"), 17))));
        let waiting = if limit.waiting > 0 { paint.colour(Color::Yellow) } else { Style::new() };
        spans.push(Span::styled(format!("{:>9}", short(limit.waiting)), waiting));
        spans.push(Span::raw(format!("{:>9}  ", speed(set.limit_speed(&limit.key)))));
        let past = set.past(&limit.key, past_width).into_iter();
        let columns =
            past.map(|it| LEVELS.get(usize::try_from(it * 7 / 100).unwrap_or(7)).copied().unwrap_or("█"));
        spans.push(Span::styled(columns.collect::<String>(), paint.colour(Color::Cyan)));
        Line::from(spans)
    };
    let room = usize::from(area.height).saturating_sub(1);
    let hidden = shown.limits.len().saturating_sub(room);
    let shown_lines = if hidden > 0 { room.saturating_sub(1) } else { room };
    lines.extend(shown.limits.iter().take(shown_lines).map(line));
    if hidden > 0 {
        let text = format!(" and {} more limits: make the window higher", hidden + 1);
        lines.push(Line::styled(text, paint.faint()));
    }
    lines
}

/// Returns the line about exceptional states: a pause, deaths, requests that were not limited.
fn trouble_line(state: &State, paint: Paint) -> Line<'static> {
    let Some(set) = state.selected() else { return Line::default() };
    if let Some(trouble) = &set.trouble {
        let text = format!(" last known state; now: {}", trouble.message);
        return Line::styled(text, paint.colour(Color::Red));
    }
    let Some(shown) = &set.shown else { return Line::default() };
    let mut spans = Vec::new();
    match pause(shown) {
        Some(left) => spans.push(Span::styled(
            format!(" cooling down for {left:.1}s ({} reports)", shown.cooldown.reports),
            paint.colour(Color::Yellow),
        )),
        None => spans.push(Span::styled(" not cooling down", paint.faint())),
    }
    let counts = &shown.counts;
    let deaths = format!(
        "  after deaths: {} rolled back, {} returned",
        text::count(counts.recoveries, "update", "updates"),
        text::count(counts.reaped_permits, "permit", "permits"),
    );
    let any = counts.recoveries > 0 || counts.reaped_permits > 0;
    spans.push(Span::styled(deaths, if any { paint.colour(Color::Magenta) } else { paint.faint() }));
    if counts.unenforced > 0 {
        let text = format!("  {} not limited", counts.unenforced);
        spans.push(Span::styled(text, paint.colour(Color::Red)));
    }
    Line::from(spans)
}

fn process_heading(state: &State) -> String {
    let by = sorted(&state.process_panel);
    format!(" {:>4} {:>8} {:<16} {:<8} HOLDS ({by})", "SLOT", "PID", "COMMAND", "SINCE")
}

fn process_lines(state: &State, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let processes = state.processes();
    if processes.is_empty() {
        return vec![Line::styled(" no process is attached", paint.faint())];
    }
    let selected = state.process_panel.selected.min(processes.len() - 1);
    let line = |(index, it): (usize, &&ShownParticipant)| {
        let number = |it: Option<u64>| it.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let command = it.command.clone().unwrap_or_else(|| "(dead)".to_owned());
        // The time of day is enough to tell the processes apart.
        let since = it.enrolled.as_ref().and_then(|it| it.get(11..19)).unwrap_or("-").to_owned();
        let text = format!(" {:>4} {:>8} {} {since:<8} ", it.slot, number(it.pid), fit(&command, 16));
        let held = it.holds.iter().map(|(key, amount)| format!("{}={amount}", show_key(key)));
        let owed =
            it.owes_reports.iter().map(|(key, count)| format!("{count} reports due of {}", show_key(key)));
        let holds = held.chain(owed).collect::<Vec<_>>().join(" ");
        let holds = fit(&holds, usize::from(area.width).saturating_sub(text.chars().count()));
        let style = match (index == selected && state.is_in_processes, it.alive) {
            (true, _) => paint.selected(true),
            (_, false) => paint.colour(Color::Red),
            _ => Style::new(),
        };
        let held = if it.holds.is_empty() || index == selected && state.is_in_processes {
            style
        } else {
            paint.colour(Color::Green)
        };
        Line::from(vec![Span::styled(text, style), Span::styled(holds, held)])
    };
    processes.iter().enumerate().map(line).collect()
}

/// Draws a bar of a number of columns, in eighths.
fn bar(percent: u64, width: usize, paint: Paint) -> Vec<Span<'static>> {
    let eighths = usize::try_from(percent.min(100)).unwrap_or(100) * width * 8 / 100;
    let mut full = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        full += EIGHTHS.get(eighths % 8).copied().unwrap_or(" ");
    }
    let rest = "·".repeat(width.saturating_sub(full.chars().count()));
    vec![Span::styled(full, paint.level(percent)), Span::styled(rest, paint.faint())]
}

/// Returns the text in exactly this many columns: cut with an ellipsis, or padded.
fn fit(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let length = text.chars().count();
    if length <= width {
        return text + &" ".repeat(width - length);
    }
    text.chars().take(width.saturating_sub(1)).chain(std::iter::once('…').take(width)).collect()
}

/// Returns the text in at most this many columns.
fn fit_left(text: &str, width: usize) -> String {
    fit(text, width).trim_end().to_owned()
}

/// Formats a number in at most six characters.
fn short(number: u64) -> String {
    match number {
        0..=9_999 => number.to_string(),
        10_000..=9_999_999 => format!("{}k", number / 1_000),
        10_000_000..=9_999_999_999 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

fn speed(per_second: f64) -> String {
    match per_second {
        it if it >= 1e6 => format!("{:.1}M", it / 1e6),
        it if it >= 1e4 => format!("{:.0}k", it / 1e3),
        it if it >= 100.0 => format!("{it:.0}"),
        it => format!("{it:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_exactly_the_width_they_shall_have() {
        assert_eq!([fit("ab", 4), fit("abcdef", 4), fit("a\x1bb", 3)], ["ab  ", "abc…", "a?b"]);
        assert_eq!(fit("abc", 0), "");
        for percent in [0, 1, 50, 99, 100, 250, u64::MAX] {
            let spans = bar(percent, 13, Paint { has_colour: true });
            assert_eq!(spans.iter().map(|span| span.content.chars().count()).sum::<usize>(), 13, "{percent}");
        }
        for number in [0, 9_999, 10_000, 9_999_999, 10_000_000, u64::MAX / 1_000_000_000] {
            assert!(short(number).len() <= 11, "{number}");
        }
    }
}
