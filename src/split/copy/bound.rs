//! The bound of a partition, as `pg_get_expr` writes it. A shard's own text is never put into a statement: it is
//! parsed here, and written again.

use crate::remote::quote::literal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyBound {
    Default,
    In(Vec<Datum>),
    Range(Vec<Datum>, Vec<Datum>),
    Hash { modulus: u32, remainder: u32 },
}

/// A value: a literal of the column's type, or a keyword.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datum {
    Text(String),
    Word(&'static str),
}

const WORDS: [&str; 5] = ["NULL", "MINVALUE", "MAXVALUE", "true", "false"];

impl CopyBound {
    /// Parses a bound. Returns None if the text is not one.
    pub fn parse(text: &str) -> Option<CopyBound> {
        if text == "DEFAULT" {
            return Some(CopyBound::Default);
        }
        let rest = text.strip_prefix("FOR VALUES ")?;
        if let Some(rest) = rest.strip_prefix("IN ") {
            return list(rest).filter(|(_, rest)| rest.is_empty()).map(|(values, _)| CopyBound::In(values));
        }
        if let Some(rest) = rest.strip_prefix("FROM ") {
            let (from, rest) = list(rest)?;
            let (to, rest) = list(rest.strip_prefix(" TO ")?)?;
            return rest.is_empty().then_some(CopyBound::Range(from, to));
        }
        let rest = rest.strip_prefix("WITH (modulus ")?.strip_suffix(')')?;
        let (modulus, remainder) = rest.split_once(", remainder ")?;
        Some(CopyBound::Hash { modulus: modulus.parse().ok()?, remainder: remainder.parse().ok()? })
    }

    pub fn sql(&self) -> String {
        match self {
            CopyBound::Default => "DEFAULT".to_owned(),
            CopyBound::In(values) => format!("FOR VALUES IN ({})", written(values)),
            CopyBound::Range(from, to) => format!("FOR VALUES FROM ({}) TO ({})", written(from), written(to)),
            CopyBound::Hash { modulus, remainder } => {
                format!("FOR VALUES WITH (modulus {modulus}, remainder {remainder})")
            }
        }
    }
}

fn written(values: &[Datum]) -> String {
    let one = |value: &Datum| match value {
        Datum::Text(text) => literal(text),
        Datum::Word(word) => (*word).to_owned(),
    };
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Parses values in parentheses, and returns them with the text behind them.
fn list(text: &str) -> Option<(Vec<Datum>, &str)> {
    let mut rest = text.strip_prefix('(')?;
    let mut values = Vec::new();
    loop {
        let (value, behind) = datum(rest)?;
        values.push(value);
        if let Some(behind) = behind.strip_prefix(')') {
            return Some((values, behind));
        }
        rest = behind.strip_prefix(", ")?;
    }
}

fn datum(text: &str) -> Option<(Datum, &str)> {
    if let Some(rest) = text.strip_prefix('\'') {
        return quoted(rest, false);
    }
    if let Some(rest) = text.strip_prefix("E'") {
        return quoted(rest, true);
    }
    let end = text.find([',', ')'])?;
    let (value, rest) = text.split_at(end);
    if let Some(word) = WORDS.iter().find(|word| **word == value) {
        return Some((Datum::Word(word), rest));
    }
    let is_number = |c: char| c.is_ascii_digit() || ".-+e".contains(c);
    let is_value =
        value.starts_with(|c: char| c.is_ascii_digit() || c == '-') && value.chars().all(is_number);
    is_value.then(|| (Datum::Text(value.to_owned()), rest))
}

/// Parses up to the closing quote; with `escapes` a backslash is written twice.
fn quoted(text: &str, escapes: bool) -> Option<(Datum, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        let next = || text[at + 1..].chars().next();
        match character {
            '\'' if next() == Some('\'') => {
                characters.next();
            }
            '\'' => return Some((Datum::Text(value), &text[at + 1..])),
            '\\' if escapes => {
                if next() != Some('\\') {
                    return None;
                }
                characters.next();
            }
            _ => {}
        }
        value.push(character);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> Option<String> {
        CopyBound::parse(text).map(|bound| bound.sql())
    }

    #[test]
    fn what_servers_write_is_read() {
        for text in [
            "DEFAULT",
            "FOR VALUES IN ('a', 'it''s', NULL)",
            "FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
            "FOR VALUES FROM (MINVALUE, MINVALUE) TO ('10', MAXVALUE)",
            "FOR VALUES WITH (modulus 4, remainder 3)",
            "FOR VALUES IN (true)",
            r"FOR VALUES IN (E'a\\b''c')",
        ] {
            assert_eq!(again(text).as_deref(), Some(text));
        }
        assert_eq!(again("FOR VALUES FROM (0) TO (1.5e3)").unwrap(), "FOR VALUES FROM ('0') TO ('1.5e3')");
        assert_eq!(again(r"FOR VALUES IN ('a\b')").unwrap(), r"FOR VALUES IN (E'a\\b')");
    }

    #[test]
    fn nothing_else_is() {
        for text in [
            "",
            "DEFAULT; DROP TABLE items",
            "FOR VALUES IN ()",
            "FOR VALUES IN (now())",
            "FOR VALUES IN ('a')) PARTITION BY LIST (f('x')",
            "FOR VALUES IN ('a'); DROP TABLE items; --')",
            "FOR VALUES FROM (1) TO (2) WITH (x)",
            "FOR VALUES IN (E'a\\'b')",
            "FOR VALUES IN ('a",
            "FOR VALUES WITH (modulus 4, remainder -1)",
        ] {
            assert_eq!(again(text), None, "{text}");
        }
    }
}
