//! Every template of `sql/`, each of its placeholders filled with hostile names.

use super::{TemplatePiece, TemplateValue, fill, name, number, pieces, put, sql, text, texts, word};
use std::fs;
use std::path::{Path, PathBuf};

const HOSTILE: [&str; 16] = [
    "a\nSELECT 1 AS injected; --",
    "a\r\nSELECT 1",
    "a\u{2028}SELECT 1",
    "-- a",
    "/* a",
    "*/ SELECT 1 /*",
    "'; SELECT 1; --",
    "\"; SELECT 1; --",
    "\\'; SELECT 1; --",
    "a$$ SELECT 1 $$",
    "a$agent$ SELECT 1; $agent1$",
    "a$made$ b $agent$ c $body1$ d $agent2$",
    "{function}",
    "{name}'{text}",
    "$1",
    "",
];

fn files(below: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        match entry.is_dir() {
            true => files(&entry, ending, found),
            false if entry.to_string_lossy().ends_with(ending) => found.push(entry),
            false => {}
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the templates in folders: the files beside these are run as they are, as the extension's own scripts.
fn templates() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root().join("sql"), ".sql", &mut found);
    found.retain(|path| path.parent() != Some(&root().join("sql")));
    let named = found
        .into_iter()
        .map(|path| (path.to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap()));
    named.filter(|(path, _)| !path.contains("/released/") && !path.contains("/comments/")).collect()
}

