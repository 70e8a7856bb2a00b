//! Texts of functions, word by word. Quotes are not treated as bounds, since a text may be run as a statement.

use super::names::without_comment;
use std::collections::BTreeSet;
use std::ops::Range;

/// The number of words around a place that are read.
pub const MOST_WORDS: usize = 500;
/// The whole record.
pub const RECORD: &str = "*";
const BEGINNINGS: [&str; 5] = ["begin", "then", "else", "loop", "declare"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TextToken {
    /// A word as SQL reads it.
    Word(String),
    Sign(char),
}

use TextToken::{Sign, Word};

impl TextToken {
    pub fn is(&self, wanted: &str) -> bool {
        matches!(self, Word(word) if word == wanted)
    }

    pub fn word(&self) -> Option<&str> {
        match self {
            Word(word) => Some(word),
            Sign(_) => None,
        }
    }
}

/// Returns the only word of a text.
pub fn one_word(text: &str) -> Option<String> {
    let [Word(word)] = <[TextToken; 1]>::try_from(tokens(text)).ok()? else { return None };
    Some(word)
}

pub fn tokens(text: &str) -> Vec<TextToken> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for line in text.lines() {
        let mut rest = without_comment(line);
        while let Some(c) = rest.chars().next() {
            let length = match c {
                '"' => match quoted(rest) {
                    Some((name, length)) => {
                        found.push(Word(name));
                        length
                    }
                    None => 1,
                },
                c if is_part(c) => {
                    let length = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
                    found.push(Word(rest[..length].to_lowercase()));
                    length
                }
                c => {
                    if !c.is_whitespace() {
                        found.push(Sign(c));
                    }
                    c.len_utf8()
                }
            };
            rest = &rest[length..];
        }
    }
    found
}

/// Returns the quoted name at the beginning of a text, and its length with the quotes. A longer name is truncated, as
/// by the server.
fn quoted(text: &str) -> Option<(String, usize)> {
    const LONGEST: usize = 63;
    let mut name = String::new();
    let mut rest = text[1..].char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        if c == '"' && rest.next_if(|(_, next)| *next == '"').is_none() {
            return (!name.is_empty()).then_some((name, at + 2));
        }
        name.push(c);
        if name.len() > LONGEST {
            return None;
        }
    }
    None
}

/// Whether a statement begins with a word.
pub fn begins(tokens: &[TextToken], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    before.is_none_or(|token| {
        *token == Sign(';') || token.word().is_some_and(|word| BEGINNINGS.contains(&word))
    })
}

/// Returns the name of a record's column that is set where a word is, or of a variable; and which of both it is.
pub fn assigned(tokens: &[TextToken], at: usize) -> Option<(String, bool)> {
    let word = tokens[at].word()?;
    let sign = |next: usize| tokens.get(at + next).filter(|token| token.word().is_none());
    let is_of_record = at >= 2 && tokens[at - 1] == Sign('.') && tokens[at - 2].word().is_some();
    let name = if !is_of_record && word == "new" { RECORD } else { word };
    let first = if is_of_record { at - 2 } else { at };
    let is_set = match (sign(1), sign(2)) {
        (Some(Sign(':')), Some(Sign('='))) => true,
        (Some(Sign('=')), _) => begins(tokens, first),
        _ => false,
    };
    (is_set || is_into(tokens, first)).then(|| (name.to_owned(), is_of_record || name == RECORD))
}

/// Whether a word is among those after SELECT .. INTO and the like.
fn is_into(tokens: &[TextToken], first: usize) -> bool {
    let mut at = first;
    while let Some(before) = at.checked_sub(1).filter(|before| first - before < MOST_WORDS) {
        match &tokens[before] {
            Word(word) if word == "into" => {
                return before
                    .checked_sub(1)
                    .is_none_or(|at| !tokens[at].is("insert") && !tokens[at].is("merge"));
            }
            Word(word) if ["select", "values", "from", "where", "set"].contains(&word.as_str()) => {
                return false;
            }
            Word(_) | Sign('.' | ',') => at = before,
            Sign(_) => return false,
        }
    }
    false
}

/// Returns the words of the statement that contains a word.
pub fn statement(tokens: &[TextToken], at: usize) -> BTreeSet<String> {
    words(&tokens[bounds(tokens, at)])
}

/// Returns the range of the statement that contains a word.
pub fn bounds(tokens: &[TextToken], at: usize) -> Range<usize> {
    let is_end = |token: &TextToken| *token == Sign(';');
    let (from, to) = (at.saturating_sub(MOST_WORDS), tokens.len().min(at + MOST_WORDS));
    let first = tokens[from..at].iter().rposition(is_end).map_or(from, |end| from + end + 1);
    let last = tokens[at..to].iter().position(is_end).map_or(to, |end| at + end);
    first..last
}

/// Returns the columns of an INSERT, listed after its table. Returns None if it lists none.
pub fn listed(rest: &[TextToken]) -> Option<BTreeSet<String>> {
    let alias = if rest.first().is_some_and(|token| token.is("as")) { 2 } else { 0 };
    let rest = rest.get(alias..)?;
    (rest.first() == Some(&Sign('('))).then_some(())?;
    let end = rest.iter().take(MOST_WORDS).position(|token| *token == Sign(')'))?;
    let words: BTreeSet<String> =
        rest[1..end].iter().filter_map(TextToken::word).map(str::to_owned).collect();
    (!words.contains("select")).then_some(words)
}

pub fn words(tokens: &[TextToken]) -> BTreeSet<String> {
    tokens.iter().filter_map(TextToken::word).map(str::to_owned).collect()
}

/// Whether texts are joined by `||`.
pub fn joins(tokens: &[TextToken]) -> bool {
    tokens.windows(2).any(|pair| pair[0] == Sign('|') && pair[1] == Sign('|'))
}

/// Returns the two words before a name whose last part is here, without ONLY: `insert` and `into`.
pub fn before_name(tokens: &[TextToken], at: usize) -> (&str, &str) {
    let mut first = at;
    while first >= 2 && tokens[first - 1] == Sign('.') && tokens[first - 2].word().is_some() {
        first -= 2;
    }
    let before = |back: usize| first.checked_sub(back).and_then(|at| tokens[at].word()).unwrap_or_default();
    let back = usize::from(before(1) == "only") + 1;
    (before(back + 1), before(back))
}

/// Returns columns of a trigger's row that a text names.
pub fn fields(tokens: &[TextToken]) -> BTreeSet<String> {
    let of_row = |three: &[TextToken]| match three {
        [Word(row), Sign('.'), Word(name)] if row == "new" || row == "old" => Some(name.clone()),
        _ => None,
    };
    tokens.windows(3).filter_map(of_row).collect()
}

/// Returns what is within the parentheses that follow.
pub fn argument(rest: &[TextToken]) -> &[TextToken] {
    if rest.first() != Some(&Sign('(')) {
        return &[];
    }
    let rest = rest.get(..MOST_WORDS).unwrap_or(rest);
    let mut depth = 0;
    let is_end = |token: &TextToken| {
        match token {
            Sign('(') => depth += 1,
            Sign(')') => depth -= 1,
            Word(_) | Sign(_) => {}
        }
        depth == 0
    };
    let end = rest.iter().position(is_end).unwrap_or(rest.len());
    rest.get(1..end).unwrap_or_default()
}
