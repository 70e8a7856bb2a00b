//! Characters of a statement that a shard's encoding lacks. No row there contains them, so a literal with such
//! characters in a comparison is replaced by one that no row contains either. If such a literal is used otherwise, the
//! statement stays as it is, and the shard reports the missing character.

use crate::remote::quote::literal;
use crate::words::hex;
use std::collections::BTreeSet;

/// Returns characters that not every encoding has.
pub fn letters(text: &str) -> BTreeSet<char> {
    text.chars().filter(|letter| !letter.is_ascii()).collect()
}

/// Returns a query for those of the characters that the database lacks: their numbers, separated by blanks. Each is
/// tried separately.
pub fn question(letters: &BTreeSet<char>) -> String {
    let numbered =
        |letter: &char| format!("{}:{}", u32::from(*letter), hex(letter.encode_utf8(&mut [0; 4]).as_bytes()));
    let list: Vec<String> = letters.iter().map(numbered).collect();
    format!(
        "DO $ask$
         DECLARE
             letter pg_catalog.text;
             lacks pg_catalog.text := '';
         BEGIN
             FOREACH letter IN ARRAY pg_catalog.string_to_array({}, ' ') LOOP
                 BEGIN
                     PERFORM pg_catalog.convert(pg_catalog.decode(pg_catalog.split_part(letter, ':', 2), 'hex'), 'UTF8', pg_catalog.getdatabaseencoding());
                 EXCEPTION WHEN untranslatable_character OR undefined_function THEN
                     lacks := pg_catalog.concat(lacks, ' ', pg_catalog.split_part(letter, ':', 1));
                 END;
             END LOOP;
             PERFORM pg_catalog.set_config('shardmaster_query.lacks', lacks, false);
         END $ask$;
         SELECT pg_catalog.current_setting('shardmaster_query.lacks')",
        literal(&list.join(" "))
    )
}

/// Reads the answer.
pub fn answer(text: &str) -> BTreeSet<char> {
    text.split_whitespace().filter_map(|number| char::from_u32(number.parse().ok()?)).collect()
}

/// Returns a replacement for these characters that no row contains. It has only letters and digits, so that it means
/// the same in a pattern and in an array.
pub fn nothing() -> String {
    use std::hash::BuildHasher;
    let random = || std::collections::hash_map::RandomState::new().hash_one(0_u8);
    format!("shardmaster{:016x}{:016x}", random(), random())
}

/// Replaces them everywhere, for statements in which literals are only compared.
pub fn replaced(text: &str, lacks: &BTreeSet<char>, nothing: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut was_lacking = false;
    for letter in text.chars() {
        let is_lacking = lacks.contains(&letter);
        if !is_lacking {
            replaced.push(letter);
        } else if !was_lacking {
            replaced.push_str(nothing);
        }
        was_lacking = is_lacking;
    }
    replaced
}

/// Replaces them in compared literals, and in comments. Returns None if some are elsewhere.
pub fn compared(statement: &str, lacks: &BTreeSet<char>, nothing: &str) -> Option<String> {
    let mut reader = StatementReader { text: statement, at: 0 };
    let (mut written, mut before, mut lists) =
        (String::new(), [EncodedToken::None, EncodedToken::None], Vec::new());
    while let Some((token, text)) = reader.next() {
        let has_some = text.chars().any(|letter| lacks.contains(&letter));
        match token {
            EncodedToken::Blank => {
                written.push_str(&replaced(text, lacks, "?"));
                continue;
            }
            EncodedToken::Literal if has_some => {
                let is_list = lists.last() == Some(&true);
                if !is_compared(before, is_list) || reader.makes_more() {
                    return None;
                }
                written.push_str(&replaced(text, lacks, nothing));
            }
            _ if has_some => return None,
            _ => written.push_str(text),
        }
        match token {
            EncodedToken::Open => lists.push(before[1] == EncodedToken::In),
            EncodedToken::Close => drop(lists.pop()),
            _ => {}
        }
        before = [before[1], token];
    }
    Some(written)
}

