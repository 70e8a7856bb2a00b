//! Draws lines over two axes as a picture without dependencies. It is light or dark like its reader's system.

use std::fmt::Write;

pub struct Plot {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
/// Margins around the axes: left, right, above, below.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const ABOVE: f64 = 44.0;
const BELOW: f64 = 48.0;

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 13px }
  .axis, .grid { stroke: #8c959f; stroke-width: 1; fill: none }
  .grid { stroke-opacity: .3 }
  .line { fill: none; stroke-width: 2 }
  .l0 { stroke: #0969da } .l1 { stroke: #bc4c00 } .l2 { stroke: #1a7f37 } .l3 { stroke: #8250df }
  .p0 { fill: #0969da } .p1 { fill: #bc4c00 } .p2 { fill: #1a7f37 } .p3 { fill: #8250df }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .l0 { stroke: #4493f8 } .l1 { stroke: #f0883e } .l2 { stroke: #3fb950 } .l3 { stroke: #ab7df8 }
    .p0 { fill: #4493f8 } .p1 { fill: #f0883e } .p2 { fill: #3fb950 } .p3 { fill: #ab7df8 }
  }";

impl Plot {
    pub fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let largest = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
        let (x, y) = (Axis::to(largest(|point| point.0)), Axis::to(largest(|point| point.1)));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}\n</style>\n<text class=\"title\" x=\"{LEFT}\" y=\"20\">{title}</text>\n",
            title = escaped(&self.title)
        );
        self.draw_axes(&mut out, &x, &y);
        for (number, line) in self.lines.iter().enumerate() {
            draw(&mut out, number % 4, line, (&x, &y));
        }
        out.push_str("</svg>\n");
        out
    }

    fn draw_axes(&self, out: &mut String, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for mark in y.marks() {
            let at = down(y, mark);
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                short(mark)
            );
        }
        for mark in x.marks() {
            let at = across(x, mark);
            let _ = writeln!(
                out,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                short(mark)
            );
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{LEFT} {ABOVE}V{bottom}H{right}\"/>");
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, right),
            HEIGHT - 10.0,
            escaped(self.x)
        );
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", ABOVE - 8.0, escaped(self.y));
    }
}

/// Draws a line, its points, and its name beside the last point.
fn draw(out: &mut String, color: usize, line: &Line, (x, y): (&Axis, &Axis)) {
    let places: Vec<(f64, f64)> =
        line.points.iter().map(|point| (across(x, point.0), down(y, point.1))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = writeln!(out, "<path class=\"line l{color}\" d=\"M{}\"/>", path.join("L"));
    for ((x, y), (at, value)) in places.iter().zip(&line.points) {
        let _ = writeln!(
            out,
            "<circle class=\"p{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}: {}</title></circle>",
            short(*at),
            short(*value)
        );
    }
    if let Some((x, y)) = places.last() {
        let _ =
            writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 10.0, y + 4.0, escaped(&line.name));
    }
}

/// An axis from zero to a round number above all values.
struct Axis {
    step: f64,
    steps: u32,
}

impl Axis {
    fn to(largest: f64) -> Axis {
        let rough = (largest / 5.0).max(f64::MIN_POSITIVE);
        let power = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|round| round * power).find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        Axis { step, steps: (largest / step).ceil().clamp(1.0, 10.0) as u32 }
    }

    fn marks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=self.steps).map(|step| f64::from(step) * self.step)
    }

    fn part(&self, value: f64) -> f64 {
        value / (self.step * f64::from(self.steps))
    }
}

fn across(x: &Axis, value: f64) -> f64 {
    LEFT + x.part(value) * (WIDTH - RIGHT - LEFT)
}

fn down(y: &Axis, value: f64) -> f64 {
    HEIGHT - BELOW - y.part(value) * (HEIGHT - BELOW - ABOVE)
}

/// Formats a number with a letter for thousands and millions.
fn short(value: f64) -> String {
    let (scaled, letter) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let ends = |largest: f64| Axis::to(largest).marks().last().unwrap();
        assert_eq!([1.0, 7.0, 99.0, 749.0, 4e6].map(ends), [1.0, 8.0, 100.0, 800.0, 4e6]);
        assert!(Axis::to(0.0).part(0.0) == 0.0);
    }

    #[test]
    fn every_point_is_within_the_picture() {
        let points = vec![(1.0, 5.0), (40.0, 130.5), (150.0, 749.0)];
        let line = Line { name: "<no> \"delay\"".to_owned(), points };
        let plot = Plot { title: "a & b".to_owned(), x: "tables", y: "ms", lines: vec![line] };
        let svg = plot.svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;no&gt;") && !svg.contains("NaN"));
        for place in svg.split("cx=\"").skip(1) {
            let x: f64 = place.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&x));
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 2.5, 1000.0, 12_500.0, 4e6].map(short), ["0", "2.5", "1000", "12.5k", "4M"]);
    }
}
