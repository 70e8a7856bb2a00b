//! The only place where SQL is made of a template: in one pass, from values with explicit kinds. Names of tables and
//! columns, keys and texts may come from people who want to inject code for the mover, or for an operator.
//!
//! A placeholder is `{name}`. What is filled in is not scanned again, and braces around anything else stay. Nothing is
//! filled in within a comment: a line break in a name would end it.

use super::quote::{array_literal, ident, literal};

/// What a placeholder is filled with.
#[derive(Clone, Debug)]
pub enum TemplateValue {
    /// A name of this extension, or a part of one: letters, digits and underscores.
    Word(String),
    Number(i128),
    /// A name from outside: an identifier.
    Name(String),
    /// A text from outside: a literal.
    Text(String),
    /// Texts: the literal of an array.
    Texts(Vec<String>),
    /// SQL that is made of these, or of nothing that anybody outside could choose.
    Sql(String),
}

pub fn word(text: impl Into<String>) -> TemplateValue {
    TemplateValue::Word(text.into())
}

pub fn number(number: impl Into<i128>) -> TemplateValue {
    TemplateValue::Number(number.into())
}

pub fn name(text: impl Into<String>) -> TemplateValue {
    TemplateValue::Name(text.into())
}

pub fn text(text: impl Into<String>) -> TemplateValue {
    TemplateValue::Text(text.into())
}

pub fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> TemplateValue {
    TemplateValue::Texts(texts.into_iter().map(Into::into).collect())
}

pub fn sql(text: impl Into<String>) -> TemplateValue {
    TemplateValue::Sql(text.into())
}

impl TemplateValue {
    fn written(&self) -> String {
        match self {
            TemplateValue::Word(text) if is_word(text) => text.clone(),
            // It is not a word of this extension: then it comes from outside, and can only be a name.
            TemplateValue::Word(text) | TemplateValue::Name(text) => ident(text),
            TemplateValue::Number(number) => number.to_string(),
            TemplateValue::Text(text) => literal(text),
            TemplateValue::Texts(texts) => array_literal(texts),
            TemplateValue::Sql(text) => text.clone(),
        }
    }

    /// Returns the value within quotes of the template.
    fn within(&self, quote: char) -> String {
        let plain = match self {
            TemplateValue::Word(text)
            | TemplateValue::Name(text)
            | TemplateValue::Text(text)
            | TemplateValue::Sql(text) => text.clone(),
            TemplateValue::Number(number) => number.to_string(),
            TemplateValue::Texts(texts) => super::quote::text_array(texts),
        };
        plain.replace(quote, &format!("{quote}{quote}"))
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A piece of a template.
#[derive(Debug, PartialEq, Eq)]
enum TemplatePiece<'a> {
    Sql(&'a str),
    /// A comment, which begins with `--` or `/*`.
    Comment(&'a str),
    /// A literal or a quoted name, with its quotes.
    Quoted(char, &'a str),
    /// The quote of a function's body, which is SQL as well.
    Dollar(&'a str),
}

/// Fills a template. The dollar quotes of bodies become ones that nothing in the text closes.
pub fn fill(template: &str, values: &[(&str, TemplateValue)]) -> String {
    let pieces = pieces(template);
    let mut filled: Vec<(bool, String)> = Vec::new();
    for piece in &pieces {
        filled.push(match piece {
            TemplatePiece::Sql(text) => (false, fill_in(text, values, TemplateValue::written)),
            TemplatePiece::Comment(text) => (false, (*text).to_owned()),
            TemplatePiece::Quoted(quote, text) => {
                (false, fill_in(text, values, |value| value.within(*quote)))
            }
            TemplatePiece::Dollar(tag) => (true, (*tag).to_owned()),
        });
    }
    let plain: String = filled.iter().filter(|(is_tag, _)| !is_tag).map(|(_, text)| text.as_str()).collect();
    let whole = |number: usize| -> String {
        filled.iter().map(|(is_tag, text)| if *is_tag { tag(text, number) } else { text.clone() }).collect()
    };
    let tags: Vec<&String> = filled.iter().filter(|(is_tag, _)| *is_tag).map(|(_, text)| text).collect();
    let mut number = 0;
    loop {
        let text = whole(number);
        // This includes a quote that is composed of a value and the text around it.
        let closes = |of: &&String| {
            let tag = tag(of, number);
            plain.contains(&tag)
                || text.matches(&tag).count() != tags.iter().filter(|other| *other == of).count()
        };
        if !tags.iter().any(closes) {
            return text;
        }
        number += 1;
    }
}

/// Replaces a mark in a statement by a value, outside of comments and quotes, in texts from outside.
pub fn put(statement: &str, mark: &str, value: &TemplateValue) -> String {
    let put = |piece: &TemplatePiece<'_>| match piece {
        TemplatePiece::Sql(text) => text.replace(mark, &value.written()),
        TemplatePiece::Comment(text) | TemplatePiece::Quoted(_, text) | TemplatePiece::Dollar(text) => {
            (*text).to_owned()
        }
    };
    pieces(statement).iter().map(put).collect()
}

/// Returns a dollar quote with a number: `$$` becomes `$body1$`.
fn tag(tag: &str, number: usize) -> String {
    let name = tag.trim_matches('$');
    match number {
        0 => tag.to_owned(),
        _ => format!("${}{number}$", if name.is_empty() { "body" } else { name }),
    }
}

fn fill_in(text: &str, values: &[(&str, TemplateValue)], write: impl Fn(&TemplateValue) -> String) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('{') {
        filled.push_str(before);
        let known = values.iter().find_map(|(name, value)| {
            let after = from.strip_prefix(*name)?.strip_prefix('}')?;
            Some((value, after))
        });
        match known {
            Some((value, after)) => {
                filled.push_str(&write(value));
                rest = after;
            }
            None => {
                filled.push('{');
                rest = from;
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// Divides a template. Templates are our own: their literals are plain ones, and their comments are not nested. Texts
/// that the server quotes are read in the same way: it doubles quotes.
fn pieces(template: &str) -> Vec<TemplatePiece<'_>> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = template.get(at..) {
        let Some(first) = found.chars().next() else { break };
        let special = match first {
            '-' if found.starts_with("--") => {
                Some(TemplatePiece::Comment(&found[..found.find('\n').unwrap_or(found.len())]))
            }
            '/' if found.starts_with("/*") => {
                Some(TemplatePiece::Comment(&found[..found.find("*/").map_or(found.len(), |end| end + 2)]))
            }
            '\'' | '"' => {
                let end = found[1..].find(first).map_or(found.len(), |end| end + 2);
                Some(TemplatePiece::Quoted(first, &found[..end]))
            }
            '$' => dollar(found).map(TemplatePiece::Dollar),
            _ => None,
        };
        let length = match &special {
            Some(
                TemplatePiece::Sql(text)
                | TemplatePiece::Comment(text)
                | TemplatePiece::Quoted(_, text)
                | TemplatePiece::Dollar(text),
            ) => text.len(),
            None => first.len_utf8(),
        };
        if let Some(piece) = special {
            if from < at {
                pieces.push(TemplatePiece::Sql(&template[from..at]));
            }
            pieces.push(piece);
            from = at + length;
        }
        at += length;
    }
    if from < template.len() {
        pieces.push(TemplatePiece::Sql(&template[from..]));
    }
    pieces
}

/// Returns a dollar quote at the beginning of a text.
fn dollar(text: &str) -> Option<&str> {
    let end = text.get(1..)?.find('$')? + 1;
    let name = &text[1..end];
    let is_name = name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    is_name.then(|| &text[..=end])
}

#[cfg(test)]
mod tests;
