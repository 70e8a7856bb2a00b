//! Expressions that one side has written and the other must evaluate: before a text of one shard becomes part of a
//! statement on another, it is checked word by word. A text that is not known to be only an expression is not sent. In
//! an operator's expression this finds the names that are not the server's own, before the server reads it.

/// A part of an expression.
#[derive(Debug, PartialEq, Eq)]
enum ExpressionToken {
    /// A text in quotes.
    Text,
    /// A word or a quoted name.
    Word(String),
    Open,
    Close,
    Dot,
    Other(char),
}

/// The author of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    /// A shard's server: a text in quotes has no backslash.
    Server,
    /// An operator. The text is read as in the mover's sessions, with standard_conforming_strings.
    Operator,
}

/// Words that a parenthesis may follow without a call.
const NO_CALL: [&str; 9] = ["and", "or", "not", "any", "in", "is", "null", "between", "row"];
/// Words that begin something other than an expression, or read tables.
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

fn tokens(text: &str, author: Author) -> Option<Vec<ExpressionToken>> {
    let chars: Vec<char> = text.chars().collect();
    // This follows the server's rule: no letter beyond ASCII is a blank.
    let is_word = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii() || c == '_' || c == '$';
    let (mut at, mut found) = (0, Vec::new());
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        match c {
            '\'' => {
                // A text in quotes after an escape string would be an escape string, too.
                if found.last() == Some(&ExpressionToken::Text) {
                    return None;
                }
                at = quoted(&chars, at, '\'', author)?;
                found.push(ExpressionToken::Text);
            }
            '"' => {
                let end = quoted(&chars, at, '"', author)?;
                found.push(ExpressionToken::Word(chars[at..end].iter().collect()));
                at = end;
            }
            ';' | '\\' | '\0' => return None,
            // U&'..' has rules of its own.
            '&' if matches!(next, Some('\'' | '"')) => return None,
            '-' if next == Some('-') => return None,
            '/' if next == Some('*') => return None,
            '$' => return None,
            '(' => (at, _) = (at + 1, found.push(ExpressionToken::Open)),
            ')' => (at, _) = (at + 1, found.push(ExpressionToken::Close)),
            c if is_word(c) => {
                let end = (at..chars.len()).find(|n| !is_word(chars[*n])).unwrap_or(chars.len());
                let word: String = chars[at..end].iter().collect();
                // E'..' and the like have rules of their own.
                if matches!(chars.get(end), Some('\'' | '"')) {
                    let is_escape = author == Author::Operator && word.eq_ignore_ascii_case("e");
                    if is_escape {
                        at = escaped(&chars, end)?;
                        found.push(ExpressionToken::Text);
                        continue;
                    }
                    if author == Author::Server || word.len() == 1 {
                        return None;
                    }
                }
                found.push(ExpressionToken::Word(word.to_ascii_lowercase()));
                at = end;
            }
            // Only servers from version 17 on treat this as a blank.
            '\u{b}' => return None,
            c if c.is_ascii_whitespace() => at += 1,
            '.' => (at, _) = (at + 1, found.push(ExpressionToken::Dot)),
            _ => (at, _) = (at + 1, found.push(ExpressionToken::Other(c))),
        }
    }
    Some(found)
}

