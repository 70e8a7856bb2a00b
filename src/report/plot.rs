//! The drawings of a page: curves over time, and bars, without a script. Their words are beside them as text, so that
//! they grow with the reader's letters, and no drawing is needed to understand the page.

use super::html::{Html, tag};
use super::units;
use std::fmt::Write;

/// The size of a curve's drawing, which is stretched to the available width.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 48.0;

/// A figure over time.
pub struct Curve<'a> {
    pub name: &'static str,
    /// The times in seconds since 1970, in order, each with the figure at that time.
    pub points: &'a [(f64, f64)],
    /// The times at its edges.
    pub within: (f64, f64),
    pub shown: fn(f64) -> String,
    /// The scale covers at least this value, so that smaller figures are drawn low.
    pub little: f64,
}

impl Curve<'_> {
    pub fn draw(&self) -> Html {
        let caption = tag("figcaption").put(tag("span").say(self.name).done());
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return Html::default();
        };
        let most = self.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let words = format!("at most {}, last {}", (self.shown)(most), (self.shown)(last.1));
        let caption = caption.put(tag("b").say(&words).done()).done();
        let line = self.path(most.max(self.little));
        let (first, last) = (self.x(first.0), self.x(last.0));
        let area = format!("{line} L{last:.1} {HEIGHT} L{first:.1} {HEIGHT} Z");
        let path = |class, path: &str| tag("path").class(class).with("d", path).done();
        let drawing = tag("svg")
            .with("viewBox", format!("0 0 {WIDTH} {HEIGHT}"))
            .with("preserveAspectRatio", "none")
            .with("role", "img")
            .with("aria-label", format!("{} over time: {words}", self.name))
            .put(path("area", &area))
            .put(path("line", &line));
        tag("figure").class("curve").put(caption).put(drawing.done()).done()
    }

    fn x(&self, at: f64) -> f64 {
        let (from, to) = self.within;
        ((at - from) / (to - from).max(1e-3)).clamp(0.0, 1.0) * WIDTH
    }

    fn path(&self, most: f64) -> String {
        let mut path = String::new();
        for (number, (at, value)) in self.points.iter().enumerate() {
            let command = if number == 0 { 'M' } else { 'L' };
            // A line at the edge would be cut in half.
            let y = HEIGHT - 1.0 - value.max(0.0) / most.max(1e-9) * (HEIGHT - 2.0);
            let _ = write!(path, "{command}{:.1} {y:.1}", self.x(*at));
        }
        path
    }
}

/// Draws the parts of a whole, each from 0 to 1, one after the other.
pub fn bar(parts: &[(&'static str, f64)]) -> Html {
    let part = |(class, part): &(&'static str, f64)| {
        let width = format!("width:{:.2}%", part.clamp(0.0, 1.0) * 100.0);
        tag("i").class(class).with("style", width).done()
    };
    tag("span")
        .class("bar")
        .with("aria-hidden", "true")
        .put(parts.iter().filter(|part| part.1 > 0.0).map(part).collect())
        .done()
}

/// Returns a table in a box of its own, which scrolls if it is too wide.
pub fn table(caption: &'static str, columns: &[(&'static str, Align)], rows: Vec<Vec<Html>>) -> Html {
    let class = |align: &Align| match align {
        Align::Text => "t",
        Align::Number => "n",
        Align::Bar => "g",
        Align::Words => "w",
    };
    let head = |(name, align): &(&'static str, Align)| {
        tag("th").with("scope", "col").class(class(align)).say(*name).done()
    };
    let body = |cells: Vec<Html>| {
        let cell = |(at, cell): (usize, Html)| {
            let of_class = class(columns.get(at).map_or(&Align::Text, |column| &column.1));
            if at == 0 {
                return tag("th").with("scope", "row").class(of_class).put(cell).done();
            }
            tag("td").class(of_class).put(cell).done()
        };
        tag("tr").put(cells.into_iter().enumerate().map(cell).collect()).done()
    };
    let head = tag("thead").put(tag("tr").put(columns.iter().map(head).collect()).done()).done();
    let body = tag("tbody").put(rows.into_iter().map(body).collect()).done();
    let whole = tag("table").put(tag("caption").say(caption).done()).put(head).put(body).done();
    // People without a mouse scroll it with the keyboard.
    tag("div")
        .class("wide")
        .with("tabindex", 0)
        .with("role", "region")
        .with("aria-label", caption)
        .put(whole)
        .done()
}

/// The content of a column.
#[derive(Clone, Copy)]
pub enum Align {
    Text,
    Number,
    Bar,
    /// Several words, which may be broken into lines.
    Words,
}

/// Returns a note with the number of things that are not shown.
pub fn left_out(number: i64, one: &str, more: &str) -> Html {
    if number <= 0 {
        return Html::default();
    }
    tag("p").class("quiet").say(format!("{} not shown.", units::counted(number, one, more))).done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_stays_within_its_drawing() {
        let points = [(10.0, 0.0), (15.0, 4.0), (30.0, -1.0)];
        let curve =
            Curve { name: "rate", points: &points, within: (10.0, 20.0), shown: units::rough, little: 1.0 };
        let html = curve.draw().into_text();
        assert!(html.contains("M0.0 47.0L150.0 1.0L300.0 47.0"), "{html}");
        assert!(html.contains("at most 4, last -1"), "{html}");
    }

    #[test]
    fn of_nothing_no_curve_is_drawn() {
        let curve = Curve { name: "lag", points: &[], within: (0.0, 1.0), shown: units::rough, little: 1.0 };
        assert_eq!(curve.draw().into_text(), "");
    }
}
