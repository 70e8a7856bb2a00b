//! Markup in which no foreign text can be markup: a piece consists of this library's own words, of texts that are
//! escaped when they are added, and of other pieces.

use crate::clean;
use std::fmt::{Display, Write};

/// The number of characters of a text that a page shows; longer texts are cut, with a mark.
const MOST: usize = 200;

/// A piece of a page.
#[derive(Debug, Default, Clone)]
pub struct Html(String);

impl Html {
    /// Creates a piece from this library's own words.
    pub fn fixed(words: &'static str) -> Html {
        Html(words.to_owned())
    }

    /// Creates a piece from any text or number.
    pub fn text(text: impl Display) -> Html {
        let mut html = Html::default();
        html.escape(&text.to_string());
        html
    }

    /// Creates a piece from a name or a text that somebody else has chosen: it is shown in one line, and never turns
    /// the direction of the text beside it.
    pub fn name(text: &str) -> Html {
        tag("bdi").say(clipped(text, MOST)).done()
    }

    /// Creates such a piece with fewer characters.
    pub fn short_name(text: &str, most: usize) -> Html {
        tag("bdi").say(clipped(text, most)).done()
    }

    pub fn put(&mut self, other: Html) {
        self.0.push_str(&other.0);
    }

    #[cfg(test)]
    pub fn into_text(self) -> String {
        self.0
    }

    /// Returns the page in ASCII, so that every client encoding can represent it.
    pub fn into_ascii(self) -> String {
        let mut ascii = String::with_capacity(self.0.len());
        for c in self.0.chars() {
            if c.is_ascii() {
                ascii.push(c);
            } else {
                // Writing into a String does not fail.
                let _ = write!(ascii, "&#{};", u32::from(c));
            }
        }
        ascii
    }

    fn escape(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(' '),
                // A page must not contain these, or they would turn the direction of the text beyond their element.
                c if clean::is_obeyed(c) => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(pieces: I) -> Html {
        let mut all = Html::default();
        pieces.into_iter().for_each(|piece| all.put(piece));
        all
    }
}

/// Returns at most this many characters, in one line.
fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// An element that is being written. Its name and those of its attributes are this library's own.
pub struct Element {
    name: &'static str,
    html: Html,
    is_open: bool,
}

pub fn tag(name: &'static str) -> Element {
    Element { name, html: Html(format!("<{name}")), is_open: true }
}

impl Element {
    /// Adds an attribute, before anything is put into the element.
    pub fn with(mut self, attribute: &'static str, value: impl Display) -> Element {
        if self.is_open {
            let _ = write!(self.html.0, " {attribute}=\"");
            self.html.escape(&value.to_string());
            self.html.0.push('"');
        }
        self
    }

    pub fn class(self, class: &'static str) -> Element {
        self.with("class", class)
    }

    pub fn put(mut self, piece: Html) -> Element {
        self.begin();
        self.html.put(piece);
        self
    }

    pub fn say(mut self, text: impl Display) -> Element {
        self.begin();
        self.html.escape(&text.to_string());
        self
    }

    pub fn done(mut self) -> Html {
        self.begin();
        let _ = write!(self.html.0, "</{}>", self.name);
        self.html
    }

    fn begin(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.html.0.push('>');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_markup() {
        let hostile = "</style><script>alert(1)</script>\" onload='x' ]]> & \u{1}\u{9b}";
        let html = tag("p").with("title", hostile).put(Html::name(hostile)).say(hostile).done().into_text();
        let escaped = "&lt;/style&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#39;x&#39; ]]&gt; &amp; \u{fffd}\u{fffd}";
        assert_eq!(html, format!("<p title=\"{escaped}\"><bdi>{escaped}</bdi>{escaped}</p>"));
    }

    #[test]
    fn no_text_turns_round_what_follows() {
        assert_eq!(
            Html::text("a\u{202e}b\u{2066}שלום\u{200b}").into_text(),
            "a\u{fffd}b\u{fffd}שלום\u{fffd}"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(Html::short_name("äöü<", 3).into_text(), "<bdi>äöü…</bdi>");
        assert_eq!(Html::short_name("äöü", 3).into_text(), "<bdi>äöü</bdi>");
    }

    #[test]
    fn an_attribute_comes_before_what_is_inside() {
        assert_eq!(tag("b").say("x").with("class", "late").done().into_text(), "<b>x</b>");
    }
}