/// Returns the position behind the closing quote.
fn quoted(chars: &[char], from: usize, quote: char, author: Author) -> Option<usize> {
    let mut at = from + 1;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('\\', _) if author == Author::Server => return None,
            (c, Some(next)) if c == quote && *next == quote => at += 2,
            (c, _) if c == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// Returns the position behind the closing quote of an escape string, where a backslash escapes the next character.
fn escaped(chars: &[char], from: usize) -> Option<usize> {
    let mut at = from + 1;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('\\', Some(_)) | ('\'', Some('\'')) => at += 2,
            ('\'', _) => return (chars[from] == '\'').then_some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// A name with its schema, and whether a parenthesis follows it: a type's name with one may be a function.
#[derive(PartialEq, Eq)]
pub struct PlainName {
    pub text: String,
    is_qualified: bool,
    pub is_called: bool,
}

fn names_of(tokens: &[ExpressionToken]) -> Vec<PlainName> {
    let mut found: Vec<PlainName> = Vec::new();
    for (n, token) in tokens.iter().enumerate() {
        let ExpressionToken::Word(word) = token else { continue };
        let is_called = tokens.get(n + 1) == Some(&ExpressionToken::Open);
        let goes_on = n > 1
            && tokens[n - 1] == ExpressionToken::Dot
            && matches!(tokens[n - 2], ExpressionToken::Word(_));
        match found.last_mut() {
            Some(last) if goes_on => {
                last.text += &format!(".{word}");
                (last.is_qualified, last.is_called) = (true, is_called);
            }
            _ => found.push(PlainName { text: word.clone(), is_qualified: false, is_called }),
        }
    }
    found
}

fn is_number(name: &PlainName) -> bool {
    name.text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 'e')
}

/// Whether every dot is in a name or a number. After a value the server reads the next word as a function of it,
/// whatever the value is: `('x').pg_read_file`.
fn has_plain_dots(tokens: &[ExpressionToken]) -> bool {
    let is_word = |n: usize| matches!(tokens.get(n), Some(ExpressionToken::Word(_)));
    let is_plain = |n: usize| n > 0 && is_word(n - 1) && is_word(n + 1);
    (0..tokens.len()).filter(|n| tokens[*n] == ExpressionToken::Dot).all(is_plain)
}

/// Whether a text is one expression that calls nothing, and names nothing in a schema, except what `is_known` knows:
/// as it is written, with its schema.
pub fn is_expression(text: &str, is_known: impl Fn(&PlainName) -> bool) -> bool {
    let Some(tokens) = tokens(text, Author::Server) else { return false };
    let mut depth = 0_usize;
    for token in &tokens {
        match token {
            ExpressionToken::Open => depth += 1,
            ExpressionToken::Close => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            ExpressionToken::Word(word) if REFUSED.contains(&word.as_str()) => return false,
            ExpressionToken::Word(_)
            | ExpressionToken::Text
            | ExpressionToken::Dot
            | ExpressionToken::Other(_) => {}
        }
    }
    let is_plain = |name: &PlainName| {
        let is_word = !name.is_qualified && (!name.is_called || NO_CALL.contains(&name.text.as_str()));
        is_word || is_number(name) || is_known(name)
    };
    depth == 0 && !tokens.is_empty() && has_plain_dots(&tokens) && names_of(&tokens).iter().all(is_plain)
}

/// Returns the names that a text calls, and those that it names in a schema.
pub fn known_names(text: &str) -> Vec<PlainName> {
    let names = names_of(&tokens(text, Author::Server).unwrap_or_default());
    names.into_iter().filter(|name| name.is_called || name.is_qualified).collect()
}

/// A name in a schema.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
pub struct Qualified {
    pub schema: String,
    /// `None` stands for operators.
    pub name: Option<String>,
}

/// Words that no type follows.
const BEFORE_VALUES: [&str; 11] =
    ["when", "then", "else", "and", "or", "not", "case", "in", "from", "between", "like"];

/// Whether a word is the row `t` whose column is meant, and not a schema of this name with a function, type or
/// operator.
fn is_of_row(tokens: &[ExpressionToken], n: usize) -> bool {
    let before = n.checked_sub(1).and_then(|before| tokens.get(before));
    let is_value = match before {
        None | Some(ExpressionToken::Open) => true,
        Some(ExpressionToken::Other(c)) => *c != ':',
        Some(ExpressionToken::Word(word)) => BEFORE_VALUES.contains(&word.as_str()),
        Some(ExpressionToken::Close | ExpressionToken::Dot | ExpressionToken::Text) => false,
    };
    let is_column = matches!(tokens.get(n + 2), Some(ExpressionToken::Word(_)))
        && !matches!(
            tokens.get(n + 3),
            Some(ExpressionToken::Open | ExpressionToken::Text | ExpressionToken::Dot)
        );
    is_value && is_column && matches!(&tokens[n], ExpressionToken::Word(word) if plain(word) == "t")
}

/// Returns what an operator's expression may name in schemas, by functions, operators or types that it uses; columns
/// of rows other than `t` look the same. Returns None if this cannot be determined.
pub fn qualified(text: &str) -> Option<Vec<Qualified>> {
    let tokens = tokens(text, Author::Operator)?;
    let name = |n: usize| match tokens.get(n) {
        Some(ExpressionToken::Word(word)) if !word.starts_with(|c: char| c.is_ascii_digit()) => {
            Some(plain(word))
        }
        _ => None,
    };
    let at: Vec<usize> = (0..tokens.len())
        .filter(|n| tokens.get(n + 1) == Some(&ExpressionToken::Dot) && !is_of_row(&tokens, *n))
        .collect();
    // A server with a single-byte encoding folds capitals beyond ASCII by its locale.
    let is_folded = |n: usize| matches!(tokens.get(n), Some(ExpressionToken::Word(word)) if !word.starts_with('"') && !word.is_ascii());
    if at.iter().any(|n| is_folded(*n) || is_folded(n + 2)) {
        return None;
    }
    let mut found: Vec<Qualified> =
        at.into_iter().filter_map(|n| Some(Qualified { schema: name(n)?, name: name(n + 2) })).collect();
    found.sort();
    found.dedup();
    Some(found)
}

/// Whether an operator's expression contains a query: every query on a table has one of these words, and neither is a
/// name unless it is quoted.
pub fn has_query(text: &str) -> bool {
    let is_query = |token: &ExpressionToken| matches!(token, ExpressionToken::Word(word) if word == "select" || word == "table");
    tokens(text, Author::Operator).is_none_or(|tokens| tokens.iter().any(is_query))
}

/// Returns a word without its quotes.
fn plain(word: &str) -> String {
    match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => word.to_owned(),
    }
}

