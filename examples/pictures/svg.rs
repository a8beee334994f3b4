//! Draws admissions over time, in whole tenths of a pixel, so that the bytes are equal on every machine.

use std::fmt::Write;
use std::time::Duration;

use limitset::Algorithm;

use super::{ASKS, CAPACITY, PAUSE, Scene, WINDOW, most_in_a_window};

/// The edges of the plot within the picture, in tenths of a pixel.
const LEFT: u128 = 680;
const RIGHT: u128 = 7_000;
const TOP: u128 = 620;
const BOTTOM: u128 = 3_420;
/// Admissions at the top of the plot.
const TOP_COUNT: u128 = 50;

const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#374151}.t{font-size:15px;font-weight:600;fill:#111827}\
.e{text-anchor:end}.m{text-anchor:middle}.g{stroke:#e5e7eb}.w{stroke:#6b7280;stroke-dasharray:2 3}\
.p{fill:#f3f4f6}.r{stroke:#d97706;stroke-width:1.5;stroke-dasharray:7 4}\
.s{fill:none;stroke:#93c5fd;stroke-width:1.5}.d{fill:#1d4ed8}";

pub(super) fn draw(scene: &Scene, admissions: &[Duration]) -> String {
    let mut svg = Svg(String::new());
    svg.line(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" width=\"720\" height=\"400\">",
    );
    svg.line(&format!("<title>{}</title>", title(scene)));
    svg.line(&format!("<style>{STYLE}</style>"));
    svg.line("<rect width=\"720\" height=\"400\" rx=\"8\" fill=\"#ffffff\"/>");
    svg.text("t", 160, 260, &title(scene));
    let most = most_in_a_window(admissions);
    svg.text("", 160, 460, &format!("{} admissions, at most {most} within any one second", admissions.len()));
    plot(&mut svg, scene);
    stairs(&mut svg, admissions);
    svg.line("</svg>");
    svg.0
}

fn title(scene: &Scene) -> String {
    let burst = scene.burst.map(|burst| format!(", burst {burst}")).unwrap_or_default();
    format!("{:?}: {CAPACITY} per second{burst}, and a client that asks whenever it may", scene.algorithm)
}

/// Draws axes, window edges, the pause and the rate.
fn plot(svg: &mut Svg, scene: &Scene) {
    let (from, to) = (x(PAUSE.start), x(PAUSE.end));
    svg.line(&format!(
        "<rect class=\"p\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
        px(from),
        px(TOP),
        px(to - from),
        px(BOTTOM - TOP)
    ));
    svg.text("m", (from + to) / 2, BOTTOM - 80, "asks for nothing");
    for count in (0..=TOP_COUNT).step_by(10) {
        svg.stroke("g", (LEFT, y(count)), (RIGHT, y(count)));
        svg.text("e", LEFT - 80, y(count) + 45, &count.to_string());
    }
    let middle = px((TOP + BOTTOM) / 2);
    svg.line(&format!(
        "<text class=\"m\" x=\"24\" y=\"{middle}\" transform=\"rotate(-90 24 {middle})\">admissions so far</text>"
    ));
    for second in 0..=ASKS.end.as_secs() {
        let at = x(Duration::from_secs(second));
        let is_edge = scene.algorithm == Algorithm::FixedWindow;
        svg.stroke(if is_edge { "w" } else { "g" }, (at, TOP), (at, BOTTOM));
        svg.text("m", at, BOTTOM + 200, &format!("{second} s"));
    }
    let (start, end) = (ASKS.start.as_nanos(), ASKS.end.as_nanos());
    let by_rate = (end - start) * u128::from(CAPACITY) * 10 / WINDOW.as_nanos();
    svg.stroke("r", (x(ASKS.start), y(0)), (RIGHT, BOTTOM - by_rate * (BOTTOM - TOP) / TOP_COUNT / 10));
    legend(svg, scene);
}

fn legend(svg: &mut Svg, scene: &Scene) {
    let line = BOTTOM + 400;
    svg.line(&format!("<circle class=\"d\" cx=\"{}\" cy=\"{}\" r=\"2.5\"/>", px(LEFT + 40), px(line - 45)));
    svg.text("", LEFT + 130, line, "an admission");
    svg.stroke("r", (LEFT + 1_450, line - 45), (LEFT + 1_750, line - 45));
    svg.text("", LEFT + 1_820, line, &format!("{CAPACITY} per second"));
    if scene.algorithm == Algorithm::FixedWindow {
        svg.stroke("w", (LEFT + 3_150, line - 45), (LEFT + 3_450, line - 45));
        svg.text("", LEFT + 3_520, line, "window edge");
    }
}

/// Draws the number of admissions as it grows, and a dot for each.
fn stairs(svg: &mut Svg, admissions: &[Duration]) {
    let mut path = format!("M{} {}", px(x(ASKS.start)), px(y(0)));
    let mut dots = String::new();
    for (at, count) in admissions.iter().zip(1..) {
        let (x, y) = (px(x(*at)), px(y(count)));
        path += &format!("H{x}V{y}");
        dots += &format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"2.5\"/>\n");
    }
    path += &format!("H{}", px(RIGHT));
    svg.line(&format!("<path class=\"s\" d=\"{path}\"/>"));
    svg.line(&format!("<g class=\"d\">\n{dots}</g>"));
}

fn x(at: Duration) -> u128 {
    LEFT + at.as_nanos() * (RIGHT - LEFT) / ASKS.end.as_nanos()
}

fn y(count: u128) -> u128 {
    BOTTOM - count * (BOTTOM - TOP) / TOP_COUNT
}

/// Formats tenths of a pixel.
fn px(tenths: u128) -> String {
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

struct Svg(String);

impl Svg {
    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn text(&mut self, class: &str, x: u128, y: u128, text: &str) {
        self.line(&format!("<text class=\"{class}\" x=\"{}\" y=\"{}\">{text}</text>", px(x), px(y)));
    }

    fn stroke(&mut self, class: &str, from: (u128, u128), to: (u128, u128)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(px);
        self.line(&format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"));
    }
}
