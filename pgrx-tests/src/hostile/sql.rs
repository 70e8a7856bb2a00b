//! Separates the SQL in a statement from texts and quoted names.

/// Returns the statement without its quoted parts: texts, names, and quoted parts of function bodies.
/// Comments remain, because no text of a user belongs in one.
pub fn outside_quotes(statement: &str) -> String {
    let text: Vec<char> = statement.chars().collect();
    let mut outside = String::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let (length, kept) = match rest[0] {
            '\'' => (quoted(rest, '\'', is_escaped(&text[..at])), String::new()),
            '"' => (quoted(rest, '"', false), String::new()),
            '-' if rest.starts_with(&['-', '-']) => until(rest, "\n"),
            '/' if rest.starts_with(&['/', '*']) => until(rest, "*/"),
            '$' => match tag(&text[..at], rest) {
                Some(tag) => {
                    let (length, body) = until(&rest[tag.chars().count()..], &tag);
                    (tag.chars().count() + length, outside_quotes(body.strip_suffix(&tag).unwrap_or(&body)))
                }
                None => (1, "$".to_owned()),
            },
            c => (1, c.to_string()),
        };
        outside.push_str(&kept);
        at += length;
    }
    outside
}

/// Whether E stands before the quote, so that a backslash is an escape.
fn is_escaped(before: &[char]) -> bool {
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    match before {
        [.., previous, 'e' | 'E'] => !is_word(previous),
        ['e' | 'E'] => true,
        _ => false,
    }
}

/// Returns the length of a quoted text, including its quotes.
fn quoted(text: &[char], quote: char, is_escaped: bool) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            '\\' if is_escaped => at += 2,
            c if c == quote && text.get(at + 1) == Some(&quote) => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the text up to an end, including the end.
fn until(text: &[char], end: &str) -> (usize, String) {
    let end: Vec<char> = end.chars().collect();
    let found = (0..text.len()).find(|at| text[*at..].starts_with(&end));
    let length = found.map_or(text.len(), |at| at + end.len());
    (length, text[..length].iter().collect())
}

/// Returns the tag of a dollar quote that begins here.
fn tag(before: &[char], text: &[char]) -> Option<String> {
    if before.last().is_some_and(|c| c.is_alphanumeric() || *c == '_') {
        return None;
    }
    let length = text.iter().skip(1).position(|c| !c.is_alphanumeric() && *c != '_')? + 1;
    let is_tag = text[length] == '$' && !text[1].is_ascii_digit();
    is_tag.then(|| text[..=length].iter().collect())
}

#[cfg(test)]
mod tests {
    use super::outside_quotes;

    #[test]
    fn texts_and_names_are_left_out() {
        for (statement, outside) in [
            ("a 'b''c' d", "a  d"),
            ("a E'b\\'c' d", "a E d"),
            ("a \"b\"\"c\" d", "a  d"),
            ("a like'b\\' c", "a like c"),
            ("a $$b 'c' d$$ e", "a b  d e"),
            ("a $x$b $$ 'c' $$ d$x$ e", "a b    d e"),
            ("a $1 b $2", "a $1 b $2"),
            ("a -- 'b\nc", "a -- 'b\nc"),
            ("a /* 'b */ 'c' d", "a /* 'b */  d"),
            ("a 'b'; c --'", "a ; c --'"),
        ] {
            assert_eq!(outside_quotes(statement), outside, "{statement}");
        }
    }
}