/// Whether a literal after these tokens is only compared with something.
fn is_compared(before: [EncodedToken; 2], is_list: bool) -> bool {
    match before {
        [_, EncodedToken::Compares] => true,
        [_, EncodedToken::Open | EncodedToken::Comma] if is_list => true,
        [EncodedToken::Any, EncodedToken::Open] => true,
        _ => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodedToken {
    None,
    /// White space, or a comment.
    Blank,
    Literal,
    /// `=`, `<>`, `!=`, LIKE, ILIKE.
    Compares,
    In,
    /// ANY, SOME, ALL.
    Any,
    Open,
    Close,
    Comma,
    Other,
}

struct StatementReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> StatementReader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Whether the literal is used otherwise: as an operand of another operator, or with a cast to a type that is not
    /// text.
    fn makes_more(&self) -> bool {
        let mut ahead = StatementReader { text: self.text, at: self.at };
        while let Some((token, text)) = ahead.next() {
            match token {
                EncodedToken::Blank => continue,
                EncodedToken::Compares => return true,
                _ if text.starts_with("::") => match text_type(ahead.rest()) {
                    Some(length) => ahead.at += length,
                    None => return true,
                },
                _ => return text.starts_with(|c| OPERATORS.contains(c)),
            }
        }
        false
    }

    fn next(&mut self) -> Option<(EncodedToken, &'a str)> {
        let rest = self.rest();
        let (token, length) = token_of(rest)?;
        self.at += length;
        rest.get(..length).map(|text| (token, text))
    }
}

/// Returns the length of `text`, if a cast is to that type.
fn text_type(kind: &str) -> Option<usize> {
    let name = kind.trim_start();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    let behind = name.strip_prefix("text")?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    (!behind.starts_with(is_word)).then_some(kind.len() - behind.len())
}

const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";

/// Returns the first token and its length, or None at the end.
fn token_of(rest: &str) -> Option<(EncodedToken, usize)> {
    let first = rest.chars().next()?;
    let while_of = |is: &dyn Fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
    Some(match first {
        c if c.is_whitespace() => (EncodedToken::Blank, while_of(&char::is_whitespace)),
        '-' if rest.starts_with("--") => (EncodedToken::Blank, rest.find(['\n', '\r']).unwrap_or(rest.len())),
        '/' if rest.starts_with("/*") => (EncodedToken::Blank, comment(rest)),
        '\'' => (EncodedToken::Literal, quoted(rest, '\'', false)),
        '"' => (EncodedToken::Other, quoted(rest, '"', false)),
        'e' | 'E' if rest[1..].starts_with('\'') => {
            (EncodedToken::Literal, 1 + quoted(&rest[1..], '\'', true))
        }
        'u' | 'U' if rest[1..].starts_with("&'") => {
            (EncodedToken::Literal, 2 + quoted(&rest[2..], '\'', false))
        }
        '$' => dollar(rest).map_or((EncodedToken::Other, 1), |length| (EncodedToken::Literal, length)),
        '(' => (EncodedToken::Open, 1),
        ')' => (EncodedToken::Close, 1),
        ',' => (EncodedToken::Comma, 1),
        ':' if rest.starts_with("::") => (EncodedToken::Other, 2),
        c if OPERATORS.contains(c) => {
            let length = while_of(&|c| OPERATORS.contains(c));
            // A comment ends an operator.
            let comment = ["--", "/*"].iter().filter_map(|begin| rest[..length].find(begin)).min();
            let length = comment.unwrap_or(length).max(1);
            let compares = ["=", "<>", "!="].contains(&&rest[..length]);
            (if compares { EncodedToken::Compares } else { EncodedToken::Other }, length)
        }
        c if is_word(c) => {
            let length = while_of(&is_word);
            let token = match rest[..length].to_ascii_uppercase().as_str() {
                "LIKE" | "ILIKE" => EncodedToken::Compares,
                "IN" => EncodedToken::In,
                "ANY" | "SOME" | "ALL" => EncodedToken::Any,
                _ => EncodedToken::Other,
            };
            (token, length)
        }
        c => (EncodedToken::Other, c.len_utf8()),
    })
}

/// Returns the length with both quotes; a doubled quote stands for one, and with backslashes also one after a
/// backslash.
fn quoted(rest: &str, quote: char, has_backslashes: bool) -> usize {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if has_backslashes && letter == '\\' {
            letters.next();
        } else if letter == quote {
            match letters.peek() {
                Some((_, next)) if *next == quote => drop(letters.next()),
                _ => return at + 1,
            }
        }
    }
    rest.len()
}

