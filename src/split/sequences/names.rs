//! Names in texts, in every form in which the texts may mean them.

use std::collections::BTreeSet;

/// The greatest number of names of one text that are searched.
const MOST_NAMES: usize = 20_000;

/// The greatest number of bytes of a name. The server truncates longer names.
const LONGEST: usize = 63;

/// Returns a name as the server truncates it.
pub fn cut(name: &str) -> &str {
    let end = (0..=name.len().min(LONGEST)).rev().find(|at| name.is_char_boundary(*at));
    &name[..end.unwrap_or(0)]
}

/// Whether a letter may be in a name without quotes.
pub fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns names in a text, in quotes or not: as it writes them, and as SQL reads them without quotes.
pub fn names_in(text: &str) -> BTreeSet<String> {
    // A quote in a comment exchanges inside and outside: both are taken.
    let quoted = text.split('"').map(str::to_owned);
    let doubled = text.replace("\"\"", "\0");
    let doubled = doubled.split('"').filter(|part| part.contains('\0')).map(|part| part.replace('\0', "\""));
    let words = text.split(|c: char| !is_part(c));
    // Text between dollars is a text, too.
    let words =
        words.flat_map(|word| std::iter::once(word).chain(word.split('$').filter(|_| word.contains('$'))));
    // A text contains most of them many times.
    let words: BTreeSet<&str> =
        words.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit())).collect();
    let is_written_large = |word: &&&str| word.chars().any(char::is_uppercase);
    let small = words.iter().filter(is_written_large).map(|word| cut(&word.to_lowercase()).to_owned());
    let plain = words.iter().map(|word| cut(word).to_owned()).chain(small);
    let names = plain.chain(quoted).chain(doubled);
    names.filter(|name| !name.is_empty() && name.len() <= LONGEST).take(MOST_NAMES).collect()
}

/// Returns names in code that runs: without comments, and without columns of a trigger's row, which may have the names
/// of tables.
pub fn names_that_run(text: &str) -> BTreeSet<String> {
    names_in(&without_fields(&without_comments(text)))
}

/// Returns a line without the comment at its end. A comment does not begin within a text.
pub fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    // This scans the line once, however many quotes it has.
    let at = line.bytes().enumerate().position(|(at, byte)| {
        is_quoted ^= byte == b'\'';
        !is_quoted && line.as_bytes()[at..].starts_with(b"--")
    });
    &line[..at.unwrap_or(line.len())]
}

/// Removes comments. A comment without an end is not one.
pub fn without_comments(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let lines: Vec<&str> = text.lines().map(without_comment).collect();
    let text = lines.join("\n");
    let mut rest = text.as_str();
    let mut ends = rest.contains("*/");
    while let Some(at) = rest.find("/*").filter(|_| ends) {
        let line = rest[..at].rsplit('\n').next().unwrap_or_default();
        let is_quoted = line.bytes().filter(|byte| *byte == b'\'').count() % 2 == 1;
        let end = rest[at..].find("*/").map(|end| at + end + 2);
        ends = end.is_some();
        let next = end.filter(|_| !is_quoted).unwrap_or(at + 2);
        left.push_str(&rest[..at]);
        left.push(' ');
        rest = &rest[next..];
    }
    left.push_str(rest);
    left
}

/// Removes `NEW.column`, unless a schema of that name is meant.
fn without_fields(text: &str) -> String {
    const BEFORE_TABLES: [&str; 6] = ["from", "join", "into", "update", "only", "table"];
    let mut left = String::with_capacity(text.len());
    let (mut before, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(is_part) {
        let length = rest[at..].find(|c: char| !is_part(c)).unwrap_or(rest.len() - at);
        let word = rest[at..at + length].to_lowercase();
        left.push_str(&rest[..at]);
        let behind = &rest[at + length..];
        let field = behind.trim_start().strip_prefix('.').map(str::trim_start);
        let field = field
            .filter(|_| ["new", "old"].contains(&word.as_str()) && !BEFORE_TABLES.contains(&before.as_str()));
        match field.filter(|field| field.starts_with(is_part)) {
            Some(field) => rest = &field[field.find(|c: char| !is_part(c)).unwrap_or(field.len())..],
            None => {
                left.push_str(&rest[at..at + length]);
                rest = behind;
            }
        }
        before = word;
    }
    left.push_str(rest);
    left
}

#[cfg(test)]
mod tests {
    use super::{names_in, names_that_run, without_comment};

    #[test]
    fn comments_begin_outside_of_texts() {
        for (line, wanted) in [
            ("a '--' b -- c", "a '--' b "),
            ("--", ""),
            ("'it''s -- x'", "'it''s -- x'"),
            ("a - -b", "a - -b"),
        ] {
            assert_eq!(without_comment(line), wanted);
        }
    }

    #[test]
    fn names_in_comments_and_of_columns_of_a_row_do_not_run() {
        let names = names_that_run(
            "BEGIN -- one isn't\n NEW.two := 'three'; /* four\n five */ OLD . six = 1; INSERT INTO seven SELECT eight, new.nine FROM old.ten;
             EXECUTE '/* eleven'; x := new.\"Twelve\" /* has no end: thirteen",
        );
        for (name, runs) in [
            ("one", false),
            ("two", false),
            ("three", true),
            ("four", false),
            ("five", false),
            ("six", false),
            ("seven", true),
            ("eight", true),
            ("nine", false),
            ("ten", true),
            ("eleven", true),
            ("Twelve", true),
            ("thirteen", true),
        ] {
            assert_eq!(names.contains(name), runs, "{name}: {names:?}");
        }
    }

    #[test]
    fn names_of_a_text_are_read_as_sql_reads_them() {
        let text = r#"BEGIN NEW.id := nextval('Codes_seq'); PERFORM nextval('app."Odd seq"'); -- 42
            NEW.n := "Next"('"a""b"."c"'); RETURN NEW; END"#;
        let long = "x".repeat(70);
        assert_eq!(names_in(&long), [long[..63].to_owned()].into());
        let names = names_in(text);
        for name in ["codes_seq", "Codes_seq", "app", "Odd seq", "Next", "next", "nextval", "a\"b", "c"] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
        assert!(!names.contains("42") && !names.contains(""));
    }
}