/// Whether a function or type of the server is harmless in keys of partitions: it depends only on its arguments.
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
    // These are types with a length.
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
            assert!(is_expression(text, |name| is_harmless(&name.text)), "{text}");
        }
    }

    #[test]
    fn whatever_is_more_is_none() {
        for text in [
            "own\u{b}.f(x)",
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
            "('PG_VERSION').pg_read_file IS NOT NULL",
            "(ARRAY['PG_VERSION'::text])[1] . pg_read_file IS NOT NULL",
            "(a).b = 1",
            "a.* IS NULL",
        ] {
            assert!(!is_expression(text, |name| is_harmless(&name.text)), "{text}");
        }
    }

    #[test]
    fn what_an_operator_names_in_schemas_is_found() {
        let names = |text: &str| {
            let found = qualified(text)?;
            let text = |q: Qualified| format!("{}.{}", q.schema, q.name.unwrap_or_default());
            Some(found.into_iter().map(text).collect::<Vec<_>>().join(" "))
        };
        for (text, found) in [
            ("upper(val)", ""),
            ("t.val || 'lib.f(x)' || 1.5", ""),
            ("CASE WHEN t.a IS NULL THEN (t.b) ELSE -t.c END", ""),
            ("T.f (1) || t.d 'x' || ''::t.e || CAST(1 AS t.g) || 1 OPERATOR(t.+) 1", "t. t.d t.e t.f t.g"),
            ("t.lib.f(x)", "lib.f t.lib"),
            ("Lib . Fine(t.code)", "lib.fine"),
            ("\"A\"\"b\".\"F\"(x)", "A\"b.F"),
            ("x OPERATOR ( \"lib\" . + ) 1", "lib."),
            ("db.lib.f('a\\')", "db.lib lib.f"),
            ("lib.dom'x'", "lib.dom"),
            ("E'\\' || lib.f(x) || \\''", ""),
            ("e'''' || lib.f(x) || e'\\\\'", "lib.f"),
            ("\"lib\".\"GRÖSSE\u{a0}\"(x)", "lib.GRÖSSE\u{a0}"),
            ("t.größe || größe", ""),
        ] {
            assert_eq!(names(text).as_deref(), Some(found), "{text}");
        }
        for text in [
            "E'a'\n'\\' || lib.f(x) || '\\'",
            "E'\\'",
            "N'a'",
            "'a' 'b'",
            "$$'$$ || lib.f(x)",
            "U&\"lib\".f(x)",
            "lib./* */f(x)",
            "lib.GRÖSSE(x)",
            "größe.f(x)",
            "x -- '",
            "x; y",
            "'open",
        ] {
            assert_eq!(names(text), None, "{text}");
        }
    }

    #[test]
    fn a_query_is_found_however_it_is_written() {
        for text in
            ["(Select 1 FROM t.evil)", "x IN (TABLE lib.evil)", "exists(/**/select)", "ARRAY(SELECT v)"]
        {
            assert!(has_query(text), "{text}");
        }
        for text in
            ["t.v || 'select'", "extract(epoch FROM t.at)", "\"select\"", "x::timestamp with time zone"]
        {
            assert!(!has_query(text), "{text}");
        }
    }

    #[test]
    fn names_that_are_called_are_found() {
        let found = known_names("(length(\"A\") > 1.5) AND own.f (x) AND 'x'::own.\"T\" = b");
        let found: Vec<_> = found.iter().map(|name| (name.text.as_str(), name.is_called)).collect();
        assert_eq!(found, [("length", true), ("1.5", false), ("own.f", true), ("own.\"T\"", false)]);
    }
}