/// Returns the length of a comment, which may contain others.
pub fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
        if left.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if left.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += left.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Returns the length of `$tag$ .. $tag$`, or None if it begins none.
fn dollar(rest: &str) -> Option<usize> {
    let end = rest.get(1..)?.find('$')? + 2;
    let tag = rest.get(..end)?;
    let is_tag = |c: char| c.is_alphanumeric() || c == '_' || !c.is_ascii();
    let name = tag.trim_matches('$');
    let is_one = name.chars().all(is_tag) && !name.starts_with(|c: char| c.is_ascii_digit());
    is_one.then(|| rest.get(end..)?.find(tag).map(|at| end + at + end)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(statement: &str) -> Option<String> {
        compared(statement, &BTreeSet::from(['日', '本']), "NO")
    }

    #[test]
    fn literals_that_are_compared_become_others() {
        for (statement, becomes) in [
            ("SELECT a FROM t WHERE b = '日本'", "SELECT a FROM t WHERE b = 'NO'"),
            ("WHERE b<>'x日y' AND c != '日' --日", "WHERE b<>'xNOy' AND c != 'NO' --?"),
            ("WHERE b LIKE '%日%' OR b NOT ilike $$日_$$", "WHERE b LIKE '%NO%' OR b NOT ilike $$NO_$$"),
            ("WHERE b IN ('a', '日', E'\\'日')", "WHERE b IN ('a', 'NO', E'\\'NO')"),
            ("WHERE b = ANY ('{日,a}') /* 本 /* 日 */ */", "WHERE b = ANY ('{NO,a}') /* ? /* ? */ */"),
            ("WHERE b = '日'::text", "WHERE b = 'NO'::text"),
            ("WHERE b = 'it''s 日' AND ä = 'ö'", "WHERE b = 'it''s NO' AND ä = 'ö'"),
        ] {
            assert_eq!(made(statement).as_deref(), Some(becomes), "{statement}");
        }
    }

    #[test]
    fn what_else_is_made_of_them_stays() {
        for statement in [
            "SELECT '日'",
            "SELECT '日' = b",
            "WHERE b > '日'",
            "WHERE b >= '日'",
            "WHERE b ~ '[日]'",
            "WHERE b = length('日')",
            "WHERE b = '日'::varchar(3)",
            "WHERE b = '日' ~ 'a'",
            "WHERE b = '日'::pg_catalog.text || c",
            "WHERE b = '日' -- a\n || c",
            "WHERE b = '日' LIKE 'a'",
            "WHERE b = '日'::textual",
            "WHERE \"日\" = 1",
            "WHERE 日 = 1",
            "WHERE b LIKE 'a' ESCAPE '日'",
            "WHERE f(a, '日')",
            "WHERE b IN (SELECT f('日'))",
            "VALUES ('日')",
        ] {
            assert_eq!(made(statement), None, "{statement}");
        }
    }

    #[test]
    fn every_text_is_read_to_its_end() {
        for statement in ["'", "E'\\", "\"日", "$a$ x", "$1", "/* a", "--", "U&'\\0441", "a$b$c", "=", "é"]
        {
            let _ = made(statement);
        }
        assert_eq!(letters("aäb日ä"), BTreeSet::from(['ä', '日']));
        assert_eq!(answer(" 26085 228"), BTreeSet::from(['ä', '日']));
    }
}
