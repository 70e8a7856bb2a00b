//! Expressions that one side has written and the other is to read: before a text of one
//! shard stands in a statement on another, it is looked at word by word. What is not known
//! to be an expression and nothing else is not asked.

/// A part of an expression.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// A text in quotes.
    Text,
    /// A word, or a name in quotes, and what was called by it if a parenthesis follows.
    Word(String),
    Open,
    Close,
    Dot,
    Other,
}

/// Words that a parenthesis may follow without calling anything.
const NO_CALL: [&str; 9] = ["and", "or", "not", "any", "in", "is", "null", "between", "row"];
/// Words that begin something else than an expression, or look into tables.
const REFUSED: [&str; 12] = [
    "select",
    "table",
    "values",
    "with",
    "from",
    "operator",
    "insert",
    "update",
    "delete",
    "exists",
    "over",
    "returning",
];

fn tokens(text: &str) -> Option<Vec<Token>> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let (mut at, mut found) = (0, Vec::new());
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match c {
            '\'' => {
                at = quoted(&chars, at, '\'')?;
                found.push(Token::Text);
            }
            '"' => {
                let end = quoted(&chars, at, '"')?;
                found.push(Token::Word(chars[at..end].iter().collect()));
                at = end;
            }
            ';' | '\\' | '\0' => return None,
            // U&'..'.
            '&' if matches!(next, Some('\'' | '"')) => return None,
            '-' if next == Some('-') => return None,
            '/' if next == Some('*') => return None,
            '$' => return None,
            '(' => (at, _) = (at + 1, found.push(Token::Open)),
            ')' => (at, _) = (at + 1, found.push(Token::Close)),
            c if is_word(c) => {
                let end = (at..chars.len()).find(|n| !is_word(chars[*n])).unwrap_or(chars.len());
                // E'..' and the like have rules of their own.
                if matches!(chars.get(end), Some('\'' | '"')) {
                    return None;
                }
                let word: String = chars[at..end].iter().collect();
                found.push(Token::Word(word.to_lowercase()));
                at = end;
            }
            c if c.is_whitespace() => at += 1,
            '.' => (at, _) = (at + 1, found.push(Token::Dot)),
            c if c.is_ascii() => (at, _) = (at + 1, found.push(Token::Other)),
            _ => return None,
        }
    }
    Some(found)
}

/// Behind the closing quote.
fn quoted(chars: &[char], from: usize, quote: char) -> Option<usize> {
    let mut at = from + 1;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('\\', _) => return None,
            (c, Some(next)) if c == quote && *next == quote => at += 2,
            (c, _) if c == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// A name with its schema, and whether a parenthesis follows it.
struct Name {
    text: String,
    is_qualified: bool,
    is_called: bool,
}

fn names_of(tokens: &[Token]) -> Vec<Name> {
    let mut found: Vec<Name> = Vec::new();
    for (n, token) in tokens.iter().enumerate() {
        let Token::Word(word) = token else { continue };
        let is_called = tokens.get(n + 1) == Some(&Token::Open);
        let goes_on = n > 1 && tokens[n - 1] == Token::Dot && matches!(tokens[n - 2], Token::Word(_));
        match found.last_mut() {
            Some(last) if goes_on => {
                last.text += &format!(".{word}");
                (last.is_qualified, last.is_called) = (true, is_called);
            }
            _ => found.push(Name { text: word.clone(), is_qualified: false, is_called }),
        }
    }
    found
}

fn is_number(name: &Name) -> bool {
    name.text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 'e')
}

/// Whether a text is one expression that calls nothing, and names nothing in a schema, but
/// what `is_known` knows: as it is written, with its schema.
pub fn is_expression(text: &str, is_known: impl Fn(&str) -> bool) -> bool {
    let Some(tokens) = tokens(text) else { return false };
    let mut depth = 0_usize;
    for token in &tokens {
        match token {
            Token::Open => depth += 1,
            Token::Close => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            Token::Word(word) if REFUSED.contains(&word.as_str()) => return false,
            Token::Word(_) | Token::Text | Token::Dot | Token::Other => {}
        }
    }
    let is_plain = |name: &Name| {
        let is_word = !name.is_qualified && (!name.is_called || NO_CALL.contains(&name.text.as_str()));
        is_word || is_number(name) || is_known(&name.text)
    };
    depth == 0 && !tokens.is_empty() && names_of(&tokens).iter().all(is_plain)
}

/// The names that a text calls, and those that it names in a schema.
pub fn known_names(text: &str) -> Vec<String> {
    let names = names_of(&tokens(text).unwrap_or_default());
    names.into_iter().filter(|name| name.is_called || name.is_qualified).map(|name| name.text).collect()
}

/// Functions of the server that keys of partitions are made with: they look at nothing but
/// their arguments.
pub fn is_harmless(name: &str) -> bool {
    const HARMLESS: [&str; 16] = [
        "lower",
        "upper",
        "abs",
        "mod",
        "date_trunc",
        "date_part",
        "btrim",
        "ltrim",
        "rtrim",
        "substr",
        "left",
        "right",
        "length",
        "timezone",
        "coalesce",
        "date",
    ];
    // Types with a length.
    const TYPES: [&str; 8] =
        ["varying", "numeric", "character", "varchar", "bpchar", "bit", "timestamp", "time"];
    HARMLESS.contains(&name) || TYPES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_partitions_are_expressions() {
        for text in [
            "true",
            "((tenant IS NOT NULL) AND (tenant >= '10'::bigint) AND (tenant < '20'::bigint))",
            "((region IS NOT NULL) AND (region = ANY (ARRAY['a'::text, 'it''s'::text])))",
            "(NOT ((n IS NOT NULL) AND ((n = 1) OR (n = '-2'::integer))))",
            "((date_trunc('day'::text, \"At\") IS NOT NULL) AND (lower(name) < 'm'::text))",
            "((v)::character varying(10) < 'x'::numeric(3,1))",
        ] {
            assert!(is_expression(text, is_harmless), "{text}");
        }
    }

    #[test]
    fn whatever_is_more_is_none() {
        for text in [
            "",
            "true),false) LIMIT 1; COMMIT; UPDATE t SET x = 1; --",
            "true), ADD COLUMN zz int DEFAULT f(1), ADD CHECK (true",
            "(SELECT true)",
            "pg_read_file('x') IS NOT NULL",
            "\"pg_read_file\"('x') IS NOT NULL",
            "own.evil(1)",
            "own.lower(1)",
            "'x'::own.dom = a",
            "a = 'x' -- '",
            "a = /* */ 1",
            "a = E'\\''",
            "a = $$x$$",
            "a OPERATOR(own.=) b",
            "a = 'open",
            "a = U&'x'",
            "(true",
        ] {
            assert!(!is_expression(text, is_harmless), "{text}");
        }
    }

    #[test]
    fn names_that_are_called_are_found() {
        let found = known_names("(length(\"A\") > 1.5) AND own.f (x) AND 'x'::own.\"T\" = b");
        assert_eq!(found, ["length", "1.5", "own.f", "own.\"T\""]);
    }
}