/// Returns the placeholders of a template, each once.
fn places(template: &str) -> Vec<&str> {
    let mut found: Vec<&str> = template
        .match_indices('{')
        .filter_map(|(at, _)| {
            let name = template[at + 1..].split('}').next()?;
            let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !name.is_empty();
            is_name.then_some(name)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// What the server reads, without comments; bodies of functions are read as well.
#[derive(Debug, PartialEq, Eq, Clone)]
enum Token {
    Word(String),
    Literal(String),
    Name(String),
    Dollar,
    Sign(char),
}

fn quoted(text: &str, quote: char) -> (String, &str) {
    let (mut read, mut rest) = (String::new(), &text[1..]);
    loop {
        let (before, after) = rest.split_once(quote).unwrap_or_else(|| panic!("open quote: {text}"));
        read.push_str(before);
        let Some(more) = after.strip_prefix(quote) else { return (read, after) };
        read.push(quote);
        rest = more;
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let of_word = |c: char| c.is_alphanumeric() || c == '_';
        if rest.starts_with("--") {
            rest = rest.find(['\n', '\r']).map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = &rest[rest.find("*/").expect("a comment is open") + 2..];
        } else if first == '\'' || first == '"' {
            let (read, after) = quoted(rest, first);
            found.push(if first == '"' { Token::Name(read) } else { Token::Literal(read) });
            rest = after;
        } else if rest.starts_with("E'") {
            // Backslashes are escaped, so each is written twice.
            let (read, after) = quoted(&rest[1..], '\'');
            assert!(!read.replace("\\\\", "").contains('\\'), "{text}");
            found.push(Token::Literal(read.replace("\\\\", "\\")));
            rest = after;
        } else if let Some(tag) = dollar(rest) {
            let body = &rest[tag.len()..];
            let end = body.find(tag).unwrap_or_else(|| panic!("{tag} is open: {text}"));
            found.push(Token::Dollar);
            found.extend(tokens(&body[..end]));
            found.push(Token::Dollar);
            rest = &body[end + tag.len()..];
        } else if of_word(first) {
            let end = rest.find(|c| !of_word(c)).unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                found.push(Token::Sign(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

fn dollar(text: &str) -> Option<&str> {
    let end = text.strip_prefix('$')?.find('$')? + 1;
    let name = &text[1..end];
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..=end])
}

/// Returns a text from outside as a value of each kind.
fn kinds(of: &str) -> [TemplateValue; 3] {
    [name(of), text(of), texts([of, of])]
}

/// Whether a template is read as with a harmless text: the tokens are the same except for those with the text in them.
fn same_but_for(harmless: &[Token], hostile: &[Token], mark: &str) -> bool {
    harmless.len() == hostile.len()
        && harmless.iter().zip(hostile).all(|pair| match pair {
            (Token::Literal(before), Token::Literal(after)) => before.contains(mark) || before == after,
            (Token::Name(before), Token::Name(after)) => before.contains(mark) || before == after,
            (before, after) => before == after,
        })
}

#[test]
fn no_text_of_anybody_becomes_sql_in_any_template() {
    const MARK: &str = "harmless";
    let mut filled = 0;
    for (path, template) in templates() {
        for place in places(&template) {
            for hostile in HOSTILE {
                for (before, after) in kinds(MARK).into_iter().zip(kinds(hostile)) {
                    // All other placeholders have usual values.
                    let others: Vec<&str> =
                        places(&template).into_iter().filter(|other| *other != place).collect();
                    let with = |value: TemplateValue| {
                        let mut values = vec![(place, value)];
                        values.extend(others.iter().map(|other| (*other, word("other"))));
                        fill(&template, &values)
                    };
                    let (before, after) = (with(before), with(after));
                    assert!(
                        same_but_for(&tokens(&before), &tokens(&after), MARK),
                        "{path}: {{{place}}} filled with {hostile:?}:\n{after}"
                    );
                    filled += 1;
                }
            }
        }
    }
    assert!(filled > 3_000, "{filled}");
}

#[test]
fn quotes_of_templates_are_plain_ones() {
    for (path, template) in templates() {
        let pieces = pieces(&template);
        for (piece, next) in pieces.iter().zip(pieces.iter().skip(1)) {
            match (piece, next) {
                (TemplatePiece::Comment(comment), _) => {
                    let is_plain = comment.strip_prefix("/*").is_none_or(|inner| !inner.contains("/*"));
                    assert!(is_plain, "{path}: a comment in a comment");
                }
                // A backslash before a quote would be read differently.
                (TemplatePiece::Sql(before), TemplatePiece::Quoted(_, quoted)) => {
                    let word =
                        before.rsplit(|c: char| !c.is_alphanumeric() && c != '&').next().unwrap_or_default();
                    let has_escapes = ["e", "u&"].contains(&word.to_lowercase().as_str());
                    assert!(!has_escapes || !quoted.contains("\\'"), "{path}: {quoted}");
                }
                (TemplatePiece::Sql(_) | TemplatePiece::Quoted(..) | TemplatePiece::Dollar(_), _) => {}
            }
        }
    }
}

#[test]
fn sql_is_filled_here_alone() {
    let mut found = Vec::new();
    files(&root().join("src"), ".rs", &mut found);
    // Hints for people are filled elsewhere.
    let others = ["src/remote/template", "src/words.rs", "src/split/lifecycle/hints.rs", "src/layers.rs"];
    let mut wrong = Vec::new();
    for path in found {
        let shown = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        if others.iter().any(|other| shown.starts_with(other)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for begins in [
            ".replace(\"{",
            ".replace(&format!(\"{{",
            ".replace(\"$",
            ".replace(\"shardmaster",
            ".replace(NAMESPACE",
        ] {
            if code.contains(begins) {
                wrong.push(format!("{shown}: {begins}"));
            }
        }
        // A template is not modified in any other way.
        let squeezed: String = code.split_whitespace().collect();
        if squeezed.contains(".sql\").replace") || squeezed.contains(".sql\")+") {
            wrong.push(format!("{shown}: a template's text is changed"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_filled_in_is_not_filled() {
    let filled = fill("{a} {b} {c} '{}' {a}", &[("a", sql("{b}")), ("b", sql("{a}"))]);
    assert_eq!(filled, "{b} {a} {c} '{}' {b}");
}

#[test]
fn values_are_what_they_say() {
    let values = [
        ("n", name("a\"b")),
        ("t", text("a'b")),
        ("l", texts(["a", "b'"])),
        ("i", number(-7)),
        ("w", word("x_1")),
    ];
    assert_eq!(fill("{n} {t} {l} {i} {w}_y", &values), "\"a\"\"b\" 'a''b' '{\"a\",\"b''\"}' -7 x_1_y");
    // Within quotes of the template a value is a part of their contents.
    assert_eq!(fill("'{t} {i}' \"{n}\"", &values), "'a''b -7' \"a\"\"b\"");
    // Comments are not filled.
    assert_eq!(fill("-- {t}\n/* {n} */ {i}", &values), "-- {t}\n/* {n} */ -7");
    // A text that is no word is quoted as a name, and not used as a part of one.
    assert_eq!(fill("{w}", &[("w", word("a b"))]), "\"a b\"");
}

#[test]
fn no_name_closes_a_function() {
    let body = "AS $agent$ {name} $agent$";
    assert_eq!(fill(body, &[("name", sql("x"))]), "AS $agent$ x $agent$");
    assert_eq!(
        fill(body, &[("name", sql("a$agent$ b $agent1$"))]),
        "AS $agent2$ a$agent$ b $agent1$ $agent2$"
    );
    // This includes a quote that is composed of a value and the text around it.
    assert_eq!(fill("$agent$ $agen{t}$ $agent$", &[("t", sql("t"))]), "$agent1$ $agent$ $agent1$");
    assert_eq!(fill("DO $$ {t} $$", &[("t", text("$$ x"))]), "DO $body1$ '$$ x' $body1$");
}

#[test]
fn a_value_is_put_in_the_place_of_a_mark_outside_of_quotes() {
    let statement = "GRANT USAGE ON SCHEMA (mark) TO \"(mark)\"; COMMENT ON SCHEMA (mark) IS 'a (mark)'";
    assert_eq!(
        put(statement, "(mark)", &name("a'\"b")),
        "GRANT USAGE ON SCHEMA \"a'\"\"b\" TO \"(mark)\"; COMMENT ON SCHEMA \"a'\"\"b\" IS 'a (mark)'"
    );
}
