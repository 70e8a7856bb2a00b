//! Names in texts, as the texts may mean them.

use std::collections::BTreeSet;

/// Names that are looked for of one text.
const MOST_NAMES: usize = 20_000;

/// Names that a text has, in quotes or not: as it writes them, and as SQL reads them without quotes.
pub fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    // A quote in a comment turns inside and outside around: both are taken.
    let quoted = text.split('"').map(str::to_owned);
    let doubled = text.replace("\"\"", "\0");
    let doubled = doubled.split('"').filter(|part| part.contains('\0')).map(|part| part.replace('\0', "\""));
    let words = text.split(|c: char| !is_part(c));
    // What stands between dollars, as a text.
    let words =
        words.flat_map(|word| std::iter::once(word).chain(word.split('$').filter(|_| word.contains('$'))));
    // A text says most of them many times.
    let words: BTreeSet<&str> =
        words.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit())).collect();
    let is_written_large = |word: &&&str| word.chars().any(char::is_uppercase);
    let small = words.iter().filter(is_written_large).map(|word| word.to_lowercase());
    let plain = words.iter().map(|word| (*word).to_owned()).chain(small);
    let names = plain.chain(quoted).chain(doubled);
    names.filter(|name| !name.is_empty() && name.len() < 64).take(MOST_NAMES).collect()
}

#[cfg(test)]
mod tests {
    use super::names_in;

    #[test]
    fn names_of_a_text_are_read_as_sql_reads_them() {
        let text = r#"BEGIN NEW.id := nextval('Codes_seq'); PERFORM nextval('app."Odd seq"'); -- 42
            NEW.n := "Next"('"a""b"."c"'); RETURN NEW; END"#;
        let names = names_in(text);
        for name in ["codes_seq", "Codes_seq", "app", "Odd seq", "Next", "next", "nextval", "a\"b", "c"] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
        assert!(!names.contains("42") && !names.contains(""));
    }
}
