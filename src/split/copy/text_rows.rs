//! Rows of a COPY in text form, as PostgreSQL writes it: columns separated by tabs, a line for each row, some
//! characters escaped by a backslash.

use std::borrow::Cow;

/// The columns of a row. A column is `None` if it is NULL.
pub type Cells<'a> = Vec<Option<Cow<'a, str>>>;

/// Reads all rows, each with `columns` columns. Returns None if the bytes are not such a text.
pub fn read(bytes: &[u8], columns: usize) -> Option<Vec<Cells<'_>>> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    if text.is_empty() {
        return Some(Vec::new());
    }
    text.strip_suffix('\n')?.split('\n').map(|line| row(line, columns)).collect()
}

fn row(line: &str, columns: usize) -> Option<Cells<'_>> {
    let cells: Option<Cells<'_>> = line.split('\t').map(cell).collect();
    cells.filter(|cells| cells.len() == columns)
}

/// Reads a cell. The outer value is None if it cannot be read, the inner one if it is NULL.
fn cell(text: &str) -> Option<Option<Cow<'_, str>>> {
    if text == "\\N" {
        return Some(None);
    }
    if !text.contains('\\') {
        return Some(Some(Cow::Borrowed(text)));
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        plain.push(match next {
            '\\' => escaped(rest.next()?)?,
            other => other,
        });
    }
    Some(Some(Cow::Owned(plain)))
}

/// Returns the character that the server writes as this letter after a backslash. Other escapes that it would read are
/// not accepted.
fn escaped(letter: char) -> Option<char> {
    Some(match letter {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::properties::hold;
    use proptest::prelude::*;

    fn cells(text: &str, columns: usize) -> Option<Vec<Vec<Option<String>>>> {
        let rows = read(text.as_bytes(), columns)?;
        Some(rows.into_iter().map(|row| row.into_iter().map(|cell| cell.map(Into::into)).collect()).collect())
    }

    #[test]
    fn rows_are_what_the_server_has_written() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(cells("", 2), Some(vec![]));
        assert_eq!(cells("a\t\\N\n\tb\n", 2), Some(vec![vec![some("a"), None], vec![some(""), some("b")]]));
        assert_eq!(
            cells("\\b\\f\\n\\r\\t\\v\\\\N'\u{1}ü\n", 1),
            Some(vec![vec![some("\u{8}\u{c}\n\r\t\u{b}\\N'\u{1}ü")]])
        );
        // These rows have one empty column.
        assert_eq!(cells("\n\n", 1), Some(vec![vec![some("")], vec![some("")]]));
    }

    #[test]
    fn what_is_no_such_text_is_not_guessed_at() {
        for (text, columns) in [("a", 1), ("a\tb\n", 1), ("a\n", 2), ("\\q\n", 1), ("\\\n", 1), ("a\0\n", 1)]
        {
            assert_eq!(cells(text, columns), None, "{text:?}");
        }
        assert!(read(b"\xff\n", 1).is_none());
    }

    /// Returns the rows as the server writes them.
    fn written(rows: &[Vec<Option<String>>]) -> String {
        let character = |c: char| match c {
            '\u{8}' => "\\b".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\u{b}' => "\\v".to_owned(),
            '\\' => "\\\\".to_owned(),
            other => other.to_string(),
        };
        let cell = |cell: &Option<String>| match cell {
            Some(text) => text.chars().map(character).collect(),
            None => "\\N".to_owned(),
        };
        let line = |row: &Vec<Option<String>>| row.iter().map(cell).collect::<Vec<_>>().join("\t") + "\n";
        rows.iter().map(line).collect()
    }

    #[test]
    fn every_row_is_read_as_it_was() {
        let text = prop_oneof!["[\\\\\tnN\n\r\u{8}\u{b}\u{c}a]{0,5}", "[^\u{0}]{0,5}"];
        let rows = (1..4_usize).prop_flat_map(move |columns| {
            let row = proptest::collection::vec(proptest::option::of(text.clone()), columns);
            (Just(columns), proptest::collection::vec(row, 0..4))
        });
        hold(rows, |(columns, rows)| {
            prop_assert_eq!(cells(&written(&rows), columns), Some(rows));
            Ok(())
        });
    }
}
