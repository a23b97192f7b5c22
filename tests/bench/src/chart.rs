//! Line charts as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 160.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 4] = ["#1b6ca8", "#c8553d", "#3a7d44", "#7a4f9a"];
const TICKS: usize = 5;

/// A chart with a linear scale from 0 upwards, and any number of lines.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_title: &'a str,
    /// Stands at the top of the y axis.
    pub(crate) y_unit: &'a str,
    /// Whether the x axis is logarithmic.
    pub(crate) is_logarithmic: bool,
    pub(crate) lines: Vec<Line<'a>>,
}

/// A line and its name.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Chart<'_> {
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let largest_y = round_up(points().map(|point| point.1).fold(0.0, f64::max));
        let scaled = |x: f64| if self.is_logarithmic { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (first, last) = points().map(|point| scaled(point.0)).fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
        let first = if self.is_logarithmic { first } else { 0.0 };
        let x = |value: f64| LEFT + (scaled(value) - first) / (last - first).max(f64::MIN_POSITIVE) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / largest_y * (HEIGHT - TOP - BOTTOM);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, LEFT, 22.0, "start", 15, self.title);
        text(&mut svg, WIDTH - RIGHT, HEIGHT - 10.0, "end", 12, self.x_title);
        for tick in 0..=TICKS {
            let value = largest_y * tick as f64 / TICKS as f64;
            let at = y(value);
            let right = WIDTH - RIGHT;
            // Writing to a string has no way to fail.
            writeln!(svg, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>").ok();
            let unit = if tick == TICKS { format!(" {}", self.y_unit) } else { String::new() };
            text(&mut svg, LEFT - 8.0, at + 4.0, "end", 12, &format!("{}{unit}", number(value)));
        }
        let mut marks: Vec<f64> = points().map(|point| point.0).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        for mark in marks {
            text(&mut svg, x(mark), HEIGHT - BOTTOM + 18.0, "middle", 12, &number(mark));
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let path: Vec<_> = line.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
            writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" ")).ok();
            for point in &line.points {
                writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(point.0), y(point.1)).ok();
            }
            if let Some(end) = line.points.last() {
                text(&mut svg, x(end.0) + 8.0, y(end.1) + 4.0, "start", 12, line.name);
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>").ok();
}

/// Thousands apart, a decimal where there is one.
fn number(value: f64) -> String {
    let whole = format!("{:.0}", value.trunc());
    let mut text = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value.fract() == 0.0 { text } else { format!("{text}{}", format!("{:.1}", value.fract()).trim_start_matches('0')) }
}

/// The next number that is 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|rounded| *rounded >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::{Chart, Line, number, round_up};

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (value, rounded) in [(0.0, 1.0), (0.7, 1.0), (1.0, 1.0), (13.0, 20.0), (480.0, 500.0), (501.0, 1000.0)] {
            assert!((round_up(value) - rounded).abs() < 1e-9, "{value}: {}", round_up(value));
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        for (value, text) in [(0.0, "0"), (0.4, "0.4"), (16.0, "16"), (800.0, "800"), (1024.0, "1,024"), (1_234_567.5, "1,234,567.5")] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_point_lies_where_its_figures_say() {
        let line = Line { name: "a < b", points: vec![(1.0, 0.0), (10.0, 5.0), (100.0, 10.0)] };
        let chart = Chart { title: "t", x_title: "x", y_unit: "y", is_logarithmic: true, lines: vec![line] };
        let svg = chart.svg();
        assert!(svg.contains("points=\"70.0,310.0 315.0,175.0 560.0,40.0\""), "{svg}");
        assert!(svg.contains("a &lt; b"));
    }
}
